package wait

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/token"
)

// Env is what the waiters of a client need of it. None of its functions is called under a mutex.
type Env struct {
	Tasks     *task.Group
	Calls     *call.Calls
	Clock     clock.Clock
	Log       *slog.Logger
	WaiterTTL time.Duration

	// Listen subscribes to a channel. It calls up when Redis has confirmed that, and then message for each message, until
	// the connection breaks or ctx ends. The error has an origin, as that of a request.
	Listen  func(ctx context.Context, channel string, up func(), message func(string)) error
	Channel string

	// Subscription is called when the subscription has come up, with nil, or has broken.
	Subscription func(error)
}

// after is AfterFunc of the Clock, for the work of a task. Nothing is done once the client is closed.
func (e *Env) after(d time.Duration, f func(task.Task)) clock.Timer {
	return e.Clock.AfterFunc(d, func() {
		if t, err := e.Tasks.Begin(); err == nil {
			defer t.End()
			f(t)
		}
	})
}

// serve has Redis go on where a script has reached a bound.
func (e *Env) serve(t task.Task, l Lock) {
	t.Go(func(task.Task) {
		for more := true; more; {
			more, _ = l.Admit(e.Tasks.Life()) // after an error the heartbeats of the waiters go on
		}
	})
}

// Lock is a lock as its waiters know it: its name, and the requests of a script.Lock that they send.
type Lock struct {
	Name string
	Requests
}

// Requests has the methods that waiters need of a script.Lock.
type Requests interface {
	Key() string
	Acquire(ctx context.Context, r script.Request) (script.Reply, error)
	Heartbeat(ctx context.Context, waiterTTL time.Duration, tokens []token.Token) (script.HeartbeatReply, error)
	Admit(ctx context.Context) (more bool, err error)
	Leave(ctx context.Context, rest script.Rest, leaving ...script.Leaving) (script.Handoff, error)
}
