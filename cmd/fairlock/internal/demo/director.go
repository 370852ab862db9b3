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
	if _, err := d.await(ctx, granted, "grant"); err != nil {
		return err
	}
	sleep(ctx, d.cfg.Duration/3)
	return ctx.Err()
}

// crashHolder has a client die while one of its workers holds the lock, or a share of it.
func (d director) crashHolder(ctx context.Context, victim player) error {
	weight, err := d.hold(ctx, victim, false)
	if err != nil {
		return err
	}
	d.rec.remark(d.cast.short(victim.name()) + " dies " + d.cfg.holding(weight))
	victim.crash()
	return d.aftermath(ctx, victim, d.cfg.TTL)
}

// crashWaiters has a client die while its workers only wait, because another one keeps everything meanwhile.
func (d director) crashWaiters(ctx context.Context, victim, keeper player) error {
	if _, err := d.hold(ctx, keeper, true); err != nil {
		return err
	}
	sleep(ctx, 2*d.cfg.Hold) // the victim's workers are done resting
	d.rec.remark(d.cast.short(victim.name()) + " dies while its workers wait; what they are handed all the same, they keep for the rest of their patience")
	victim.crash()
	sleep(ctx, pause)
	keeper.letGo()
	return d.aftermath(ctx, victim, d.cfg.Patience)
}

// aftermath waits until somebody is served who asked when a crash could not cost anything any more, and remarks what it
// has cost.
func (d director) aftermath(ctx context.Context, victim player, ends time.Duration) error {
	over := d.rec.clock() + int64(ends)
	later := d.rec.next(func(r report) bool { return r.Kind == judge.Granted && r.Asked > over })
	if _, err := d.await(ctx, later, "grant after a crash"); err != nil {
		return err
	}
	for _, c := range d.rec.verdict(d.rec.clock()).Crashes {
		if c.Client == victim.name() {
			d.rec.remark(d.cfg.cost(c))
		}
	}
	return nil
}

// hold waits until a worker of the player holds the lock, or a share of it, and keeps it, and a little more. It
// returns how much that is.
func (d director) hold(ctx context.Context, p player, all bool) (int, error) {
	holds := d.rec.next(func(r report) bool { return r.Kind == kept && r.Client == p.name() })
	p.keep(all)
	r, err := d.await(ctx, holds, "grant to "+d.cast.short(p.name()))
	if err != nil {
		return 0, err
	}
	sleep(ctx, pause)
	return r.Weight, ctx.Err()
}

// await waits for a report, within the limit.
func (d director) await(ctx context.Context, found <-chan report, what string) (report, error) {
	timer := time.NewTimer(d.cfg.limit())
	defer timer.Stop()
	select {
	case r := <-found:
		return r, nil
	case <-ctx.Done():
		return report{}, ctx.Err()
	case <-timer.C:
	}
	err := fmt.Errorf("no %s within %v", what, d.cfg.limit())
	if last := d.rec.lastFailure(); last != "" {
		err = fmt.Errorf("%w; last failure: %s", err, last)
	}
	return report{}, err
}
