package script_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// crowd is a keyed semaphore with many holders and waiters, which are there without requests.
type crowd struct {
	permits        int
	holders, waits int
	keys           int // of the waiters, each also of a holder as far as there are so many
	limit          int
	at             int64 // the server's time, in µs: the first holder's fence is one above
	ended, expired bool  // leases have ended; waiters have expired
}

func (c crowd) token(name string, n int) token.Token {
	return keyedToken(name, tokens.Terms{TTL: time.Hour, Weight: 1, Permits: c.permits, Key: fmt.Sprint("k", n%c.keys),
		KeyLimit: c.limit, Share: 1}, n+1)
}

// put writes it to Redis.
func (c crowd) put(t testing.TB, m *keyedMachine) {
	t.Helper()
	pipe := m.rdb.Pipeline()
	held, first, now := map[int]int{}, map[int]bool{}, c.at
	pipe.Set(ctx, m.keys["number"], fmt.Sprint("2 ", now+1_000_000, " 3600000000 ", now), time.Hour)
	for i := range c.holders {
		ends := now + time.Hour.Microseconds()
		if c.ended {
			ends = now - 1
		}
		pipe.Do(ctx, "ZADD", m.keys["permits"], ends, c.token("h", i).Text())
		pipe.HSet(ctx, m.keys["holders"], c.token("h", i).Text(), now+int64(i)+1)
		held[i%c.keys]++
	}
	for key, n := range held {
		pipe.HSet(ctx, m.keys["holders"], fmt.Sprint("=k", key), fmt.Sprint(n, " ", now+1))
	}
	pipe.HSet(ctx, m.keys["holders"], "used", c.holders, "fence", now+int64(c.holders))
	members := map[string][]redis.Z{} // of sorted sets, which take a thousand at once
	add := func(set string, score int64, member string) {
		members[set] = append(members[set], redis.Z{Score: float64(score), Member: member})
	}
	for i := range c.waits {
		key, ticket, text := fmt.Sprint("k", i%c.keys), now+int64(i)+1, c.token("w", i).Text()
		expires := 2 * time.Hour.Microseconds()
		if c.expired {
			expires = 1
		}
		add("queue", ticket, text)
		add("heartbeats", expires, text)
		add("lines", 0, fmt.Sprintf("%s %016d %s", key, ticket, text))
		if !first[i%c.keys] {
			first[i%c.keys] = true
			add("lines", 0, fmt.Sprintf("%s  %016d 0", key, ticket))
			add("turns", int64(held[i%c.keys]), fmt.Sprintf("%016d %s", ticket, key))
		}
	}
	for set, all := range members {
		for some := range slices.Chunk(all, 1000) {
			pipe.ZAdd(ctx, m.keys[set], some...)
		}
	}
	for name, key := range m.keys {
		if name != "number" {
			pipe.PExpire(ctx, key, 2*time.Hour)
		}
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
}

// requests are one of each kind.
func (c crowd) requests(lock script.Lock) map[string]func() error {
	var beats []token.Token
	var leaving []script.Leaving
	for i := range min(script.MaxHeartbeat, c.waits) {
		if beats = append(beats, c.token("w", i)); i < script.MaxLeave {
			leaving = append(leaving, script.Leaving{Token: c.token("w", i), Tombstone: true})
		}
	}
	newcomer := c.token("n", 1_000_000*c.keys)
	stranger := keyedToken("n", tokens.Terms{TTL: time.Hour, Weight: 1, Permits: c.permits, Key: "new", Share: 1}, 1)
	return map[string]func() error{
		"try":                func() error { return last(lock.Acquire(ctx, script.Request{Token: newcomer, Try: true})) },
		"try of another key": func() error { return last(lock.Acquire(ctx, script.Request{Token: stranger, Try: true})) },
		"join": func() error {
			return last(lock.Acquire(ctx, script.Request{Token: newcomer, WaiterTTL: waiterTTL, MaxLine: 1 << 30}))
		},
		"return": func() error {
			return last(lock.Acquire(ctx, script.Request{Token: newcomer, WaiterTTL: waiterTTL, Ticket: script.Ticket(c.at)}))
		},
		"release": func() error { return last(lock.Release(ctx, c.token("h", 0), uint64(c.at)+1, script.Rest{})) },
		"rest": func() error {
			return last(lock.Release(ctx, c.token("h", 0), uint64(c.at)+1, script.Rest{Left: time.Hour, By: c.token("r", 0)}))
		},
		"leave":     func() error { return last(lock.Leave(ctx, script.Rest{}, leaving...)) },
		"force":     func() error { return last(lock.ForceRelease(ctx, 1<<53-1, 0)) },
		"heartbeat": func() error { return last(lock.Heartbeat(ctx, waiterTTL, beats)) },
		"resize":    func() error { return last(lock.Resize(ctx, c.permits+1000)) },
		"resume": func() error {
			return last(resumed(lock.Resume(ctx, c.token("h", 0), uint64(c.at)+1, time.Hour, c.token("r", 0))))
		},
		"renew": func() error { return last(lock.Renew(ctx, c.token("h", 0), time.Hour, uint64(c.at)+1)) },
	}
}

var countedCalls = instrument(`local cost = 0
	local function call(...)
		cost = cost + 1
		return real(...)
	end`, "local reply = script(); real('SET', string.match(KEYS[1], '^(.-):{') .. ':cost', cost); return reply")

// No script runs more commands than its bounds allow, with 30,000 keys of one waiter each and with 30,000 waiters of
// one key.
func TestKeyed_CostDoesNotGrow(t *testing.T) {
	for name, c := range map[string]crowd{
		"free":              {permits: 1500, holders: 100},
		"at their limits":   {permits: 5000, holders: 3000, limit: 1},
		"ended and expired": {permits: 1000, holders: 3000, ended: true, expired: true},
	} {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", one key ", single), func(t *testing.T) {
				t.Parallel()
				costs := map[string][]int{}
				for _, n := range []int{3000, 30_000} {
					c := c
					if c.waits, c.keys = n, n; single {
						c.keys = 1
					}
					m := newKeyed(t, real(t), c.permits)
					c.at = time.Now().UnixMicro()
					c.put(t, m)
					m.user = instrumentedBy(m.rdb, countedCalls)
					requests := c.requests(m.lock())
					for _, verb := range slices.Sorted(maps.Keys(requests)) { // one after the other
						require.NoError(t, requests[verb](), verb)
						cost, err := m.rdb.Get(ctx, m.namespace+":cost").Int()
						require.NoError(t, err)
						costs[verb] = append(costs[verb], cost)
					}
					m.lose()
				}
				for verb, cost := range costs {
					t.Logf("%-18s %5d %5d", verb, cost[0], cost[1])
					assert.Less(t, slices.Max(cost), 2000, verb)
				}
			})
		}
	}
}

// BenchmarkKeyedCrowd measures the memory of a waiter, and the processor time of a waiter that joins and a release that
// grants the lock, while many wait.
func BenchmarkKeyedCrowd(b *testing.B) {
	for name, keys := range map[string]int{"100,000 keys": 100_000, "1,000 keys": 1000, "one key": 1} {
		b.Run(name, func(b *testing.B) {
			s := newReal(b, redistest.Start(b))
			m := newKeyed(b, s, 100)
			m.user = dispatch.NewDirect(s.rdb)
			c := crowd{permits: 100, holders: 100, waits: 100_000, keys: keys}
			info := func(section, field string) float64 {
				n, err := strconv.ParseFloat(redistest.Info(b, s.rdb, section, field), 64)
				require.NoError(b, err)
				return n
			}
			memory := info("memory", "used_memory")
			c.at = time.Now().UnixMicro()
			c.put(b, m)
			memory = info("memory", "used_memory") - memory
			held := []script.Grant{}
			for i := range c.holders {
				held = append(held, script.Grant{Token: c.token("h", i), Fence: uint64(c.at + int64(i) + 1)})
			}
			cpu, n := info("cpu", "used_cpu_user"), 0
			for b.Loop() {
				n++
				_, err := m.lock().Acquire(ctx, script.Request{Token: c.token("n", n), WaiterTTL: time.Hour})
				require.NoError(b, err)
				reply, err := m.lock().Release(ctx, held[0].Token, held[0].Fence, script.Rest{})
				require.NoError(b, err)
				require.True(b, reply.Released)
				held = append(held[1:], reply.Grants...)
			}
			b.ReportMetric((info("cpu", "used_cpu_user")-cpu)*1e6/float64(n), "cpu-µs/pair")
			b.ReportMetric(memory/100_000, "B/waiter")
		})
	}
}

// A script that reaches a bound says so, and the next one goes on.
func TestKeyed_BoundsGoOn(t *testing.T) {
	for name, c := range map[string]crowd{
		"grants":              {permits: 1000, keys: 40, waits: 80, holders: 10},
		"keys at their limit": {permits: 1000, keys: 250, waits: 250, holders: 250, limit: 1},
		"leases":              {permits: 500, keys: 50, waits: 20, holders: 500, ended: true},
		"waiters":             {permits: 500, keys: 70, waits: 120, holders: 500, expired: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newKeyed(t, real(t), c.permits)
			c.at = m.clock
			c.put(t, m)
			m.once = name == "leases" // those that are left count as held, until a script removes them
			scripts := 1
			for more := true; more && scripts < 20; scripts++ {
				if m.once {
					var err error
					more, err = m.lock().Admit(ctx)
					require.NoError(t, err)
				} else {
					more = m.heartbeat(waiterTTL).RetryAfter == 0
				}
			}
			require.InDelta(t, 3.5, scripts, 1.5)
			s := m.read()
			require.Len(t, s.Holders, map[string]int{"grants": 90, "keys at their limit": 250, "leases": 320,
				"waiters": 500}[name])
			require.Len(t, s.Waiters, map[string]int{"keys at their limit": 250}[name])
			if c.limit > 0 {
				m.scenario("acquire Z1 -> granted")
			}
		})
	}
}
