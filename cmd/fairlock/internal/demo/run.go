package demo

import (
	"context"
	"io"
	"sync"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
)

// Run plays a demo whose configuration has been checked, shows it on out, and ends with a summary there. The error
// says why it could not be played; that ctx has ended is none, then the verdict is on what was played.
func Run(ctx context.Context, cfg Config, out io.Writer) (judge.Verdict, error) {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	clock := monotonic()
	if cfg.Redis != "" {
		clock = wall
	}
	rec := newRecorder(cfg.capacity(), clock)
	cast, err := assemble(cfg, rec)
	if err != nil {
		return judge.Verdict{}, err
	}
	stop := show(&observer{cfg: cfg, rec: rec, cast: cast}, out, quit)
	err = director{cfg, rec, cast}.run(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	took := rec.elapsed()
	faults := stop()
	cast.leave()
	if err == nil {
		err = faults
	}
	verdict := rec.verdict(rec.clock())
	_, _ = lipgloss.Fprint(out, cast.summary(cfg, verdict, took, err))
	return verdict, err
}

// show starts the display. The returned function ends it and returns what was wrong with it.
func show(o *observer, out io.Writer, quit func()) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	var tasks sync.WaitGroup
	var fault error
	tasks.Go(func() { o.look(ctx) })
	tasks.Go(func() { o.weigh(ctx) })
	tasks.Go(func() {
		if !o.cfg.Live {
			showLines(out, o.scene, over)
			return
		}
		if fault = showLive(out, o.scene, quit, over); fault != nil {
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

// monotonic is a clock for one process: it begins at the wall clock's time and runs on whatever happens to that.
func monotonic() func() int64 {
	base := time.Now()
	return func() int64 { return base.UnixNano() + int64(time.Since(base)) }
}

// wall is a clock that the processes of one machine share.
func wall() int64 { return time.Now().UnixNano() }
