package script_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// addWaiters puts n waiters q0, q1, … into the queue, without requests. They expire after d, or have expired.
func (m *machine) addWaiters(n int, d time.Duration) {
	m.t.Helper()
	until := max(time.Hour+d, 0).Microseconds()
	queue, heartbeats := []any{"ZADD", m.keys["queue"]}, []any{"ZADD", m.keys["heartbeats"]}
	for i := range n {
		ticket := m.clock + int64(i)
		queue = append(queue, ticket, m.queued(i).Text())
		heartbeats = append(heartbeats, until, m.queued(i).Text())
	}
	m.do(m.t, queue...)
	m.do(m.t, heartbeats...)
	m.do(m.t, "SET", m.keys["number"], fmt.Sprint("2 ", m.clock+int64(n), " ", time.Hour.Microseconds(), " ", m.clock),
		"PX", day.Milliseconds())
	for _, key := range []string{"queue", "heartbeats"} {
		m.do(m.t, "PEXPIRE", m.keys[key], (time.Hour + time.Minute/2).Milliseconds())
	}
}

// addHolders has n parties h0, h1, … hold one permit each, without requests. Their leases end after d, or have ended.
func (m *machine) addHolders(n int, d time.Duration) {
	m.t.Helper()
	m.once = true
	permits, holders := []any{"ZADD", m.keys["permits"]}, []any{"HSET", m.keys["holders"], "fence",
		holderFence + uint64(n)}
	for i := range n {
		permits = append(permits, m.clock+d.Microseconds()+int64(i), m.held(i).Text())
		holders = append(holders, m.held(i).Text(), fmt.Sprint(holderFence+uint64(i)))
	}
	m.do(m.t, permits...)
	m.do(m.t, holders...)
	m.parties = append(m.parties, &party{name: "h" + strconv.Itoa(n-1), token: m.held(n - 1), weight: 1,
		permits: m.permits, asked: true})
	m.do(m.t, "HINCRBY", m.keys["holders"], "used", n)
	m.setNumber(holderFence + uint64(n))
	for _, key := range []string{"permits", "holders"} {
		m.do(m.t, "PEXPIRE", m.keys[key], 2*time.Hour.Milliseconds())
	}
}

// One call drops at most 100 expired waiters, grants the lock to at most 64, and takes back at most 500 leases. If that
// did not suffice, it says so: the caller continues.
func TestBounds_OfOneCall(t *testing.T) {
	scenarios(t, []kind{mutex}, eachAdmitting(scenario{"expired waiters", `
		once; acquire a ttl 10m; waiters 250 expired; acquire b wait 3h; after 11m; ADMIT; inspect 1; ADMIT; inspect 1 -> b |`})...)
	scenarios(t, []kind{mutex},
		scenario{"expired waiters, and a request", `
			once; waiters 250 expired; acquire z -> queued 151 by nobody retry 0s; heartbeat z -> queued retry 0s
			acquire z -> granted`})
	scenarios(t, []kind{rwMutex},
		scenario{"readers", `
			acquire W; waiters 150; release W; count -> 64 | 86; acquire z -> queued 23 retry 0s
			count -> 128 | 23; acquire z -> granted; count -> 151 | 0`},
		scenario{"readers, without a request", `
			acquire W; waiters 150; release W; release W; count -> 128 | 22; heartbeat; count -> 150 | 0`})
	scenarios(t, []kind{semaphore(1201)},
		scenario{"expired leases, and a waiter", `
			acquire a; holders 1200 expired; acquire b*1200 -> queued 1; count -> 701 | 1
			heartbeat b -> queued retry 0s; count -> 201 | 1; heartbeat b -> holding; release b
			release a -> released; keys -> number`},
		scenario{"expired leases, and only a try", `
			holders 1200 expired; inspect -> |; acquire z*1201 try -> busy more; acquire z*1201 try -> busy more
			acquire z*1201 try -> granted`},
		scenario{"expired leases, and a release", `
			acquire a; holders 1200 expired; acquire b*1200 -> queued 1; release y -> more; release y -> grants b`},
		scenario{"an expired lease, and its token", `
			holders 700 expired; acquire h699 -> granted; acquire z*1200 try -> granted; acquire y try -> busy`})
}

// Force-release looks at some of many holders in one call. It ends all leases up to the fence that its caller has seen
// and no others, though all holders renew between two calls, and others come.
func TestBounds_ForceReleaseGoesOn(t *testing.T) {
	const n = 3000
	m := newMachine(t, real(t), semaphore(2*n))
	m.addHolders(n, time.Hour)
	lock, seen, later := m.lock(), holderFence+n/2-1, 0
	for h := (script.Handoff{}); ; later++ {
		var err error
		h, err = lock.ForceRelease(ctx, seen, h.Next)
		require.NoError(t, err)
		if h.Next == 0 {
			break
		}
		require.Less(t, later, n, "it ends")
		renewed := []any{"ZADD", m.keys["permits"]}
		for token := range m.contents().Permits { // in any order
			renewed = append(renewed, m.clock+ttl.Microseconds()+int64(len(renewed)), token)
		}
		m.do(t, renewed...)
		require.Equal(t, "granted", m.reply(m.acquire(m.party(fmt.Sprint("late", later)), request{}), ""))
	}
	assert.Greater(t, later, 3)
	c := m.contents()
	assert.Len(t, c.Permits, n/2+later)
	assert.Equal(t, fmt.Sprint(n/2+later), c.Holders["used"])
	for token, fence := range c.Holders {
		require.True(t, !strings.Contains(token, ":") || number(fence) > seen, "%s is there with %s", token, fence)
	}
}

// The cost of a script are its commands and the values that it sends and receives.
var counted = instrument(`local cost = #ARGV
	local function values(reply)
		local n = type(reply) == 'table' and 0 or 1
		for _, value in ipairs(n == 0 and reply or {}) do n = n + values(value) end
		return n
	end
	local function call(...)
		local reply = real(...)
		cost = cost + 1 + select('#', ...) + values(reply)
		return reply
	end`, "local reply = script(); real('SET', string.match(KEYS[1], '^(.-):{') .. ':cost', cost); return reply")

// What a script does is the same for 3,000 waiters or holders as for 8,000, but for a few holders more or less than
// HSCAN is asked for. One exception: inspect sums up the holders that have expired or the others, whichever are fewer.
//
//fairlock:promise A long queue is cheap: no script runs more commands, or reads more values, with 8,000 waiters than with 3,000, alive or expired; how long that takes is what BenchmarkLongQueue measures
func TestCost_DoesNotGrowWithTheQueue(t *testing.T) {
	for _, c := range []struct {
		name             string
		kind             kind
		holders, waiters time.Duration // when leases and waiters end; 0: there are none
	}{
		{"waiters", mutex, 0, time.Hour},
		{"expired waiters", mutex, 0, -time.Second},
		{"holders, waiters", semaphore(2), time.Hour, time.Hour},
		{"expired holders, waiters", semaphore(2), -time.Hour, time.Hour},
		{"expired holders, expired waiters", semaphore(2), -time.Hour, -time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cost := map[string][]int{}
			for _, n := range []int{3000, 8000} {
				k := c.kind
				if k.permits > 1 {
					k.permits = n
				}
				m := newMachine(t, real(t), k)
				listed := m.requesters(script.MaxHeartbeat)
				if c.holders != 0 {
					m.addHolders(n, c.holders)
				}
				if c.waiters != 0 {
					m.addWaiters(n, c.waiters)
				}
				for verb, s := range samplesOf(m.lock()) {
					for _, key := range m.keys {
						m.do(t, "COPY", key, verb+key)
					}
					lock := k.lock(instrumentedBy(m.rdb, counted), verb+m.namespace)
					require.NoError(t, s.send(lock, listed), verb)
					n, err := m.rdb.Get(ctx, verb+m.namespace+":cost").Int()
					require.NoError(t, err)
					cost[verb] = append(cost[verb], n)
				}
			}
			for verb, c1 := range cost {
				t.Logf("%-14s %6d %6d", verb, c1[0], c1[1])
				assert.InEpsilon(t, c1[0], c1[1], 0.01, verb)
			}
		})
	}
}

// BenchmarkLongQueue measures each request to a mutex with 100,000 waiters, and what a waiter costs in Redis.
func BenchmarkLongQueue(b *testing.B) {
	for verb, sample := range samplesOf(mutex.lock(nil, "")) {
		b.Run(verb, func(b *testing.B) {
			s := real(b)
			m := newMachine(b, s, mutex)
			listed := m.requesters(script.MaxHeartbeat)
			m.do(b, "SET", m.keys["lock"], fmt.Sprint(listed.holder.Text(), " ", holderFence), "PX", time.Hour.Milliseconds())
			memory := func() float64 {
				n, err := strconv.Atoi(redistest.Info(b, s.rdb, "memory", "used_memory"))
				require.NoError(b, err)
				return float64(n)
			}
			before := memory()
			m.addWaiters(100_000, time.Hour)
			waiter := (memory() - before) / 100_000
			lock := mutex.lock(dispatch.NewDirect(s.rdb), s.namespace)
			for b.Loop() {
				require.NoError(b, sample.send(lock, listed))
			}
			b.ReportMetric(waiter, "B/waiter")
		})
	}
}
