package fairlock

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
)

// Unlock ends the lease and gives the lock back, which hands it over to the first waiter. The lease is over for its
// holder from the moment of the call.
//
// nil says that the lock is released; also when it was before, by an earlier call or by one whose reply was lost.
// ErrLost says that it was no longer ours (whoever has it keeps it). ErrClosed says that the Client was closed before:
// the lock stays taken until its TTL ends. Any other error says that Redis could not be asked: the lock may still be
// taken, for no longer than its TTL, and Unlock can be called again.
//
// ctx carries values only: Unlock works after ctx has ended, and is bounded by what is left of the lease.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.wrap("unlock", l.unlock(context.WithoutCancel(ctx)))
}

func (l *Lease) unlock(ctx context.Context) error {
	if err := l.client.enter(); err != nil {
		return err
	}
	defer l.client.tasks.Done()
	l.expire()
	if !l.finish(ErrUnlocked) {
		if cause := context.Cause(l.life); cause != ErrUnlocked { //nolint:errorlint // the cause itself, not what it wraps
			return cause
		}
	}
	if verdict, settled := l.takeTurn(); settled {
		return verdict
	}
	var verdict error
	settled := false
	defer func() { l.passTurn(verdict, settled) }() // also when a Trace callback panics
	verdict, settled = l.giveBack(ctx)
	return verdict
}

// giveBack asks Redis once, and reports whether its answer settles the matter.
func (l *Lease) giveBack(ctx context.Context) (verdict error, settled bool) {
	left := l.Deadline().Sub(l.client.clock.Now())
	if left <= 0 {
		return lost(ErrExpired), true // while earlier calls could not reach Redis
	}
	r := await(ctx, l.client, left, l.release, func() {})
	switch {
	case r.err != nil:
		return r.err, false
	case !r.value.Released && !r.value.Resent:
		cause := lost(ErrTaken)
		l.reportLoss(cause)
		return cause, true
	}
	held := l.client.clock.Now().Sub(l.began)
	call(l.client.trace.Released, ReleasedInfo{Event: l.event(), Fence: l.fence, Held: held})
	return nil, true
}

// takeTurn waits until no other Unlock of this lease is under way, each of which is bounded, and returns their
// verdict if the matter is settled. Otherwise it is this one's turn.
func (l *Lease) takeTurn() (verdict error, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unlocking {
		if l.turn == nil {
			l.turn = make(chan struct{})
		}
		turn := l.turn
		l.mu.Unlock()
		<-turn
		l.mu.Lock()
	}
	l.unlocking = !l.settled
	return l.verdict, l.settled
}

func (l *Lease) passTurn(verdict error, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlocking, l.verdict, l.settled = false, verdict, settled
	if l.turn != nil {
		close(l.turn)
		l.turn = nil
	}
}

// release gives the lock back. If an acquire of this token went astray it is buried as well.
func (l *Lease) release(ctx context.Context, rdb redis.Scripter) (h lua.Handover, err error) {
	if l.token.Unsure {
		h, err = l.redis.Via(rdb).Leave(ctx, l.token, l.ttl, l.client.burial(l.token))
	} else {
		h, err = l.redis.Via(rdb).Release(ctx, l.token, l.ttl)
	}
	if err == nil {
		l.client.settle(l.lock, h)
	}
	return h, err
}
