package script

import (
	"context"
	"fmt"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/dispatch"
)

var pingScript = dispatch.NewScript(join("ping"))

// Ping runs a script that does what a lock needs with a key of the namespace that does not exist, on the node of a
// cluster that has its slot. An error means that the server cannot change locks now, or that the user lacks rights.
func Ping(ctx context.Context, rdb Sender, namespace string) error {
	key := namespace + ":{ping}:absent" // no key of a lock has that end
	_, err := rdb.Send(ctx, dispatch.Request{Script: pingScript, Keys: []string{key}})
	if err == nil {
		return nil
	}
	if meaning, _ := call.MeaningOf(err); meaning == call.Forbidden {
		err = fmt.Errorf("key %q: %w", key, err)
	}
	return call.WithOrigin(err)
}
