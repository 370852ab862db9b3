package lua_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/internal/model"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// contents is all that a lock has in Redis.
type contents struct {
	Lock, Number        string
	Resized             string
	Queue               []redis.Z
	Tombstones, Permits map[string]float64
	Heartbeats          map[string]float64
	Holders             map[string]string
	Left                map[string]time.Duration // of each key; -1: it lasts for ever
}

func (m *machine) contents() contents {
	m.t.Helper()
	var number, lock, resized *redis.StringCmd
	var queue, tombstones, permits, heartbeats *redis.ZSliceCmd
	var holders *redis.MapStringStringCmd
	left := map[string]*redis.DurationCmd{}
	_, err := m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		number, lock = p.Get(ctx, m.keys["number"]), p.Get(ctx, m.keys["lock"])
		resized = p.Get(ctx, m.keys["resized"])
		queue, tombstones = p.ZRangeWithScores(ctx, m.keys["queue"], 0, -1), p.ZRangeWithScores(ctx, m.keys["tombstones"], 0, -1)
		permits = p.ZRangeWithScores(ctx, m.keys["permits"], 0, -1)
		holders, heartbeats = p.HGetAll(ctx, m.keys["holders"]), p.ZRangeWithScores(ctx, m.keys["heartbeats"], 0, -1)
		for name, key := range m.keys {
			left[name] = p.PTTL(ctx, key)
		}
		return nil
	})
	if !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") { // of a foreign key nothing is read
		require.NoError(m.t, err)
	}
	scores := func(all []redis.Z) map[string]float64 {
		found := map[string]float64{}
		for _, z := range all {
			found[z.Member.(string)] = z.Score
		}
		return found
	}
	c := contents{
		lock.Val(), number.Val(), resized.Val(), queue.Val(), scores(tombstones.Val()), scores(permits.Val()), scores(heartbeats.Val()), holders.Val(),
		map[string]time.Duration{},
	}
	for name, d := range left {
		if d.Val() != -2 {
			c.Left[name] = d.Val()
		}
	}
	return c
}

// check compares what is in Redis with the model, and the notifications, and checks the invariants of docs/protocol.md.
func (m *machine) check() contents {
	m.t.Helper()
	c := m.contents()
	for name, left := range c.Left {
		require.True(m.t, left >= 0 != (name == "resized") || m.foreign, "%s lasts for %v", name, left)
	}
	if m.blind {
		return c
	}
	if len(m.model.Notified) > 0 && !m.mute {
		m.checkNotifications(m.grants(m.model.Notified), m.notifications(m.t))
	}
	m.model.Notified = nil
	require.Equal(m.t, m.model.Last, c.last(), "the last number")
	if m.model.Last != 0 {
		m.lasts(c, "number", m.model.NumberUntil, m.model.NumberUntil)
	}
	require.Equal(m.t, uint64(m.model.Resized), number(c.Resized), "the number of permits for all")
	held := m.checkHolders(c)
	m.checkQueue(c)
	for _, w := range m.model.Waiters {
		require.NotContains(m.t, held, w.Token, "who holds does not wait")
	}
	return c
}

// checkNotifications compares what waiters are told. After how long the head can ask depends on the server's own clock.
func (m *machine) checkNotifications(want, got []lua.Grant) {
	m.t.Helper()
	for i, w := range want {
		if w.Fence == 0 && i < len(got) {
			m.helps(w.Given.Microseconds(), got[i].Given)
			want[i].Given = got[i].Given
		}
	}
	require.Equal(m.t, want, got, "notifications")
}

// last is the last number that is recorded; 0 if there is none.
func (c contents) last() uint64 {
	_, rest, _ := strings.Cut(c.Number, " ")
	return number(strings.TrimLeft(rest, "0"))
}

// number is the first number in a value; 0 if there is none.
func number(text string) uint64 {
	first, _, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseUint(first, 10, 64)
	return n
}

// lasts checks when a key expires.
func (m *machine) lasts(c contents, key string, least, most int64) {
	m.t.Helper()
	left, ok := c.Left[key]
	require.True(m.t, ok, "%s is there", key)
	until := m.clock + left.Microseconds()
	require.GreaterOrEqual(m.t, until, least-m.slack, "%s ends early", key)
	require.LessOrEqual(m.t, until, most+m.slack, "%s ends late", key)
}

// checkQueue compares the waiters, their tickets and when they expire, and the tombstones.
func (m *machine) checkQueue(c contents) {
	m.t.Helper()
	var want []redis.Z
	members, tickets, tombstones, latest := map[string]bool{}, map[uint64]bool{}, map[string]bool{}, int64(0)
	n := fields(c.Number)
	for _, w := range m.model.Waiters {
		want = append(want, redis.Z{Score: float64(w.Ticket), Member: w.Token})
		members[w.Token], tickets[w.Ticket] = true, true
		if ends, ok := c.Heartbeats[w.Token]; c.Number != "" && (ok || w.Expires != model.Untimed) {
			require.Equal(m.t, w.Expires, int64(ends), "when %s expires", w.Token)
		}
	}
	require.Equal(m.t, append([]redis.Z{}, want...), c.Queue)
	require.Len(m.t, tickets, len(want), "tickets are distinct")
	for name := range c.Heartbeats {
		require.True(m.t, members[name] || m.forgotten[name], "%s does not wait", name)
	}
	if len(want) > 0 && c.Number != "" {
		require.Equal(m.t, []int64{m.model.Clock, m.model.ClockAt}, n[2:4], "the queue's clock")
	}
	if len(want) > 0 {
		m.lasts(c, "queue", m.model.QueueUntil, m.model.QueueUntil)
		if len(c.Heartbeats) > 0 {
			m.lasts(c, "heartbeats", m.model.QueueUntil, m.longest)
		}
		if m.keys["holders"] != "" && !m.holdersMayEnd() { // else the next request brings the capacity
			m.lasts(c, "holders", m.model.QueueUntil, m.longest+model.Second)
		}
	}
	for name, until := range m.model.Tombstones {
		if tombstones[name] = true; until > m.clock {
			require.Equal(m.t, until, int64(c.Tombstones[name]), "the tombstone of %s", name)
			latest = max(latest, until)
		}
	}
	for name := range c.Tombstones {
		require.True(m.t, tombstones[name], "%s has a tombstone", name)
	}
	if latest > 0 {
		m.lasts(c, "tombstones", latest, latest)
	}
}

// holdersMayEnd reports whether the record of the capacity may be gone before the queue is.
func (m *machine) holdersMayEnd() bool { return m.evicted || m.clock >= m.model.QueueUntil }

// checkHolders compares the holders, and that the sums are right and the records last long enough.
func (m *machine) checkHolders(c contents) map[string]uint64 {
	m.t.Helper()
	if m.model.Lost {
		return nil
	}
	want, held, recorded, last := map[string]uint64{}, map[string]uint64{}, uint64(0), int64(0)
	for _, h := range m.model.Holders {
		want[h.Token] = uint64(h.Weight)
		last = max(last, h.Expires)
		m.longest = max(m.longest, h.Expires+model.Second)
		if m.keys["lock"] == "" {
			require.Equal(m.t, h.Expires, int64(c.Permits[h.Token]), "when the lease of %s ends", h.Token)
			require.Equal(m.t, fmt.Sprint(h.Fence), c.Holders[h.Token])
		} else {
			require.Equal(m.t, fmt.Sprint(h.Token, " ", h.Fence), c.Lock)
		}
	}
	used := m.model.Used()
	require.True(m.t, m.model.Free() >= 0 || used <= m.used, "no more than there are, or were before a resize")
	m.used = used
	for name, ends := range c.Permits {
		recorded += weightOf(name)
		if int64(ends) > m.clock {
			held[name] = weightOf(name)
		}
	}
	if owner, _, ours := strings.Cut(c.Lock, " "); ours {
		held[owner] = uint64(m.weight)
	}
	require.Equal(m.t, want, held, "the holders' weights")
	if len(c.Permits) > 0 {
		require.Equal(m.t, recorded, number(c.Holders["used"]), "the sum that is kept is that of the weights")
	}
	switch {
	case last == 0:
	case m.keys["lock"] != "":
		m.lasts(c, "lock", last, last)
	default:
		m.lasts(c, "permits", last+model.Second, m.longest+model.Second)
		m.lasts(c, "holders", last+model.Second, m.longest+model.Second)
	}
	if len(c.Holders) > 0 {
		delete(c.Holders, "fence")
		kept := 0
		for name := range c.Permits {
			if t, _ := token.Parse(name); t.Flags()&token.Released != 0 {
				kept++
			}
		}
		require.Equal(m.t, strconv.Itoa(kept), c.Holders["released"], "the number of released holders")
	}
	if m.keys["holders"] != "" && m.holdersMayEnd() && number(c.Holders["capacity"]) == 0 && len(m.model.Holders) == 0 {
		m.model.Capacity = 0 // it has expired before the queue
	}
	if m.model.InUse() && m.keys["holders"] != "" {
		require.Equal(m.t, uint64(m.model.Capacity), number(c.Holders["capacity"]), "capacity")
	}
	return held
}

// weightOf is the weight in a token.
func weightOf(text string) uint64 {
	t, _ := token.Parse(text)
	return uint64(t.Weight())
}

// random draws what random steps do. Whoever has left or released asks no more, as a client does; only a request that went
// astray arrives later, and only of a token that has a tombstone.
type random struct {
	*machine

	t                        *rapid.T
	leases, waitings, around []time.Duration // around an event, in µs
	sizes                    []int
	size                     int
}

func newRandom(t *rapid.T, m *machine) *random {
	r := &random{
		machine: m, t: t, sizes: []int{m.capacity},
		leases:   []time.Duration{time.Second, 61 * time.Millisecond, ttl},
		waitings: []time.Duration{waiterTTL, 500 * time.Millisecond, 10 * time.Millisecond},
		around:   []time.Duration{0, 1, -1, -1000, -1001, -999, 1000, 1001},
	}
	if m.mini == nil {
		r.leases, r.waitings = []time.Duration{ttl, 5 * ttl}, []time.Duration{waiterTTL, 2 * ttl}
		r.around = []time.Duration{5 * time.Minute / 1000, -5 * time.Minute / 1000}
	}
	if m.capacity == 3 {
		r.sizes = []int{3, 1, 2, 5}
	}
	r.size = r.sizes[0]
	return r
}

func (r *random) lease() time.Duration { return rapid.SampledFrom(r.leases).Draw(r.t, "ttl") }
func (r *random) kept() time.Duration {
	return rapid.SampledFrom(append([]time.Duration{0, 0}, r.leases...)).Draw(r.t, "kept")
}
func (r *random) wait() time.Duration { return rapid.SampledFrom(r.waitings).Draw(r.t, "waiter TTL") }

func (r *random) anyone() *party {
	if len(r.parties) == 0 {
		r.t.Skip("nobody is there")
	}
	last := r.parties[max(len(r.parties)-10, 0):]
	return last[rapid.IntRange(0, len(last)-1).Draw(r.t, "who")]
}

func (r *random) join(try bool) {
	p := r.party(fmt.Sprint("p", len(r.parties)))
	weights := []int{1, r.size}
	for w := 2; w < min(r.size, 6); w++ {
		weights = append(weights, w)
	}
	if len(r.sizes) > 1 {
		weights = append(weights, r.size+1)
	}
	p.capacity, p.weight, p.try = r.size, rapid.SampledFrom(weights).Draw(r.t, "weight"), try
	max := rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(r.t, "max")
	r.acquire(p, request{r.lease(), r.wait(), max, try, false})
}

func (r *random) again() {
	p := r.anyone()
	if p.left && r.model.Tombstones[p.token.Text()] <= r.clock {
		r.t.Skip("it asks no more")
	}
	r.acquire(p, request{0, r.wait(), 0, p.try, !p.try && rapid.Bool().Draw(r.t, "with its ticket")})
}

func (r *random) pass(pass func(time.Duration)) {
	events := append(r.events(), r.clock)
	to := events[rapid.IntRange(0, len(events)-1).Draw(r.t, "event")]
	to = max(to+int64(rapid.SampledFrom(r.around).Draw(r.t, "off")), r.clock+1)
	near := func(at int64) bool { return max(at-to, to-at) < r.slack+r.slack/2 }
	if r.mini == nil && (to < r.clock+r.slack || slices.ContainsFunc(events, near)) {
		r.t.Skip("too close to an event")
	}
	pass(time.Duration(to-r.clock) * time.Microsecond)
}

// steps are those of the verbs, and others.
func (r *random) steps() map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){
		"pass": func(*rapid.T) { r.pass(r.after) }, "pass on": func(*rapid.T) { r.pass(r.after) },
		"stall":    func(*rapid.T) { r.pass(r.stall) },
		"new size": func(t *rapid.T) { r.size = rapid.SampledFrom(r.sizes).Draw(t, "size") },
		"lose": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			r.lose()
			r.after(2 * time.Minute) // no ticket of before is given again
		},
		"evict": func(t *rapid.T) {
			keys := slices.Sorted(maps.Keys(r.contents().Left))
			keys = slices.DeleteFunc(keys, func(key string) bool { // the model knows one loss at a time
				return key == "lock" || r.model.Last == 0 || r.model.Lost
			})
			if len(keys) == 0 || rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			r.evict(rapid.SampledFrom(keys).Draw(t, "key"))
			r.after(2 * time.Minute) // no ticket of before is given again
		},
		"": func(t *rapid.T) {
			r.once = rapid.Bool().Draw(t, "the next step is sent once")
			if len(r.model.Waiters) > 0 && !r.more && r.admitted {
				require.Greater(t, r.model.Waiters[0].Weight, r.model.Free(), "the head fits")
			}
		},
	}
	for _, v := range verbsOf(r.any()) {
		for name, step := range v.random {
			all[name] = func(*rapid.T) { step(r) }
		}
	}
	return all
}

// events are the moments to come at which something ends, in order.
func (m *machine) events() (at []int64) {
	at = append(at, m.model.QueueUntil, m.model.NumberUntil)
	for _, h := range m.model.Holders {
		at = append(at, h.Expires)
	}
	for _, w := range m.model.Waiters {
		at = append(at, m.model.Expires(m.clock, w))
	}
	for _, until := range m.model.Tombstones {
		at = append(at, until)
	}
	at = slices.DeleteFunc(at, func(at int64) bool { return at <= m.clock })
	slices.Sort(at)
	return slices.Compact(at)
}

// Random steps change what the model says, and nothing else: a refused try, for example, changes nothing.
//
//fairlock:promise No overtaking by TryLock
func TestModel_RandomSteps(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{mutex, semaphore(3), rwMutex} {
		for where, start := range map[string]func(testing.TB) *server{"redis": real, "memory": memory} {
			t.Run(k.name+"/"+where, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				rapid.Check(t, func(t *rapid.T) {
					m := newMachine(t, s, k)
					t.Repeat(newRandom(t, m).steps())
					require.Empty(t, m.notifications(t), "more notifications than grants")
				})
			})
		}
	}
}
