package hold

import (
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/task"
)

const (
	// lossWindow is in how much time at most maxLosses losses of a client have lines of their own in the log. An outage
	// ends all leases of a process at once.
	lossWindow = time.Second
	maxLosses  = 10
)

// Losses are those of a client that are logged. The zero value is ready to use.
type Losses struct {
	mu   sync.Mutex
	open bool // guarded by mu: a window is under way
	n    int  // guarded by mu: losses in it
}

// line reports whether a loss has a line of its own. Those that have none are counted, in one line when the window
// ends.
func (l *Losses) line(env *Env) bool {
	l.mu.Lock()
	opens := !l.open
	l.open = true
	l.n++
	own := l.n <= maxLosses
	l.mu.Unlock()
	if !opens {
		return own
	}
	t, err := env.Tasks.Begin()
	if err != nil { // the client is closed, and logs no further loss
		l.end(env)
		return own
	}
	defer t.End()
	t.Stay(func(task.Task) { // a Shutdown need not wait for a line
		env.Calls.Sleep(env.Tasks.Life(), lossWindow)
		l.end(env)
	})
	return own
}

// end ends the window.
func (l *Losses) end(env *Env) {
	l.mu.Lock()
	more := l.n - maxLosses
	l.open, l.n = false, 0
	l.mu.Unlock()
	if more > 0 {
		env.Log.Warn("more locks lost", "count", more, "within", lossWindow)
	}
}
