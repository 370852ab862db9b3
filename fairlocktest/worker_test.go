package fairlocktest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A worker whose client has crashed is told by its ctx, and another one takes its place. Work ends when the faults have
// ended, and the calls under way.
func TestWorld_Work(t *testing.T) {
	quietly(t, func(t *testing.T, w *fairlocktest.World, _ *fairlocktest.Client) {
		began, enough, ended := time.Now(), make(chan struct{}), make(chan struct{})
		calls := make(chan string, 9)
		go func() {
			defer close(ended)
			w.Work(2, fairlock.Config{TTL: 5 * time.Second}, func(ctx context.Context, p *fairlocktest.Worker) error {
				calls <- fmt.Sprintf("%s at %v", p.Name(), time.Since(began).Round(time.Second))
				select {
				case <-enough:
				case <-ctx.Done():
					assert.ErrorContains(t, context.Cause(ctx), "has crashed")
					assert.Error(t, p.Busy(context.WithoutCancel(ctx)), "a dead process does no work")
				}
				return nil
			})
		}()
		time.Sleep(time.Minute)
		fairlocktest.Inject(w, fairlocktest.ClientCrash, 0, 1) // of client-1 to client-3; client-1 is the test's
		time.Sleep(time.Minute)
		w.Heal()
		time.Sleep(time.Minute)
		assert.Contains(t, w.Tried(), ", 1 crash")
		select {
		case <-ended:
			assert.Fail(t, "calls under way are waited for")
		default:
		}
		close(enough)
		<-ended
		close(calls)
		var all []string
		for call := range calls {
			all = append(all, call)
		}
		assert.ElementsMatch(t, []string{"client-2 at 0s", "client-3 at 0s", "client-4 at 1m1s"}, all)
	})
}

// Busy takes longer than TTL half of the time, by the clock of the process. It ends with its ctx.
func TestWorker_Busy(t *testing.T) {
	const ttl = 2 * time.Second
	quietly(t, func(t *testing.T, w *fairlocktest.World, _ *fairlocktest.Client) {
		long, once := 0, sync.Once{}
		w.Work(1, fairlock.Config{TTL: ttl}, func(ctx context.Context, p *fairlocktest.Worker) error {
			once.Do(func() {
				for range 1000 {
					before := time.Now()
					assert.NoError(t, p.Busy(ctx))
					took := time.Since(before)
					assert.True(t, took < ttl/4 || ttl <= took && took < 2*ttl, took)
					if took >= ttl {
						long++
					}
				}
				before := time.Now()
				fairlocktest.Inject(w, fairlocktest.ClientPause, time.Hour, 1)
				assert.NoError(t, p.Busy(ctx))
				assert.GreaterOrEqual(t, time.Since(before), time.Hour, "a paused process does no work")
				ended, cancel := context.WithCancelCause(ctx)
				cancel(assert.AnError)
				assert.Equal(t, assert.AnError, p.Busy(ended))
				go w.Heal()
			})
			return nil
		})
		assert.InDelta(t, 500, long, 80)
	})
}

// What Explore counts of leases. Handoffs, leases of one client, and leases that fit beside each other are no overlaps.
func TestWorld_Counts(t *testing.T) {
	quietly(t, func(t *testing.T, w *fairlocktest.World, one *fairlocktest.Client) {
		two := w.Client(fairlock.Config{})
		hold := func(lock func(context.Context) (*fairlock.Lease, error)) *fairlock.Lease {
			t.Helper()
			lease, err := lock(t.Context())
			require.NoError(t, err)
			return lease
		}
		permit := func(c *fairlocktest.Client) func(context.Context) (*fairlock.Lease, error) {
			return func(ctx context.Context) (*fairlock.Lease, error) { return c.Semaphore("s", 2).Acquire(ctx, 1) }
		}
		first := hold(one.Mutex("x").Lock)
		next := make(chan *fairlock.Lease)
		go func() { next <- hold(two.Mutex("x").Lock) }()
		w.Server.Mutex("x").WaitQueued(1)
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, (<-next).Unlock(t.Context()))
		for _, c := range []*fairlocktest.Client{one, two} {
			hold(c.RWMutex("r").RLock)
			hold(permit(c))
		}
		assert.Equal(t, "1 seed: 6 grants, 0 leases lost while held, 0 times two clients believed to hold one lock, 0 crashes"+
			"; no fault reached your code: let its work last longer than TTL", w.Tried())

		hold(one.Mutex("x").Lock)
		for _, l := range []fairlocktest.Lock{w.Server.Mutex("x"), w.Server.RWMutex("r"), w.Server.Semaphore("s", 2)} {
			l.Expire()
		}
		hold(two.Mutex("x").Lock)
		hold(one.RWMutex("r").Lock) // its client is a reader as well, and so is another one
		hold(permit(two))
		hold(permit(two))
		time.Sleep(time.Minute)
		assert.Equal(t, "1 seed: 11 grants, 5 leases lost while held, 3 times two clients believed to hold one lock, 0 crashes",
			w.Tried())
	})
}
