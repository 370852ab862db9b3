package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/history"
)

// Reports that are no part of the history.
const (
	keeps   history.Op = "keeps"   // a worker keeps what it was granted, as it was told: Weight
	trouble history.Op = "trouble" // something that should work did not: Err
)

// remark is a line about what the demo does.
type remark struct {
	at   time.Duration // since the beginning
	text string
}

// recorder collects what happens. It is safe for concurrent use.
type recorder struct {
	run   history.Run
	clock clock
	name  func(process int) string // of a client
	began int64

	mu      sync.Mutex
	events  []history.Event // guarded by mu
	kills   map[int]int64   // guarded by mu
	remarks []remark        // guarded by mu
	failure string          // guarded by mu; the last
	watches []*watch        // guarded by mu
}

// watch waits for one report.
type watch struct {
	match func(history.Event) bool
	found chan history.Event // has room for one
}

func newRecorder(run history.Run, clock clock, name func(int) string) *recorder {
	return &recorder{run: run, clock: clock, name: name, began: clock.now(), kills: map[int]int64{}}
}

// add records a report. What a client reports after it was killed did not reach the server any more: it is dropped.
func (r *recorder) add(e history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, dead := r.kills[e.Process]; dead && e.At > at {
		return
	}
	switch e.Op {
	case trouble:
		r.failure = r.name(e.Process) + ": " + e.Err
		return
	case keeps:
	default:
		r.events = append(r.events, e)
	}
	r.watches = slices.DeleteFunc(r.watches, func(w *watch) bool {
		hit := w.match(e)
		if hit {
			w.found <- e
		}
		return hit
	})
}

// kill records that a client dies now.
func (r *recorder) kill(process int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kills[process] = r.clock.now()
}

// next returns a channel that gets the first report from now on that matches.
func (r *recorder) next(match func(history.Event) bool) <-chan history.Event {
	w := &watch{match, make(chan history.Event, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches = append(r.watches, w)
	return w.found
}

// queued counts the waiters of a client.
func (r *recorder) queued(process int) (n int) {
	all, _ := turns(r.history(never), nil)
	for _, t := range all {
		if t.process == process && t.queued != never && t.granted == never && t.gone == never {
			n++
		}
	}
	return n
}

func (r *recorder) remark(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remarks = append(r.remarks, remark{r.elapsed(), text})
}

func (r *recorder) lastFailure() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func (r *recorder) elapsed() time.Duration { return time.Duration(r.clock.now() - r.began) }

// history returns the events up to some time. Those of other processes may still be on their way.
func (r *recorder) history(until int64) []history.Event {
	r.mu.Lock()
	all := slices.Clip(r.events)
	r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(e history.Event) bool { return e.At > until })
}

// result checks everything recorded up to some time.
func (r *recorder) result(until int64) Result {
	events, run, kills := r.history(until), r.run, map[int]int64{}
	r.mu.Lock()
	for process, at := range r.kills {
		if at <= until {
			kills[process] = at
			run.Kills = append(run.Kills, history.Span{Process: process, From: at, To: at})
		}
	}
	r.mu.Unlock()
	return result(events, run, kills, r.name)
}
