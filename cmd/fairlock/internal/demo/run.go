package demo

import (
	"context"
	"io"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
)

// Run plays a demo whose configuration has been checked, shows it on out, and ends with a summary there. The error
// says why it could not be played; that ctx has ended is none, then the result is of what was played.
func Run(ctx context.Context, cfg Config, out io.Writer) (Result, error) {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	setup, rec, err := start(cfg)
	if err != nil {
		return Result{}, err
	}
	stop := show(&observer{cfg: cfg, rec: rec, setup: setup}, out, quit)
	err = scenario{cfg, rec, setup}.run(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	took := rec.elapsed()
	faults := stop()
	setup.stop()
	if err == nil {
		err = faults
	}
	result := rec.result(rec.clock.now())
	_, _ = lipgloss.Fprint(out, setup.summary(cfg, result, took, err))
	return result, err
}

// show starts the display. The returned function ends it and returns what was wrong with it.
func show(o *observer, out io.Writer, quit func()) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	var tasks sync.WaitGroup
	var fault error
	tasks.Go(func() { o.look(ctx) })
	tasks.Go(func() { o.check(ctx) })
	tasks.Go(func() {
		if !o.cfg.Live {
			showLines(out, o.snapshot, over)
			return
		}
		if fault = showLive(out, o.snapshot, quit, over); fault != nil {
			quit() // nobody sees it
		}
	})
	return func() error {
		close(over)
		cancel()
		tasks.Wait()
		return fault
	}
}

// clock converts times into those of events.
type clock func(time.Time) int64

func (c clock) now() int64 { return c(time.Now()) }

// monotonic is a clock for one process: it begins at the wall clock's time and does not step with it.
func monotonic() clock {
	base := time.Now()
	return func(t time.Time) int64 { return base.UnixNano() + int64(t.Sub(base)) }
}

// wall is a clock that the processes of one machine share.
func wall(t time.Time) int64 { return t.UnixNano() }
