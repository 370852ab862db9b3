package script_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// crowd is many holders h0, h1, … and waiters q0, q1, …, which are there without requests.
type crowd struct {
	holders, waiters int
	keys, limit      int           // of a keyed semaphore: how many keys the waiters, and the holders, are of
	leases, waits    time.Duration // from now until leases end, and until waiters expire; below 0: they have
}

// held and queued are the tokens of the holders and the waiters, of one key.
func (k kind) held(i int) token.Token   { return crowd{}.held(k, i) }
func (k kind) queued(i int) token.Token { return crowd{}.queued(k, i) }

func (c crowd) held(k kind, i int) token.Token   { return c.token(k, "h", i, 1_000_000+i) }
func (c crowd) queued(k kind, i int) token.Token { return c.token(k, "q", i, 2_000_000+i) }

func (c crowd) token(k kind, client string, i, n int) token.Token {
	terms := k.terms(ttl / 2)
	if terms.Key != "" {
		terms.Key, terms.KeyLimit = fmt.Sprint("k", i%max(c.keys, 1)), c.limit
	}
	return numbered(client, terms, n)
}

// waiters are the first tokens of waiters.
func (k kind) waiters(n int) (all []token.Token) {
	for i := range n {
		all = append(all, k.queued(i))
	}
	return all
}

// requesters are the i-th holder and waiter of a crowd, others of their key, and its first waiters.
func (m *machine) requesters(c crowd, waiters, i int) requesters {
	r := requesters{
		holder: c.held(m.kind, i), by: c.token(m.kind, "by", i, 3_000_000+i), second: c.queued(m.kind, i+1),
		stranger: c.token(m.kind, "new", i, 4_000_000+i), fence: uint64(m.clock) + uint64(i),
	}
	for i := range waiters {
		r.waiters = append(r.waiters, c.queued(m.kind, i))
	}
	return r
}

// put writes them to Redis. What a lock has besides stays.
func (m *machine) put(c crowd) {
	m.t.Helper()
	pipe, now, last := m.rdb.Pipeline(), m.clock, m.clock+int64(max(c.holders, c.waiters))
	members := map[string][]redis.Z{} // of sorted sets, which take a thousand at once
	add := func(set string, score int64, member string) {
		members[set] = append(members[set], redis.Z{Score: float64(score), Member: member})
	}
	held, first := map[string]int{}, map[string]bool{}
	for i := range c.holders {
		t := c.held(m.kind, i)
		add("permits", now+c.leases.Microseconds()+int64(i), t.Text())
		pipe.HSet(ctx, m.keys["holders"], t.Text(), now+int64(i))
		held[t.Terms().Key]++
	}
	for key, n := range held {
		if key != "" {
			pipe.HSet(ctx, m.keys["holders"], "="+key, fmt.Sprint(n, " ", now))
		}
	}
	if c.holders > 0 {
		pipe.HIncrBy(ctx, m.keys["holders"], "used", int64(c.holders))
		pipe.HSet(ctx, m.keys["holders"], "fence", last)
	}
	for i := range c.waiters {
		t, ticket := c.queued(m.kind, i), now+int64(i)
		add("queue", ticket, t.Text())
		add("heartbeats", max(time.Hour+c.waits, 0).Microseconds(), t.Text())
		if key := t.Terms().Key; key != "" {
			add("lines", 0, fmt.Sprintf("%s %016d %s", key, ticket, t.Text()))
			if !first[key] {
				first[key] = true
				add("lines", 0, fmt.Sprintf("%s  %016d 0", key, ticket))
				add("turns", int64(held[key]), fmt.Sprintf("%016d %s", ticket, key))
			}
		}
	}
	for set, all := range members {
		for some := range slices.Chunk(all, 1000) {
			pipe.ZAdd(ctx, m.keys[set], some...)
		}
	}
	for _, name := range []string{"permits", "holders", "queue", "heartbeats", "lines", "turns"} {
		if m.keys[name] != "" {
			pipe.PExpire(ctx, m.keys[name], 2*time.Hour)
		}
	}
	pipe.Set(ctx, m.keys["number"], fmt.Sprint("2 ", last, " ", time.Hour.Microseconds(), " ", now), day)
	_, err := pipe.Exec(ctx)
	require.NoError(m.t, err)
}

// Force-release looks at some of many holders in one call. It ends exactly the leases up to the fence that its caller
// has seen, even if all holders renew between two calls, and others come.
func TestBounds_ForceReleaseGoesOn(t *testing.T) {
	const n = 3000
	m := newMachine(t, shared(t), semaphore(2*n))
	m.put(crowd{holders: n, leases: time.Hour})
	lock, seen, later := m.kind.lock(m.user, m.namespace), uint64(m.clock)+n/2-1, 0
	for h := (script.Handoff{}); ; later++ {
		var err error
		h, err = lock.ForceRelease(ctx, seen, h.Next)
		require.NoError(t, err)
		if h.Next == 0 {
			break
		}
		require.Less(t, later, n, "it ends")
		renewed := []any{"ZADD", m.keys["permits"]}
		for _, h := range m.state().Holders {
			renewed = append(renewed, m.clock+ttl.Microseconds()+int64(len(renewed)), h.Token)
		}
		m.do(t, renewed...)
		r, err := lock.Acquire(ctx, script.Request{Token: numbered("late", m.kind.terms(ttl), later)})
		require.NoError(t, err)
		require.Equal(t, script.Granted, r.Outcome)
	}
	assert.Greater(t, later, 3)
	s := m.state()
	assert.Len(t, s.Holders, n/2+later)
	assert.Equal(t, strconv.Itoa(n/2+later), m.rdb.HGet(ctx, m.keys["holders"], "used").Val())
	for _, h := range s.Holders {
		require.Greater(t, h.Fence, seen)
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
	end`, "local reply = script(); real('SET', space .. ':cost', cost); return reply")

// No script does more than its bounds allow: with 20,000 holders and waiters it costs fewer values than they are.
//
//fairlock:promise A long queue is cheap: no script runs commands, or reads values, for each of 20,000 waiters, alive or expired, of one key or of as many; how long that takes is what BenchmarkLongQueue measures
func TestCost_DoesNotGrowWithTheQueue(t *testing.T) {
	const n = 20_000
	for name, c := range map[string]crowd{
		"waiters":         {leases: time.Hour, waits: time.Hour},
		"few holders":     {holders: 100, leases: time.Hour, waits: time.Hour},
		"holders":         {holders: n, leases: time.Hour, waits: time.Hour},
		"at their limits": {holders: n, leases: time.Hour, waits: time.Hour, limit: 1},
		"ended":           {holders: n, leases: -time.Hour, waits: time.Hour},
		"all expired":     {holders: n, leases: -time.Hour, waits: -time.Second},
	} {
		for _, k := range []kind{mutex, semaphore(n + 1000), keyed(n + 1000)} {
			for _, keys := range []int{1, n} {
				if k.name == "mutex" && c.holders > 0 || k.name != "keyed" && keys+c.limit > 1 ||
					k.name == "keyed" && name == "holders" { // at their limits does the same
					continue
				}
				t.Run(fmt.Sprint(name, "/", k.name, " ", keys), func(t *testing.T) {
					t.Parallel()
					m, c := newMachine(t, shared(t), k), c
					c.waiters, c.keys = n, keys
					m.put(c)
					lock := k.lock(instrumentedBy(m.rdb, counted), m.namespace)
					samples := samplesOf(lock)
					for i, name := range slices.Sorted(maps.Keys(samples)) { // one after the other
						require.NoError(t, samples[name].try(lock, m.requesters(c, script.MaxHeartbeat, i)), name)
						cost, err := m.rdb.Get(ctx, m.namespace+":cost").Int()
						require.NoError(t, err)
						t.Logf("%-14s %6d", name, cost)
						assert.Less(t, cost, n*3/4, name)
					}
					m.lose()
				})
			}
		}
	}
}

// BenchmarkLongQueue measures for how long redis-server runs each request, to an idle lock and while 100,000 wait, and
// what a waiter costs in Redis. A bare SET is the least that a request can cost.
func BenchmarkLongQueue(b *testing.B) {
	const n = 100_000
	hour := crowd{waiters: n, leases: time.Hour, waits: time.Hour}
	byKey, bySome := hour, hour
	byKey.holders, byKey.keys, bySome.holders, bySome.keys = 100, 1, 100, n
	for name, c := range map[string]struct {
		crowd
		kind
	}{"idle": {crowd{}, mutex}, "mutex": {hour, mutex}, "one key": {byKey, keyed(100)}, "100,000 keys": {bySome, keyed(100)}} {
		for verb, sample := range samplesOf(c.lock(nil, "")) {
			b.Run(name+"/"+verb, func(b *testing.B) {
				m := newMachine(b, newServer(b, redistest.Start(b)), c.kind)
				m.setClock(time.Now().UnixMicro())
				info := func(section, field string) string { return redistest.Info(b, m.rdb, section, field) }
				before := fields(info("memory", "used_memory"))[0]
				m.put(c.crowd)
				waiter := float64(fields(info("memory", "used_memory"))[0]-before) / n
				lock := c.lock(dispatch.NewDirect(m.rdb), m.namespace)
				require.NoError(b, m.rdb.ConfigResetStat(ctx).Err())
				for i := 0; b.Loop(); i++ {
					m.do(b, "SET", "bare", i)
					require.NoError(b, sample.try(lock, m.requesters(c.crowd, script.MaxHeartbeat, i)))
				}
				for _, command := range []string{"set", "evalsha"} {
					_, text, _ := strings.Cut(info("commandstats", "cmdstat_"+command), "usec_per_call=")
					text, _, _ = strings.Cut(text, ",")
					usec, err := strconv.ParseFloat(text, 64)
					require.NoError(b, err)
					b.ReportMetric(usec, command+"-µs")
				}
				b.ReportMetric(waiter, "B/waiter")
			})
		}
	}
}

// Over 2,000 grants, the times for which keys hold permits are within 20 % of their shares.
//
//fairlock:promise Shares of keys: over 2,000 grants, keys hold permits for as long as their shares say, within 20 %, with 2 to 50 keys on 8 permits
func TestKeyed_HeldByShare(t *testing.T) {
	for _, keys := range []int{2, 8, 50} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			t.Parallel()
			k := keyed(8)
			m := newMachine(t, shared(t), k)
			lock := k.lock(m.user, m.namespace)
			random := rand.New(rand.NewPCG(1, 2))
			type holder struct {
				script.Grant
				key      int
				from, to float64
			}
			var held []holder
			got, n, now := make([]float64, keys), 0, 0.0
			grant := func(g script.Grant) holder {
				key, err := strconv.Atoi(g.Token.Terms().Key)
				require.NoError(t, err)
				return holder{g, key, now, now + 0.5 + random.Float64()}
			}
			join := func(key int) {
				n++
				terms := k.terms(day)
				terms.Key, terms.Share = strconv.Itoa(key), []int{3, 1}[key%2]
				c := numbered("c", terms, n)
				r, err := lock.Acquire(ctx, script.Request{Token: c, WaiterTTL: day})
				require.NoError(t, err)
				if r.Outcome == script.Granted {
					held = append(held, grant(script.Grant{Token: c, Fence: r.Fence}))
				}
			}
			for i := range 12 * keys { // as many of each key hold or wait at any time
				join(i % keys)
			}
			for range 2000 {
				slices.SortFunc(held, func(a, b holder) int { return int(1e6 * (a.to - b.to)) })
				ends := held[0]
				now = ends.to
				h, err := lock.Release(ctx, ends.Token, ends.Fence, script.Rest{})
				require.NoError(t, err)
				require.Len(t, h.Grants, 1)
				held[0] = grant(h.Grants[0])
				got[ends.key] += ends.to - ends.from
				join(ends.key)
				m.setClock(m.clock + 10)
			}
			for key, held := range got {
				assert.InEpsilon(t, now*8*[]float64{3, 1}[key%2]/float64(keys*2), held, 0.2, "key %d of %v", key, got)
			}
		})
	}
}
