package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/lua"
)

// exercise is what became of one lock that was taken, waited for, handed over and given back.
type exercise struct {
	took     time.Duration // to lock
	handover time.Duration // from the release to the next one in
	handed   bool          // by a message
	deaf     error         // why no message could come
}

// enough is how long an exercise may take, and cleaning up after it.
const (
	enough   = 15 * time.Second
	cleaning = 5 * time.Second
)

// run exercises a lock. What the scripts do for a mutex and for permits differs, so it is done with both.
func run(ctx context.Context, rdb redis.UniversalClient, namespace, name string) (mutex, permits exercise, err error) {
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	mutex, err = playTwice(ctx, rdb, namespace, func(c *fairlock.Client) func(context.Context) (*fairlock.Lease, error) {
		return c.Mutex(name).Lock
	})
	if err == nil {
		permits, err = playTwice(ctx, rdb, namespace, func(c *fairlock.Client) func(context.Context) (*fairlock.Lease, error) {
			return func(ctx context.Context) (*fairlock.Lease, error) { return c.Semaphore(name, 2).Acquire(ctx, 2) }
		})
	}
	return mutex, permits, errors.Join(err, clean(ctx, rdb, namespace, name))
}

// playTwice plays again if no message came: the first may have been beaten by a beat.
func playTwice(
	ctx context.Context, rdb redis.UniversalClient, namespace string,
	lock func(*fairlock.Client) func(context.Context) (*fairlock.Lease, error),
) (exercise, error) {
	e, err := play(ctx, rdb, namespace, lock)
	if err != nil || e.handed || e.deaf != nil {
		return e, err
	}
	return play(ctx, rdb, namespace, lock)
}

// play has one client hold the lock and another wait for it, and the first release it.
func play(
	ctx context.Context, rdb redis.UniversalClient, namespace string,
	lock func(*fairlock.Client) func(context.Context) (*fairlock.Lease, error),
) (e exercise, err error) {
	queued, up, granted := make(chan struct{}, 1), make(chan error, 1), make(chan fairlock.GrantedInfo, 1)
	silent := slog.New(slog.DiscardHandler)
	holder, err := fairlock.New(rdb, fairlock.Config{Namespace: namespace, Logger: silent})
	if err != nil {
		return e, err
	}
	defer holder.Close()
	waiter, err := fairlock.New(rdb, fairlock.Config{Namespace: namespace, Logger: silent, Trace: &fairlock.Trace{
		Queued:       func(fairlock.QueuedInfo) { offer(queued, struct{}{}) },
		Subscription: func(i fairlock.SubscriptionInfo) { offer(up, i.Err) },
		Granted:      func(i fairlock.GrantedInfo) { offer(granted, i) },
	}})
	if err != nil {
		return e, err
	}
	defer waiter.Close()

	start := time.Now()
	held, err := lock(holder)(ctx)
	if err != nil {
		return e, err
	}
	e.took = time.Since(start)
	if err := held.Renew(ctx); err != nil {
		return e, errors.Join(err, held.Unlock(ctx))
	}

	type result struct {
		lease *fairlock.Lease
		err   error
		at    time.Time
	}
	got := make(chan result, 1)
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() { // ends with waiting, and the waiter's Close waits for it
		lease, err := lock(waiter)(waiting)
		got <- result{lease, err, time.Now()}
	}()
	var next result
	select {
	case <-queued:
		e.deaf = comesUp(ctx, up)
		start = time.Now()
		err = held.Unlock(ctx)
		next = <-got
	case next = <-got: // not even queued
		err = held.Unlock(ctx)
	}
	if err = errors.Join(err, next.err); err != nil {
		if next.lease != nil {
			err = errors.Join(err, next.lease.Unlock(ctx))
		}
		return e, err
	}
	e.handover, e.handed = next.at.Sub(start), (<-granted).Handoff
	return e, next.lease.Unlock(ctx)
}

// offer sends, if there is room.
func offer[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

// comesUp waits for the subscription.
func comesUp(ctx context.Context, up <-chan error) error {
	select {
	case err := <-up:
		return err
	case <-time.After(subscribing):
		return errors.New("the subscription did not come up")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// clean deletes what is left, which is the fences. Nobody knows the name but this process.
func clean(ctx context.Context, rdb redis.UniversalClient, namespace, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	m, s := lua.MutexKeys(namespace, name), lua.SemaphoreKeys(namespace, name)
	err := rdb.Del(ctx, m.Queue, m.Heartbeats, m.Tombstones, m.Number, m.Lock,
		s.Queue, s.Heartbeats, s.Tombstones, s.Number, s.Permits, s.Holders).Err()
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

func locked(mutex, permits exercise) Finding {
	return ok("taken in %s, renewed, handed over, given back: a mutex and a semaphore; nothing is left",
		brief(max(mutex.took, permits.took))).with(map[string]any{
		"lock_us": mutex.took.Microseconds(), "semaphore_lock_us": permits.took.Microseconds(),
	})
}

func wakes(mutex, permits exercise) Finding {
	slowest := max(mutex.handover, permits.handover)
	values := map[string]any{"handover_us": mutex.handover.Microseconds(), "semaphore_handover_us": permits.handover.Microseconds()}
	if mutex.handed && permits.handed {
		return ok("a waiter was in %s after the release", brief(slowest)).with(values)
	}
	why := ""
	if err := cmp.Or(mutex.deaf, permits.deaf); err != nil {
		why = ": " + oneLine(err)
	}
	return warn("see rights; else look for what drops idle or Pub/Sub connections between here and the server",
		"no message came, and a waiter was in only after %s, by a beat%s", brief(slowest), why).with(values)
}
