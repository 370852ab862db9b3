package script

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/dispatch"
)

var pingScript = dispatch.NewScript(join("ping"))

// Ping runs a script that does what a lock needs with a key of the namespace that does not exist, on the node of a
// cluster that has its slot. An error means that the server cannot change locks now, or that the user lacks rights. It
// names the command that was refused.
func Ping(ctx context.Context, rdb Sender, namespace string) error {
	key := namespace + ":{ping}:absent" // no key of a lock has that end
	_, err := rdb.Send(ctx, dispatch.Request{Script: pingScript, Keys: []string{key}})
	if err == nil {
		return nil
	}
	what := "key"
	if at := refusedLine.FindStringSubmatch(err.Error()); at != nil { // Redis 7.0 does not name the command
		lines := strings.Split("\n"+pingScript.Text, "\n")
		line, _ := strconv.Atoi(at[1])
		what = command.FindString(lines[min(line, len(lines)-1)])
	}
	if meaning, _ := call.MeaningOf(err); meaning == call.Forbidden || what != "key" {
		err = fmt.Errorf("%s %q: %w", what, key, err)
	}
	return call.WithOrigin(err)
}

var (
	refusedLine = regexp.MustCompile(`@user_script: ?(\d+)`)
	command     = regexp.MustCompile(`[A-Z]+`)
)
