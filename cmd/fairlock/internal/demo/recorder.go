package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
)

// Kinds of reports that the judge ignores.
const (
	kept   judge.Kind = "kept"   // a worker keeps what it was granted, as it was told: Weight
	failed judge.Kind = "failed" // something that should work did not: Note
)

// report is what a client tells the recorder.
type report struct {
	judge.Event
	Note string `json:"note,omitempty"`
}

// remark is a line about what the demo does.
type remark struct {
	at   time.Duration // since the beginning
	text string
}

// recorder collects what happens. It is safe for concurrent use.
type recorder struct {
	capacity int // of what is contended for
	clock    func() int64
	began    int64

	mu      sync.Mutex
	events  []judge.Event    // guarded by mu
	killed  map[string]int64 // guarded by mu
	remarks []remark         // guarded by mu
	failure string           // guarded by mu; the last
	watches []*watch         // guarded by mu
}

// watch waits for one report.
type watch struct {
	match func(report) bool
	found chan report // has room for one
}

func newRecorder(capacity int, clock func() int64) *recorder {
	return &recorder{capacity: capacity, clock: clock, began: clock(), killed: map[string]int64{}}
}

// add records a report. What a client does after it was killed is not its doing any more: such reports are dropped.
func (r *recorder) add(rep report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, dead := r.killed[rep.Client]; dead && rep.At > at {
		return
	}
	if rep.Kind == failed {
		r.failure = rep.Client + ": " + rep.Note
		return
	}
	r.events = append(r.events, rep.Event)
	r.watches = slices.DeleteFunc(r.watches, func(w *watch) bool {
		hit := w.match(rep)
		if hit {
			w.found <- rep
		}
		return hit
	})
}

// kill records that a client dies now.
func (r *recorder) kill(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	r.killed[client] = now
	r.events = append(r.events, judge.Event{Kind: judge.Killed, Client: client, At: now})
}

// next returns a channel that gets the first report from now on that matches.
func (r *recorder) next(match func(report) bool) <-chan report {
	w := &watch{match, make(chan report, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches = append(r.watches, w)
	return w.found
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

func (r *recorder) elapsed() time.Duration { return time.Duration(r.clock() - r.began) }

// history returns the events up to some time. That of another process's may still be on the way.
func (r *recorder) history(until int64) []judge.Event {
	r.mu.Lock()
	all := slices.Clip(r.events)
	r.mu.Unlock()
	var some []judge.Event
	for _, e := range all {
		if e.At <= until {
			some = append(some, e)
		}
	}
	return some
}

// verdict judges everything recorded up to some time.
func (r *recorder) verdict(until int64) judge.Verdict {
	return judge.Judge(r.history(until), r.capacity)
}
