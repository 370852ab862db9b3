package fairlock

import (
	"log/slog"
	"sync"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/task"
)

// runtime is what the parts of a Client share.
type runtime struct {
	clock Clock
	log   *slog.Logger
	trace *Trace
	tasks *task.Group
	calls *call.Calls

	mu     sync.Mutex
	warned map[string]struct{} // guarded by mu; keys of the locks of which firstTime has been called
}

// firstTime reports whether it is called for the first time with the key of a lock, so that a warning is logged once.
func (rt *runtime) firstTime(key string) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	_, again := rt.warned[key]
	rt.warned[key] = struct{}{}
	return !again
}
