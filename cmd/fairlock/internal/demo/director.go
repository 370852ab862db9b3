package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
)

// pause lets a spectator see who holds and who waits before something happens.
const pause = 300 * time.Millisecond

// director lets the players contend and has two of them crash.
type director struct {
	cfg  Config
	rec  *recorder
	cast *cast
}

// run plays all scenes. The error is ctx's if it ends before, or says what did not happen in time.
func (d director) run(ctx context.Context) error {
	order := rand.Perm(len(d.cast.players))
	first, second, keeper := d.cast.players[order[0]], d.cast.players[order[1]], d.cast.players[order[2]]
	for _, scene := range []func() error{
		func() error { return d.contend(ctx) },
		func() error { return d.crashHolder(ctx, first) },
		func() error { return d.contend(ctx) },
		func() error { return d.crashWaiters(ctx, second, keeper) },
		func() error { return d.contend(ctx) },
	} {
		if err := scene(); err != nil {
			return err
		}
	}
	return nil
}

// contend is a third of the duration, from the first grant on.
func (d director) contend(ctx context.Context) error {
	granted := d.rec.next(func(r report) bool { return r.Kind == judge.Granted })
	if err := d.await(ctx, granted, "grant"); err != nil {
		return err
	}
	sleep(ctx, d.cfg.Duration/3)
	return ctx.Err()
}

// crashHolder has a client die while one of its workers holds the lock, and waits until the next one gets in.
func (d director) crashHolder(ctx context.Context, victim player) error {
	if err := d.hold(ctx, victim); err != nil {
		return err
	}
	next := d.rec.next(func(r report) bool { return r.Kind == judge.Granted && r.Client != victim.name() })
	d.rec.remark(d.cast.short(victim.name()) + " dies while it holds the lock")
	victim.crash()
	err := d.await(ctx, next, "grant after a holder's crash")
	d.report(victim, err)
	return err
}

// crashWaiters has a client die while its workers only wait, because another one keeps the lock meanwhile; and waits
// until somebody is served who asked afterwards, so that everybody before has been served or dropped.
func (d director) crashWaiters(ctx context.Context, victim, keeper player) error {
	if err := d.hold(ctx, keeper); err != nil {
		return err
	}
	sleep(ctx, 2*d.cfg.Hold) // the victim's workers are done resting
	d.rec.remark(d.cast.short(victim.name()) + " dies while its workers wait")
	victim.crash()
	died := d.rec.clock()
	later := d.rec.next(func(r report) bool { return r.Kind == judge.Granted && r.Asked > died })
	sleep(ctx, pause)
	keeper.letGo()
	err := d.await(ctx, later, "grant after a waiter's crash")
	d.report(victim, err)
	return err
}

// hold waits until a worker of the player holds the lock and keeps it, and a little more.
func (d director) hold(ctx context.Context, p player) error {
	holds := d.rec.next(func(r report) bool { return r.Kind == kept && r.Client == p.name() })
	p.keep()
	if err := d.await(ctx, holds, "grant to "+d.cast.short(p.name())); err != nil {
		return err
	}
	sleep(ctx, pause)
	return ctx.Err()
}

// report remarks what a crash has cost.
func (d director) report(victim player, err error) {
	if err != nil {
		return
	}
	for _, c := range d.rec.verdict().Crashes {
		if c.Client == victim.name() {
			d.rec.remark(d.cfg.cost(c))
		}
	}
}

// await waits for a report, within the limit.
func (d director) await(ctx context.Context, found <-chan report, what string) error {
	timer := time.NewTimer(d.cfg.limit())
	defer timer.Stop()
	select {
	case <-found:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	err := fmt.Errorf("no %s within %v", what, d.cfg.limit())
	if last := d.rec.lastFailure(); last != "" {
		err = fmt.Errorf("%w; last failure: %s", err, last)
	}
	return err
}
