package script_test

import (
	"cmp"
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
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
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
func (m *machine) checkNotifications(want, got []script.Grant) {
	m.t.Helper()
	for i, w := range want {
		if w.Fence == 0 && w.Given > 0 && i < len(got) {
			m.helps(w.Given.Microseconds(), got[i].Given)
			want[i].Given = got[i].Given
		}
	}
	require.Equal(m.t, want, got, "notifications")
	for _, g := range got {
		if g.Fence == 0 {
			m.told = append(m.told, m.nameOf(g.Token.Text(), 0))
		}
	}
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
	tickets, tombstones, latest := map[uint64]bool{}, map[string]bool{}, int64(0)
	for _, w := range m.model.Waiters {
		want = append(want, redis.Z{Score: float64(w.Ticket), Member: w.Token})
		tickets[w.Ticket] = true
	}
	require.Equal(m.t, append([]redis.Z{}, want...), c.Queue)
	require.Len(m.t, tickets, len(want), "tickets are distinct")
	require.Len(m.t, c.Heartbeats, len(m.model.Heartbeats))
	for name, ends := range m.model.Heartbeats {
		require.Equal(m.t, ends, int64(c.Heartbeats[name]), "when %s expires", name)
	}
	if len(want) > 0 && c.Number != "" {
		require.Equal(m.t, []int64{m.model.Clock, m.model.ClockAt}, fields(c.Number)[2:4], "the queue's clock")
	}
	if len(want) > 0 {
		m.lasts(c, "queue", m.model.QueueUntil, m.model.QueueUntil)
	}
	if len(c.Heartbeats) > 0 && m.model.QueueUntil > 0 {
		m.lasts(c, "heartbeats", m.model.QueueUntil, m.model.QueueUntil)
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

// checkHolders compares the holders, and that the sums are right and the records last long enough.
func (m *machine) checkHolders(c contents) map[string]uint64 {
	m.t.Helper()
	if m.model.Lost {
		return nil
	}
	want, held, recorded, last := map[string]uint64{}, map[string]uint64{}, uint64(0), int64(0)
	for _, h := range m.model.Holders {
		want[h.Token] = weightOf(h.Token)
		last = max(last, h.Expires)
		m.longest = max(m.longest, h.Expires+model.Second)
		if m.keys["lock"] == "" {
			require.Equal(m.t, h.Expires, int64(c.Permits[h.Token]), "when the lease of %s ends", h.Token)
			require.Equal(m.t, fmt.Sprint(h.Fence), c.Holders[h.Token])
		} else {
			require.Equal(m.t, fmt.Sprint(h.Token, " ", h.Fence), c.Lock)
		}
	}
	used, largest := m.model.Used(), 1
	for _, h := range m.model.Holders {
		largest = max(largest, cmp.Or(m.model.Resized, permitsOf(h.Token)))
	}
	require.LessOrEqual(m.t, used, max(largest, m.used), "no more than the largest number in use, or than before a resize")
	m.used = used
	for name, ends := range c.Permits {
		recorded += weightOf(name)
		if int64(ends) > m.clock {
			held[name] = weightOf(name)
		}
	}
	if owner, _, ours := strings.Cut(c.Lock, " "); ours {
		held[owner] = weightOf(owner)
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
	delete(c.Holders, "fence")
	return held
}

// weightOf is the weight in a token.
func weightOf(text string) uint64 {
	t, _ := token.Parse(text)
	return uint64(t.Weight())
}

// permitsOf is the number of permits that a token says there are; of a mutex 0.
func permitsOf(text string) int {
	t, _ := token.Parse(text)
	return tokens.Permits(t.Text())
}

// random draws what random steps do. Whoever has left or released asks no more, as a client does; only a request that went
// astray arrives later, and only of a token that has a tombstone.
type random struct {
	*machine

	t                        *rapid.T
	leases, waitings, around []time.Duration // around an event, in µs
	sizes                    []int           // numbers of permits that are in use
}

func newRandom(t *rapid.T, m *machine) *random {
	r := &random{
		machine: m, t: t, sizes: []int{m.permits},
		leases:   []time.Duration{time.Second, 61 * time.Millisecond, ttl},
		waitings: []time.Duration{waiterTTL, 500 * time.Millisecond, 10 * time.Millisecond},
		around:   []time.Duration{0, 1, -1, -1000, -1001, -999, 1000, 1001},
	}
	if m.mini == nil {
		r.leases, r.waitings = []time.Duration{ttl, 5 * ttl}, []time.Duration{waiterTTL, 2 * ttl}
		r.around = []time.Duration{5 * time.Minute / 1000, -5 * time.Minute / 1000}
	}
	if m.permits == 3 {
		r.sizes = []int{3, 3, 1, 2, 5}
	}
	return r
}

func (r *random) lease() time.Duration { return rapid.SampledFrom(r.leases).Draw(r.t, "ttl") }
func (r *random) kept() time.Duration {
	return rapid.SampledFrom(append([]time.Duration{0, 0}, r.leases...)).Draw(r.t, "kept")
}

// rest is what a party leaves when it is released: mostly nothing.
func (r *random) rest(p *party) (time.Duration, *party) {
	kept := r.kept()
	if p.successor == nil && (kept > 0 || rapid.Bool().Draw(r.t, "a rest that is over")) {
		p.successor = r.succeeds(p, p.weight)
	}
	return kept, p.successor
}

// succeeds returns a party that takes a lease over.
func (r *random) succeeds(p *party, weight int) *party {
	by := r.party(fmt.Sprint("p", len(r.parties)))
	by.permits, by.weight, by.left = p.permits, weight, true
	r.asks(by, 0)
	return by
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
	p.permits, p.try = rapid.SampledFrom(r.sizes).Draw(r.t, "permits"), try
	weights := []int{1, max(p.permits, 1)}
	for w := 2; w < min(p.permits, 6); w++ {
		weights = append(weights, w)
	}
	p.weight = rapid.SampledFrom(weights).Draw(r.t, "weight")
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
		"stall": func(*rapid.T) { r.pass(r.stall) },
		"lose": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			r.lose()
			r.after(2 * time.Minute) // no ticket of before is given again
		},
		"evict": func(t *rapid.T) {
			keys := slices.Sorted(maps.Keys(r.contents().Left))
			if len(keys) == 0 || rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			r.evict(rapid.SampledFrom(keys).Draw(t, "key"))
			r.after(2 * time.Minute) // no ticket of before is given again
		},
		"": func(t *rapid.T) {
			r.once = rapid.Bool().Draw(t, "the next step is sent once")
			if len(r.model.Waiters) > 0 && !r.more && r.admitted {
				require.False(t, r.model.Fits(r.model.Waiters[0].Token), "the head fits")
			}
		},
	}
	for _, v := range verbsOf(r.lock()) {
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
