//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// shortGrace is how long CMD may take to end when the lock was force-released. Another client may hold it already.
const shortGrace = 500 * time.Millisecond

// stopped says in an error that we have ended CMD.
const stopped = "CMD was stopped"

// killTime is how long a killed CMD may take to end.
const killTime = 2 * time.Second

// hold runs CMD while the lease lasts, and returns its exit code. An error says why it was not run or was stopped.
func (r *runner) hold(ctx context.Context, c *connection, lease *fairlock.Lease, path string, env []string) (int,
	error) {
	signals := make(chan os.Signal, 16)
	listen(signals, forwarded...)
	defer signal.Stop(signals)
	signal.Stop(interrupts)
	defer listenForInterrupts() // before Stop, so that no signal is lost
	if ctx.Err() != nil {       // a signal that came while the lock was granted
		return 0, context.Cause(ctx)
	}
	if time.Until(r.last(lease)) < r.ttl/3 { // a handoff grants the lock for a short time
		if err := lease.Renew(ctx); err != nil {
			return 0, late(err)
		}
	}
	target, err := c.target()
	if err != nil {
		return 0, err
	}
	g, err := startGuard(ward{target.url.String(), c.tls, c.prefix(), r.id(), lease.Token().Text(), lease.Fence(), r.ttl,
		r.kept})
	if err != nil {
		return 0, fmt.Errorf("guard: %w", err)
	}
	defer g.stop()
	cmd, err := startChild(path, r.argv, append(env,
		envFence+"="+strconv.FormatUint(lease.Fence(), 10), envHandle+"="+string(lease.Handle())))
	if err != nil {
		return 0, unstartable(r.argv[0], err)
	}
	g.until(r.killAt(lease), cmd.pid)
	cmd.begin()
	return r.accompany(cmd, g, lease, signals)
}

// Before the lease's deadline, CMD gets SIGTERM (last) and SIGKILL (killAt). If we are late, as on a busy machine, the
// guard kills it. The deadline itself is before the end of the lease in Redis.
func (r *runner) last(l *fairlock.Lease) time.Time { return r.killAt(l).Add(-r.grace) }
func (r *runner) killAt(l *fairlock.Lease) time.Time {
	return l.Deadline().Add(-max(r.ttl/20, 10*time.Millisecond))
}

// accompany forwards signals until CMD ends or must be ended.
func (r *runner) accompany(c *child, g *guard, lease *fairlock.Lease, signals <-chan os.Signal) (int, error) {
	look := time.NewTimer(0)
	defer look.Stop()
	looked := time.Now()
	// fairlock itself was stopped: it should have looked far earlier
	stood := func() bool { return time.Since(looked) > r.ttl/3 }
	for {
		select {
		case s := <-c.ended:
			c.over(s)
			if code := codeOf(s); code != exitKilled || !g.struck() {
				return code, nil
			}
			r.paused = g.late || stood()
			return 0, r.gone(lease.Err(), stopped)
		case <-lease.Done():
			return 0, r.end(c, lease, signals)
		case <-look.C:
			r.paused, looked = stood(), time.Now()
			left := time.Until(r.last(lease))
			if left <= 0 {
				return 0, r.end(c, lease, signals)
			}
			g.revive()
			g.until(r.killAt(lease), c.pid)
			look.Reset(min(left, r.ttl/10))
		case s := <-signals:
			if err := c.forward(s); err != nil {
				say(os.Stderr, err, "run")
			}
		case by := <-c.stopped:
			c.suspended(by)
		}
	}
}

// end sends CMD SIGTERM, and then kills its process group. Its error says why.
func (r *runner) end(c *child, lease *fairlock.Lease, signals <-chan os.Signal) error {
	lost, grace := lease.Err(), min(r.grace, time.Until(r.killAt(lease)))
	if errors.Is(lost, fairlock.ErrRevoked) {
		grace = min(r.grace, shortGrace)
	}
	over, ended := time.Now().Add(grace), false
	if grace > 0 {
		c.terminate()
		if ended = c.await(signals, grace); ended {
			emptied(c.pid, time.Until(over))
		}
	}
	refused := killGroup(c.pid)
	if refused != nil && emptied(c.pid, killTime) { // some systems refuse to kill a group that has ended
		refused = nil
	}
	r.stillRuns = refused != nil || !ended && !c.await(signals, killTime)
	what := stopped
	switch {
	case refused != nil:
		what = "CMD COULD NOT BE STOPPED: " + refused.Error()
	case r.stillRuns:
		what = "CMD WAS KILLED AND STILL RUNS"
	case lost == nil: // all that CMD has started must be dead before the lock is released
		emptied(c.pid, time.Until(lease.Deadline()))
	}
	return r.gone(lost, what)
}

// gone returns the error for a lease that has ended or is about to. lost says why, cmd what became of CMD.
func (r *runner) gone(lost error, cmd string) error {
	name := inspect.Plain(r.name)
	if lost != nil {
		return withCode(exitLost, fmt.Errorf("%s: %w; %s", name, lost, cmd))
	}
	why := errors.New("no answer")
	if failure := r.failure.Load(); failure != nil {
		why = *failure
	}
	if r.paused {
		why = errors.New("fairlock was stopped for too long")
	}
	return withCode(exitLost, fmt.Errorf("%s could not be renewed: %w; %s before the lease ended", name, why, cmd))
}

// await waits for CMD's end, and reports whether it came in time. It drops signals, because CMD is ending already.
func (c *child) await(signals <-chan os.Signal, within time.Duration) bool {
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		select {
		case s := <-c.ended:
			c.over(s)
			return true
		case <-limit.C:
			return false
		case <-signals:
		}
	}
}

// renewed stores the error of the latest renewal.
func (r *runner) renewed(info fairlock.RenewedInfo) {
	r.failure.Store(nil)
	if info.Err != nil {
		r.failure.Store(&info.Err)
	}
}
