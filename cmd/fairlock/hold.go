package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/fairlock"
)

// hold runs CMD while the lease lasts, and returns its exit code. An error says why it was not run or was stopped.
func (r *runner) hold(ctx context.Context, lease *fairlock.Lease, path string, env []string) (int, error) {
	signals := make(chan os.Signal, 16)
	listen(signals, forwarded...)
	defer signal.Stop(signals)
	signal.Stop(interrupts)
	defer listenForInterrupts() // before Stop: no signal is without somebody who takes it
	if ctx.Err() != nil {       // a signal that came while the lock was granted
		return 0, context.Cause(ctx)
	}
	if time.Until(r.last(lease)) < r.ttl/3 { // it was handed over for a short time
		if err := lease.Renew(ctx); err != nil {
			return 0, late(err)
		}
	}
	g, err := startGuard()
	if err != nil {
		return 0, fmt.Errorf("guard: %w", err)
	}
	defer g.stop()
	c, err := startChild(path, r.argv, append(env, r.variables(lease)...))
	if err != nil {
		return 0, unstartable(r.argv[0], err)
	}
	g.until(r.killAt(lease), c.pid)
	c.begin()
	return r.accompany(c, g, lease, signals)
}

// Before the lease's deadline, CMD gets SIGTERM (last), and SIGKILL (killAt), by the guard if not by us. The deadline
// itself is before the end of the lease in Redis.
func (r *runner) last(l *fairlock.Lease) time.Time   { return r.killAt(l).Add(-r.grace) }
func (r *runner) killAt(l *fairlock.Lease) time.Time { return l.Deadline().Add(-r.lead()) }

// lead is how long before the deadline CMD is killed: on a busy machine, it takes some time until we are woken for that.
func (r *runner) lead() time.Duration { return max(r.ttl/20, 10*time.Millisecond) }

// accompany passes signals on until CMD ends, or has to.
func (r *runner) accompany(c *child, g *guard, lease *fairlock.Lease, signals <-chan os.Signal) (int, error) {
	look := time.NewTimer(0)
	defer look.Stop()
	looked := time.Now()
	for {
		select {
		case s := <-c.ended:
			c.over(s)
			if c.refused != nil {
				return 0, unstartable(r.argv[0], c.refused)
			}
			if code := codeOf(s); code != exitKilled || !g.struck() {
				return code, nil
			}
			r.paused = g.late || r.stood(looked)
			return 0, r.gone(lease.Err(), stopped)
		case <-lease.Done():
			return 0, r.end(c, lease, signals)
		case <-look.C:
			r.paused, looked = r.stood(looked), time.Now()
			left := time.Until(r.last(lease))
			if left <= 0 {
				return 0, r.end(c, lease, signals)
			}
			g.revive()
			g.until(r.killAt(lease), c.pid)
			look.Reset(min(left, r.ttl/10))
		case s := <-signals:
			c.forward(s)
		case by := <-c.stopped:
			c.suspended(by)
		}
	}
}

// stood reports whether fairlock itself was stopped since it looked: that was far longer ago than it should be.
func (r *runner) stood(looked time.Time) bool { return time.Since(looked) > r.ttl/3 }

// patience is how long CMD may take to end.
func (r *runner) patience(lease *fairlock.Lease) time.Duration {
	if errors.Is(lease.Err(), fairlock.ErrTaken) {
		return min(r.grace, shortGrace)
	}
	return min(r.grace, time.Until(r.killAt(lease)))
}

// end asks CMD to end and then kills what is left of it. Its error says why.
func (r *runner) end(c *child, lease *fairlock.Lease, signals <-chan os.Signal) error {
	lost, grace := lease.Err(), r.patience(lease)
	over := time.Now().Add(grace)
	ended := false
	if grace > 0 {
		c.terminate()
		if ended = c.await(signals, grace); ended {
			c.empty(time.Until(over))
		}
	}
	refused := c.kill()
	if refused != nil && c.empty(undying) { // some systems refuse to kill who is dead
		refused = nil
	}
	r.undead = refused != nil || !ended && !c.await(signals, undying)
	what := stopped
	switch {
	case refused != nil:
		what = "CMD COULD NOT BE STOPPED: " + refused.Error()
	case r.undead:
		what = "CMD WAS KILLED AND IS STILL THERE"
	case lost == nil: // those whom it has started are to be dead before the lock is given back
		c.empty(time.Until(lease.Deadline()))
	}
	return r.gone(lost, what)
}

// gone is the error for a lease that is over, and lost says why, or is about to be, and for what became of CMD.
func (r *runner) gone(lost error, cmd string) error {
	name := view.Plain(r.name)
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

// await waits for CMD's end, and reports whether it came in time. Signals do no good any more.
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

// renewed remembers what is wrong with renewals.
func (r *runner) renewed(info fairlock.RenewedInfo) {
	if info.Err == nil {
		r.failure.Store(nil)
		return
	}
	r.failure.Store(&info.Err)
}

// unstartable says why CMD could not be started, as sh(1) does: 127 if it is not there, its interpreter for example.
func unstartable(name string, err error) error {
	code := exitCannotRun
	if errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	reason := err
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		reason = no
	}
	return withCode(code, fmt.Errorf("CMD %s: %w", view.Plain(name), reason))
}
