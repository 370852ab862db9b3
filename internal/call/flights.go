package call

import (
	"container/list"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/task"
)

const (
	// noReplyAfter is after how long without a reply a request has failed. It fails again each noReplyAgain after that,
	// which is longer than served: one request that hangs while others succeed is no outage.
	noReplyAfter, noReplyAgain = 2 * time.Second, 10 * time.Second
	// slow is for how long a request may be in flight until its master may be dead.
	slow = 500 * time.Millisecond
)

// flights are a client's requests that have no reply yet. One timer for all looks at those that hang, so that a request
// that is answered costs none.
type flights struct {
	tasks *task.Group
	clock clock.Clock
	// called when a request has had no reply for noReplyAfter, and each noReplyAgain after that
	noReply func(lock string)
	slow    func() time.Duration // called when one has had none for slow, and again after what it returns; nil: not at all

	mu    sync.Mutex
	all   list.List   // guarded by mu: of *flight
	timer clock.Timer // guarded by mu: calls look; nil if nothing was in flight when that was called last
	next  time.Time   // guarded by mu: when it does
}

// flight is a request without a reply.
type flight struct {
	lock            string
	hangsAt, slowAt time.Time // when noReply and slow are called next
}

// begin notes that a request for a lock is sent. The caller calls end when it has ended.
func (f *flights) begin(lock string) *list.Element {
	now := f.clock.Now()
	w := &flight{lock, now.Add(noReplyAfter), now.Add(slow)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setTimer(now, f.due(w))
	return f.all.PushBack(w)
}

func (f *flights) end(e *list.Element) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.Remove(e)
}

// due returns when something is due for a request next.
func (f *flights) due(w *flight) time.Time {
	if f.slow != nil && w.slowAt.Before(w.hangsAt) {
		return w.slowAt
	}
	return w.hangsAt
}

// setTimer has look called at that time, unless it will be called sooner. The caller holds mu.
func (f *flights) setTimer(now, at time.Time) {
	if f.timer != nil {
		if !at.Before(f.next) {
			return
		}
		f.timer.Stop()
	}
	f.timer, f.next = f.clock.AfterFunc(at.Sub(now), f.look), at
}

// look calls noReply and slow for the requests of which that is due.
func (f *flights) look() {
	t, err := f.tasks.Begin()
	if err != nil {
		return
	}
	defer t.End()
	now := f.clock.Now()
	var hanging []string
	var slow []*flight
	f.mu.Lock()
	for e := f.all.Front(); e != nil; e = e.Next() {
		w := e.Value.(*flight)
		if !now.Before(w.hangsAt) {
			hanging = append(hanging, w.lock)
			w.hangsAt = now.Add(noReplyAgain)
		}
		if f.slow != nil && !now.Before(w.slowAt) {
			slow = append(slow, w)
		}
	}
	f.mu.Unlock()
	for _, lock := range hanging {
		f.noReply(lock)
	}
	again := reloadInterval
	if len(slow) > 0 {
		again = f.slow()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range slow {
		w.slowAt = now.Add(again)
	}
	f.timer, now = nil, f.clock.Now()
	for e := f.all.Front(); e != nil; e = e.Next() {
		f.setTimer(now, f.due(e.Value.(*flight)))
	}
}

// close stops the timer. No request is in flight any more.
func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}
