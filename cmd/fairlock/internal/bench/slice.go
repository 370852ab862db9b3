package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// slice is a time in which one side of one workload is measured, and what was counted in it. An operation counts if it
// ends within the slice.
type slice struct {
	start   time.Time
	length  time.Duration // that it is to have
	took    time.Duration // that it had; set by close
	ops     atomic.Int64
	latency histogram

	calls atomic.Int64 // of each's f that have returned

	mu     sync.Mutex
	failed error // guarded by mu
}

func begin(length time.Duration) *slice { return &slice{start: time.Now(), length: length} }

// now is the time in the slice.
func (s *slice) now() time.Duration { return time.Since(s.start) }

// over reports whether it has ended, or has failed, or the user has had enough.
func (s *slice) over(ctx context.Context) bool {
	return s.now() >= s.length || ctx.Err() != nil || s.err() != nil
}

// op counts an operation that began then and has ended now, and how long it took.
func (s *slice) op(began time.Duration) {
	if now := s.now(); now < s.length {
		s.ops.Add(1)
		s.latency.add(now - began)
	}
}

// fail keeps the first error that is not the end of ctx.
func (s *slice) fail(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil && ctx.Err() == nil {
		s.failed = err
	}
}

func (s *slice) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// close ends it, perhaps before its time.
func (s *slice) close() { s.took = min(s.length, s.now()) }

// grace is how long what is under way may go on after the user has had enough, or something has failed. It takes a
// moment; only a server that does not answer needs more, and then who waits for a lock would wait for ever.
const grace = time.Second

// stalled is how long the slice may go on while no call of f returns: a lock whose holder has crashed is free again.
const stalled = fairlock.DefaultTTL + fairlock.DefaultWaiterTTL

// each runs f in n goroutines, again and again until the slice is over, and closes it. f's ctx ends one grace after ctx, or
// after the first error, or when no call returns any more: if Redis dies while the lock is handed over, everybody waits.
func (s *slice) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	wind := func() { time.AfterFunc(grace, cancel) }
	stop := context.AfterFunc(ctx, wind)
	defer stop()
	var all, watch sync.WaitGroup
	watch.Go(func() {
		for was := int64(-1); ; was = s.calls.Load() {
			if was == s.calls.Load() {
				s.fail(ctx, fmt.Errorf("nothing has happened for %v", stalled))
				cancel()
			}
			select {
			case <-time.After(stalled):
			case <-work.Done():
				return
			}
		}
	})
	for i := range n {
		all.Go(func() {
			for !s.over(ctx) {
				err := f(work, i)
				s.calls.Add(1)
				if err != nil {
					s.fail(ctx, err)
					wind()
					return
				}
			}
		})
	}
	all.Wait()
	s.close()
	cancel()
	watch.Wait()
}
