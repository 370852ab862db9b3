package script

import (
	"context"
	"fmt"

	"github.com/fairlock/fairlock-go/internal/call"
)

var pingScript = newScript(join("ping"))

// Ping runs a script that does what a lock needs with a key of the namespace that does not exist, on the node of a
// cluster that has its slot. An error means that the server cannot change locks now, or that the user lacks rights.
func Ping(ctx context.Context, rdb Scripter, namespace string) error {
	key := namespace + ":{ping}:absent" // no key of a lock has that end
	err := run(ctx, rdb, pingScript, []string{key}).Err()
	if err == nil {
		return nil
	}
	if refusedInScript.MatchString(err.Error()) {
		err = fmt.Errorf("key %q: %w", key, err)
	}
	return call.WithOrigin(err)
}
