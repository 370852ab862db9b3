package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	began := time.Now()
	require.NoError(t, run(t.Context(), "unix://"+redistest.Start(t).Addr(), "one", perSecond+1, &out))
	assert.Equal(t, perSecond+1, strings.Count(out.String(), "one sends message "))
	assert.GreaterOrEqual(t, time.Since(began), time.Second)
}

// record is of the calls that have started, in simulated time.
type record struct {
	mu    sync.Mutex
	calls []int           // guarded by mu
	at    []time.Duration // guarded by mu: since began
	began time.Time
}

func (r *record) start(call int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	r.at = append(r.at, time.Since(r.began))
}

// assertLimited fails the test if a window of a second has more starts than permits.
func (r *record) assertLimited(t *testing.T) {
	t.Helper()
	for i := perSecond; i < len(r.at); i++ {
		assert.GreaterOrEqual(t, r.at[i]-r.at[i-perSecond], time.Second, "the starts %d to %d: %v", i-perSecond+1, i+1, r.at)
	}
}

func limiters(server *fairlocktest.Server, n int) (all []limiter, clients []*fairlocktest.Client) {
	for range n {
		c := server.Client(fairlock.Config{})
		all, clients = append(all, newLimiter(c.Client, "provider", perSecond)), append(clients, c)
	}
	return all, clients
}

// Three processes make 40 calls, each of which takes 3 s. Five start each second, in the order in which they came.
func TestLimiter_FiveStartsASecondInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		all, _ := limiters(server, 3)
		r := record{began: time.Now()}
		var wg sync.WaitGroup
		var order []int
		for call := range 40 {
			order = append(order, call)
			wg.Go(func() {
				assert.NoError(t, all[call*7%3].do(t.Context(), func(context.Context) error {
					r.start(call)
					time.Sleep(3 * time.Second)
					return nil
				}))
			})
			time.Sleep(10 * time.Millisecond) // it has arrived at Redis, and later calls start at later times, too
		}
		wg.Wait()
		assert.Equal(t, order, r.calls)
		r.assertLimited(t)
		for i, at := range r.at {
			assert.Equal(t, time.Duration(i/perSecond), at/time.Second, "no second is left unused")
			assert.Less(t, at%time.Second, 100*time.Millisecond)
		}
		server.Semaphore("provider", perSecond).WaitFree()
	})
}

// Requests and replies are late by up to a second, calls come at random, and a process crashes: the limit holds.
func TestLimiter_Latency(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			server := fairlocktest.NewServer(t)
			all, clients := limiters(server, 3)
			for i, c := range clients {
				c.Link.Jitter(500*time.Millisecond, rand.New(rand.NewPCG(seed, uint64(i+1))))
			}
			r := record{began: time.Now()}
			var wg sync.WaitGroup
			for call := range 60 {
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
				wg.Go(func() {
					if all[call%3].do(t.Context(), func(context.Context) error { r.start(call); return nil }) != nil {
						assert.Equal(t, 0, call%3, "only the process that has crashed has errors")
					}
				})
				if call == 20 {
					clients[0].Crash()
				}
			}
			wg.Wait()
			assert.GreaterOrEqual(t, len(r.at), 40)
			r.assertLimited(t)
		})
	}
}
