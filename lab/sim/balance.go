package sim

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlock/fairlock-go/fairlock"
)

// balance checks that the events of a Trace balance: what gauges show that are made of them.
type balance struct {
	world *world

	mu     sync.Mutex
	leases map[string]int // guarded by mu: by token: 1 if its lease has begun, and not ended
}

func newBalance(w *world) *balance { return &balance{world: w, leases: map[string]int{}} }

// trace counts leases. It is the same whether a process has crashed, was paused, or neither.
func (b *balance) trace() *fairlock.Trace {
	count := func(e fairlock.Event, n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.leases[e.Token.Text()] += n; b.leases[e.Token.Text()] != max(n, 0) {
			b.world.fail("trace: a lease of %s has begun or ended twice", e.Token.Text())
		}
	}
	return &fairlock.Trace{
		Granted: func(i fairlock.GrantedInfo) { count(i.Event, 1) },
		Ended:   func(i fairlock.EndedInfo) { count(i.Event, -1) },
	}
}

// check fails if a lease has not ended. The client is closed.
func (b *balance) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for token, n := range b.leases {
		if n != 0 {
			b.world.fail("trace: %d leases of %s have not ended", n, token)
		}
	}
}

// outcome is what Trace has told of a call of Lock.
type outcome struct{ queued, ended int }

// check fails if it is not what the call has returned. A call that returns one of two errors may have been refused
// before it was an acquisition.
func (o outcome) check(w *world, err error) {
	refused := errors.Is(err, fairlock.ErrClosed) || errors.Is(err, context.Canceled)
	if o.queued > 1 || o.ended > 1 || o.ended == 0 && !refused {
		w.fail("trace: a call has %d Queued, and %d Granted and Left; it has returned %v", o.queued, o.ended, err)
	}
}
