package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlock/fairlock-go/internal/history"
)

// pause lets a spectator see who holds and who waits before something happens.
const pause = 300 * time.Millisecond

// scenario lets the clients contend, and two of them crash.
type scenario struct {
	cfg   Config
	rec   *recorder
	setup *setup
}

// run plays everything. The error is ctx's if it ends before, or says what did not happen in time.
func (s scenario) run(ctx context.Context) error {
	order := rand.Perm(len(s.setup.clients))
	first, second, keeper := s.setup.clients[order[0]], s.setup.clients[order[1]], s.setup.clients[order[2]]
	for _, step := range []func() error{
		func() error { return s.contend(ctx) },
		func() error { return s.crashHolder(ctx, first) },
		func() error { return s.contend(ctx) },
		func() error { return s.crashWaiters(ctx, second, keeper) },
		func() error { return s.contend(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// contend is a third of the duration, from the first grant on.
func (s scenario) contend(ctx context.Context) error {
	granted := s.rec.next(func(e history.Event) bool { return e.Op == history.Granted })
	if _, err := s.await(ctx, granted, "grant"); err != nil {
		return err
	}
	sleep(ctx, s.cfg.Duration/3)
	return ctx.Err()
}

// crashHolder lets a client die while one of its workers holds the lock, or a share of it.
func (s scenario) crashHolder(ctx context.Context, victim client) error {
	weight, err := s.hold(ctx, victim, false)
	if err != nil {
		return err
	}
	s.rec.remark(s.name(victim) + " dies " + s.cfg.holding(weight))
	victim.crash()
	return s.awaitRecovery(ctx, victim, s.cfg.TTL)
}

// crashWaiters lets a client die while all its workers wait, because another one keeps everything meanwhile.
func (s scenario) crashWaiters(ctx context.Context, victim, keeper client) error {
	if _, err := s.hold(ctx, keeper, true); err != nil {
		return err
	}
	for deadline := time.Now().Add(s.cfg.limit()); s.rec.queued(victim.number()) < s.cfg.Workers; sleep(ctx, 10*time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		} else if time.Now().After(deadline) {
			return s.missing("queue of all workers of " + s.name(victim))
		}
	}
	s.rec.remark(s.name(victim) + " dies while its workers wait; what they are handed all the same, they keep for the rest of their patience")
	victim.crash()
	sleep(ctx, pause)
	keeper.letGo()
	return s.awaitRecovery(ctx, victim, s.cfg.WaiterTTL)
}

// awaitRecovery waits for a grant that was requested when a crash could not cost anything any more, and remarks what the
// crash has cost.
func (s scenario) awaitRecovery(ctx context.Context, victim client, ends time.Duration) error {
	over := s.rec.clock.now() + int64(ends)
	type call struct{ process, id int }
	requested := map[call]bool{}
	later := s.rec.next(func(e history.Event) bool {
		if e.Op == history.Request && e.At > over {
			requested[call{e.Process, e.Call}] = true
		}
		return e.Op == history.Granted && requested[call{e.Process, e.Call}]
	})
	if _, err := s.await(ctx, later, "grant after a crash"); err != nil {
		return err
	}
	for _, c := range s.rec.result(s.rec.clock.now()).Crashes {
		if c.Client == s.rec.name(victim.number()) {
			s.rec.remark(s.cfg.cost(c))
		}
	}
	return nil
}

// hold waits until a worker of a client holds the lock, or a share of it, and keeps it, and a little more. It returns
// how much that is.
func (s scenario) hold(ctx context.Context, c client, all bool) (int, error) {
	holds := s.rec.next(func(e history.Event) bool { return e.Op == keeps && e.Process == c.number() })
	c.keep(all)
	e, err := s.await(ctx, holds, "grant to "+s.name(c))
	if err != nil {
		return 0, err
	}
	sleep(ctx, pause)
	return e.Weight, ctx.Err()
}

func (s scenario) name(c client) string { return s.setup.short(s.rec.name(c.number())) }

// await waits for a report, within the limit.
func (s scenario) await(ctx context.Context, found <-chan history.Event, what string) (history.Event, error) {
	timer := time.NewTimer(s.cfg.limit())
	defer timer.Stop()
	select {
	case e := <-found:
		return e, nil
	case <-ctx.Done():
		return history.Event{}, ctx.Err()
	case <-timer.C:
		return history.Event{}, s.missing(what)
	}
}

// missing is the error that something did not happen in time.
func (s scenario) missing(what string) error {
	err := fmt.Errorf("no %s within %v", what, s.cfg.limit())
	if last := s.rec.lastFailure(); last != "" {
		err = fmt.Errorf("%w; last failure: %s", err, last)
	}
	return err
}
