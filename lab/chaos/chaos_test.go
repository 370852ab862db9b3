//go:build unix

package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/lab/chaos"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/monitor"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/skew"
)

func TestMain(m *testing.M) {
	if !chaos.Child() {
		os.Exit(m.Run())
	}
}

// shortForm is about how long all scenarios take once.
const shortForm = 160 * time.Second

// TestChaos runs every scenario, for about as long as CHAOS_TIME says in all, with the seed CHAOS_SEED or a random one.
//
//fairlock:promise Exclusion
//fairlock:promise Order
//fairlock:promise Fences
//fairlock:promise Unlock
//fairlock:promise Nothing stays
//fairlock:fault The primary is killed, and Sentinel promotes a replica
//fairlock:fault A slot of a cluster moves
//fairlock:fault Faults at random: processes, links, redis-server and its clock fail at random for as long as one likes, primaries fail over and slots move; exclusion, order, fences and results hold, only documented errors are returned, and in the end every lock can be taken within a TTL or WaiterTTL and a second
func TestChaos(t *testing.T) {
	text := os.Getenv("CHAOS_TIME")
	if text == "" {
		t.Skip("CHAOS_TIME is not set: make chaos sets it")
	}
	total, err := time.ParseDuration(text)
	require.NoError(t, err, "CHAOS_TIME")
	require.GreaterOrEqual(t, total, shortForm, "CHAOS_TIME: in less than the short form too little can happen")
	seed := rand.Uint64N(1e9)
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "CHAOS_SEED")
	}
	t.Logf("CHAOS_SEED=%d", seed)
	scale := total.Seconds() / shortForm.Seconds()
	rounds := max(1, int(scale/2))
	for round := range rounds {
		for _, s := range chaos.Scenarios {
			t.Run(fmt.Sprintf("%d/%s", round+1, s.Name), func(t *testing.T) {
				s.Test(t, seed+uint64(round), scale/float64(rounds))
			})
		}
	}
}

// TestMonitor runs scripts that break a mutex, and expects the monitor, or the rule Server of the history, to notice.
func TestMonitor(t *testing.T) {
	const grant, release = "redis.call('SET', KEYS[2], ARGV[2] .. ' 7', 'PX', 60000) ", "redis.call('DEL', KEYS[2]) "
	const queue = "redis.call('ZADD', KEYS[4], '9000000000000000', ARGV[2]) redis.call('ZADD', KEYS[3], 5, ARGV[2]) "
	type script struct{ token, text string }
	holds := script{"a", grant}
	for name, x := range map[string]struct {
		scripts []script
		want    string
	}{
		"right":               {[]script{holds, {"b", queue}, {"a", release + "redis.call('SET', KEYS[2], 'b 8', 'PX', 60000) "}}, ""},
		"grants what is held": {[]script{holds, {"b", grant}}, "b was granted the lock; 2 of 1 are held then"},
		"queues its holder": {[]script{holds, {"b", "redis.call('ZADD', KEYS[3], 5, 'a') "}},
			"a joined the queue while it holds the lock"},
		"drops a waiter":            {[]script{{"a", queue}, {"b", "redis.call('ZREM', KEYS[3], 'a') "}}, "a was dropped at"},
		"releases what others hold": {[]script{holds, {"b", release}}, "b releases the lock, which a holds"},
		"renews what others hold": {[]script{holds, {"b", "redis.call('PEXPIRE', KEYS[2], 70000) "}},
			"b renews the lock, which a holds"},
		"grants to one that left": {[]script{holds, {"a", release}, holds}, "a is granted the lock, which it has released"},
		"queues one that left": {[]script{holds, {"a", release}, {"a", "redis.call('ZADD', KEYS[3], 5, 'a') "}},
			"a has released the lock and joins"},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			m, err := monitor.Start(server.Network(), server.Addr(), time.Minute, func() int64 { return 1 })
			require.NoError(t, err)
			keys := []string{"f:{x}:number", "f:{x}:lock", "f:{x}:queue", "f:{x}:heartbeats", "f:{x}:tombstones"}
			for _, s := range x.scripts {
				require.NoError(t, server.Client().Eval(t.Context(), s.text+"return 1", keys, 600_000, s.token).Err())
			}
			record := m.Close()
			var run history.Run
			for _, s := range record.Seen {
				run.Server = append(run.Server, s.ServerEvent)
			}
			wrong := record.Faults
			for _, v := range history.Check(nil, run).Violations {
				if v.Rule == history.Server {
					wrong = append(wrong, v.Text)
				}
			}
			if x.want == "" {
				require.Empty(t, wrong)
				require.Len(t, record.Seen, 5, "owns, keeps, joins, ends, owns")
				return
			}
			require.Len(t, wrong, 1)
			require.Contains(t, wrong[0], x.want)
		})
	}
}

// Each waiter of a queue is granted the lock once, in order, though the server's clock steps, stalls or restarts
// meanwhile: CHAOS_TIME=1m go test -run TestOrder -v
//
//fairlock:promise Order
func TestOrder(t *testing.T) {
	if os.Getenv("CHAOS_TIME") == "" {
		t.Skip("no CHAOS_TIME")
	}
	for name, disturb := range map[string]func(*redistest.Server, *skew.Clock){
		"the clock steps by 10 s": func(_ *redistest.Server, clock *skew.Clock) {
			assert.NoError(t, clock.Step(10*time.Second))
		},
		"restart, 3 s down": func(s *redistest.Server, _ *skew.Clock) {
			s.Shutdown()
			time.Sleep(bounds.MinWaiterTTL) // down for as long as the waiters' tickets last
			s.Run()
		},
		"ten stalls": func(s *redistest.Server, _ *skew.Clock) {
			for i := range 10 {
				s.Pause()
				time.Sleep(time.Second/2 + time.Duration(i)*833*time.Millisecond) // 0.5 to 8 s
				s.Continue()
				time.Sleep(time.Second) // a heartbeat of each client
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock, err := skew.New(t.TempDir())
			require.NoError(t, err)
			defer func() { assert.NoError(t, clock.Close()) }()
			for name, value := range clock.Env() {
				t.Setenv(name, value)
			}
			s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			var mu sync.Mutex
			tickets := map[uint64]uint64{} // by fence
			var clients [4]*fairlock.Client
			for i := range clients {
				clients[i], err = fairlock.New(s.Client(), fairlock.Config{
					WaiterTTL: bounds.MinWaiterTTL, Logger: slog.New(slog.DiscardHandler),
					Trace: &fairlock.Trace{Granted: func(g fairlock.GrantedInfo) {
						mu.Lock()
						defer mu.Unlock()
						tickets[g.Fence] = g.Ticket
					}},
				})
				require.NoError(t, err)
				defer clients[i].Close()
			}
			held, err := clients[0].Mutex("x", fairlock.WithTTL(time.Hour)).Lock(t.Context())
			require.NoError(t, err)
			var workers sync.WaitGroup
			for i := range 200 {
				workers.Go(func() {
					time.Sleep(time.Duration(3-i%4) * time.Second / 4) // the clients' heartbeats are apart
					assert.NoError(t, clients[i%4].Mutex("x").Do(t.Context(), func(context.Context) error {
						time.Sleep(2 * time.Millisecond) // uses the lock
						return nil
					}))
				})
			}
			require.Eventually(t, func() bool {
				state, err := admin.New(s.Client(), "").Inspect(t.Context(), fairlock.ID{Kind: fairlock.KindMutex, Name: "x"}, 1, 1)
				return err == nil && state.Waiting == 200
			}, time.Minute, 10*time.Millisecond)
			disturb(s, clock)
			require.NoError(t, held.Unlock(t.Context()))
			workers.Wait()
			fences := slices.SortedFunc(maps.Keys(tickets), func(a, b uint64) int { return cmp.Compare(tickets[a], tickets[b]) })
			assert.True(t, slices.IsSorted(fences), "tickets by fence: %v", tickets)
			assert.Len(t, fences, 201)
		})
	}
}
