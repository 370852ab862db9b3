package otelfairlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// gauge returns the value of a gauge for each lock that has one, summed over observers whose Name is the lock's name.
func gauge(t *testing.T, all []*observer, name string) map[string]int {
	t.Helper()
	sums := map[string]int{}
	for _, o := range all {
		data, _ := o.metrics(t)[name].Data.(metricdata.Sum[int64])
		for _, p := range data.DataPoints {
			lock, _ := p.Attributes.Value("fairlock.name")
			sums[lock.AsString()] += int(p.Value)
		}
	}
	return sums
}

// processes use three locks in all ways, each with a client and an observer of its own.
type processes struct {
	w *fairlocktest.World

	mu  sync.Mutex
	all []*observer // guarded by mu: also of clients that have crashed
}

// start makes a client, for a process that starts.
func (c *processes) start(t *testing.T) *fairlocktest.Client {
	t.Helper()
	o := observe(t, func(lock string) string { return lock })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, o)
	return c.w.Client(fairlock.Config{Trace: o.trace})
}

// use uses one lock once, in a way that is drawn.
func use(ctx context.Context, client *fairlocktest.Client, random *rand.Rand) error {
	m, s, rw := client.Mutex("m"), client.Semaphore("s", 2), client.RWMutex("rw")
	resume := m.Resume
	ctx, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(20_000))*time.Millisecond)
	defer cancel()
	var lease *fairlock.Lease
	var err error
	switch random.IntN(8) {
	case 0, 1:
		lease, err = m.Lock(ctx)
	case 2:
		lease, err = m.TryLock(ctx)
	case 3:
		lease, err = s.WithMaxWaiters(1).Acquire(ctx, 1)
		resume = s.Resume
	case 4:
		lease, err = s.Acquire(ctx, 2)
		resume = s.Resume
	case 5:
		lease, err = s.TryAcquire(ctx, 1+random.IntN(3)) // at most 2
		resume = s.Resume
	case 6:
		lease, err = rw.RLock(ctx)
		resume = rw.Resume
	case 7:
		lease, err = rw.WithMaxWait(second).Lock(ctx)
		resume = rw.Resume
	}
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(random.IntN(6_000)) * time.Millisecond)
	switch random.IntN(4) {
	case 0:
		_, err = resume(ctx, lease.Handle())
		return err // the first lease finds out, or not; the second is held until its client ends, or to the end of the test
	case 1:
		_, err = lease.Detach()
		return err
	default:
		return lease.Unlock(ctx)
	}
}

// After any faults, at rest, each gauge is what Inspect says of the clients that live. It is 0 when they have ended.
func TestMetrics_Faults(t *testing.T) {
	cfg := fairlocktest.ExploreConfig{Seeds: 6, Duration: 30 * time.Second, MaxOutage: 15 * time.Second}
	fairlocktest.Explore(t, cfg, func(t *testing.T, w *fairlocktest.World) {
		c := &processes{w: w}
		var mu sync.Mutex
		var living []*fairlocktest.Client
		var processes sync.WaitGroup
		for i := range 4 {
			processes.Go(func() {
				client := c.start(t)
				random := rand.New(rand.NewPCG(uint64(i), 0))
				for begin := time.Now(); time.Since(begin) < cfg.Duration; {
					if errors.Is(use(t.Context(), client, random), fairlock.ErrClosed) {
						client = c.start(t)
					}
					time.Sleep(time.Duration(random.IntN(1_000)) * time.Millisecond)
				}
				mu.Lock()
				defer mu.Unlock()
				living = append(living, client)
			})
		}
		processes.Wait()
		w.Heal()

		// Each client asks for each lock. One holds it then, or two, and the others wait.
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for _, client := range living {
			for _, lock := range []func(context.Context) (*fairlock.Lease, error){
				client.Mutex("m").Lock,
				func(ctx context.Context) (*fairlock.Lease, error) { return client.Semaphore("s", 2).Acquire(ctx, 1) },
				client.RWMutex("rw").RLock,
				client.RWMutex("rw").Lock,
			} {
				calls.Go(func() { _, _ = lock(ctx) })
			}
		}
		pass(time.Minute) // everything of the dead has expired, also if Redis's clock was stepped back
		leases, waiters := map[string]int{}, map[string]int{}
		for name, lock := range map[string]fairlocktest.Lock{
			"m": w.Server.Mutex("m"), "s": w.Server.Semaphore("s", 2), "rw": w.Server.RWMutex("rw"),
		} {
			state := lock.State()
			leases[name], waiters[name] = len(state.Holders), state.Waiting
			assert.NotZero(t, state.Waiting, "nobody waits for %s", name)
		}
		assert.Equal(t, leases, gauge(t, c.all, "fairlock.leases"))
		assert.Equal(t, waiters, gauge(t, c.all, "fairlock.waiters"))

		cancel()
		calls.Wait()
		for _, client := range living {
			require.NoError(t, client.Close())
		}
		synctest.Wait()
		none := map[string]int{"m": 0, "s": 0, "rw": 0}
		assert.Equal(t, none, gauge(t, c.all, "fairlock.leases"))
		assert.Equal(t, none, gauge(t, c.all, "fairlock.waiters"))
	})
}
