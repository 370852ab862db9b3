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
		if l.isReleased() {
			return nil
		}
	}
	left := l.Deadline().Sub(l.client.clock.Now())
	if left <= 0 {
		return lost(ErrExpired) // while earlier calls could not reach Redis
	}
	r := await(ctx, l.client, left, func(rdb redis.Scripter) (lua.Handover, error) { return l.release(ctx, rdb) }, func() {})
	switch {
	case r.err != nil:
		return r.err
	case !r.value.Released && !r.value.Resent:
		cause := lost(ErrTaken)
		l.reportLoss(cause)
		return cause
	}
	if l.setReleased() {
		call(l.client.trace.Released, ReleasedInfo{Event: l.event(), Fence: l.fence, Held: l.client.clock.Now().Sub(l.began)})
	}
	return nil
}

// release gives the lock back. If an acquire of this token went astray it is buried as well.
func (l *Lease) release(ctx context.Context, rdb redis.Scripter) (h lua.Handover, err error) {
	if l.token.Unsure {
		h, err = l.redis.Via(rdb).Leave(ctx, l.token, l.ttl, l.client.cfg.WaiterTTL)
	} else {
		h, err = l.redis.Via(rdb).Release(ctx, l.token, l.ttl)
	}
	if err == nil {
		l.client.settle(l.lock, l.token, h)
	}
	return h, err
}

func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

// setReleased reports whether it is news.
func (l *Lease) setReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := !l.released
	l.released = true
	return news
}
