package lua_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// contents is all that a lock has in Redis.
type contents struct {
	Lock, Fence    string
	Queue          []redis.Z
	Alive, Permits map[string]float64
	Holders, Wants map[string]string
	Left           map[string]time.Duration // of each key; -1: it lasts for ever
}

func (m *machine) contents() (c contents) {
	m.t.Helper()
	var fence, lock *redis.StringCmd
	var queue, alive, permits *redis.ZSliceCmd
	var holders, wants *redis.MapStringStringCmd
	left := map[string]*redis.DurationCmd{}
	_, err := m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		fence, lock = p.Get(ctx, m.keys["fence"]), p.Get(ctx, m.keys["lock"])
		queue, alive = p.ZRangeWithScores(ctx, m.keys["queue"], 0, -1), p.ZRangeWithScores(ctx, m.keys["alive"], 0, -1)
		permits = p.ZRangeWithScores(ctx, m.keys["permits"], 0, -1)
		holders, wants = p.HGetAll(ctx, m.keys["holders"]), p.HGetAll(ctx, m.keys["wants"])
		for name, key := range m.keys {
			left[name] = p.PTTL(ctx, key)
		}
		return nil
	})
	if !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") { // of a foreign key nothing is read
		require.NoError(m.t, err)
	}
	c = contents{
		lock.Val(), fence.Val(), queue.Val(), scores(alive.Val()), scores(permits.Val()), holders.Val(), wants.Val(),
		map[string]time.Duration{},
	}
	for name, d := range left {
		if d.Val() != -2 {
			c.Left[name] = d.Val()
		}
	}
	return c
}

func scores(all []redis.Z) map[string]float64 {
	found := map[string]float64{}
	for _, z := range all {
		found[z.Member.(string)] = z.Score
	}
	return found
}

// timeless leaves out when keys end, and on redis-server all that changes with its clock.
func (m *machine) timeless(c contents) contents {
	c.Left = nil
	if m.mini != nil {
		return c
	}
	c.Alive, c.Permits = maps.Clone(c.Alive), maps.Clone(c.Permits)
	for name, at := range c.Alive {
		c.Alive[name] = max(-1, min(at, 1))
	}
	for name := range c.Permits {
		c.Permits[name] = 0
	}
	return c
}

// check compares what is in Redis with the model, and the notifications, and checks the invariants of docs/protocol.md.
func (m *machine) check() contents {
	m.t.Helper()
	c := m.contents()
	for name, left := range c.Left {
		require.True(m.t, left >= 0 || m.foreign, "%s lasts for ever", name)
	}
	if m.blind {
		return c
	}
	if len(m.model.Notified) > 0 && !m.mute {
		m.granted(m.model.Notified, m.notifications(m.t))
	}
	m.model.Notified = nil
	m.same(&m.fences, m.model.Fence, number(c.Fence))
	if m.model.Fence != 0 {
		m.lasts(c, "fence", m.model.FenceUntil, m.model.FenceUntil)
	}
	m.checkQueue(c)
	if m.keys["lock"] != "" {
		m.checkOwner(c)
	} else {
		m.checkPermits(c)
	}
	return c
}

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

func (m *machine) checkQueue(c contents) {
	m.t.Helper()
	var want, got []string
	tickets := map[float64]bool{}
	latest, members := int64(0), map[string]bool{}
	for i, z := range c.Queue {
		got = append(got, z.Member.(string))
		tickets[z.Score] = true
		if i < len(m.model.Waiters) {
			m.same(&m.tickets, m.model.Waiters[i].Ticket, uint64(z.Score))
		}
	}
	for _, w := range m.model.Waiters {
		want = append(want, w.Token)
		members[short(w.Token)] = true
		m.expires(w.Token, w.Expires, int64(c.Alive[short(w.Token)]))
		if w.Expires > m.clock {
			latest = max(latest, w.Expires)
		}
	}
	require.Equal(m.t, want, got, "the queue")
	require.Len(m.t, tickets, len(want), "tickets are distinct")
	if len(want) > 0 {
		from, by := m.model.Forgets()
		m.lasts(c, "queue", from, by)
	}
	for name, until := range m.model.Tombstones {
		if until > m.clock {
			m.near(until, -int64(c.Alive[short(name)])+m.ahead, "the tombstone of "+name)
			latest = max(latest, until)
		}
		members[short(name)] = true
	}
	for name := range c.Alive {
		require.True(m.t, members[name] || m.forgotten[name], "%s neither waits nor has a tombstone", name)
	}
	if latest > 0 {
		m.lasts(c, "alive", latest, m.longest)
	}
}

func (m *machine) checkOwner(c contents) {
	m.t.Helper()
	if len(m.model.Holders) == 0 {
		require.Empty(m.t, c.Lock, "nobody holds it")
		return
	}
	h := m.model.Holders[0]
	require.Equal(m.t, h.Token, c.Lock)
	m.lasts(c, "lock", h.Expires, h.Expires)
	require.False(m.t, slices.ContainsFunc(c.Queue, func(z redis.Z) bool { return z.Member == c.Lock }), "who holds does not wait")
}

// checkPermits compares the holders, and checks that the sums are right and the records last long enough.
func (m *machine) checkPermits(c contents) {
	m.t.Helper()
	held, recorded, last := map[string]uint64{}, uint64(0), int64(0)
	for name, ends := range c.Permits {
		recorded += number(c.Holders[name])
		if int64(ends)+m.ahead > m.clock {
			held[name] = number(c.Holders[name])
		}
	}
	want := map[string]uint64{}
	for _, h := range m.model.Holders {
		want[h.Token] = uint64(h.Weight)
		m.near(h.Expires, int64(c.Permits[h.Token])+m.ahead, "when the lease of "+h.Token+" ends")
		last = max(last, h.Expires)
	}
	require.Equal(m.t, want, held, "the holders' weights")
	require.GreaterOrEqual(m.t, m.model.Free(), 0, "no more than there are")
	if len(c.Permits) > 0 {
		require.Equal(m.t, recorded, number(c.Holders["used"]), "the sum that is kept is that of the weights")
	}
	if last > 0 {
		m.lasts(c, "permits", last+400_000, m.longest)
		m.lasts(c, "holders", last+400_000, m.longest)
	}
	wanted := map[string]bool{"capacity": true}
	for _, w := range m.model.Waiters {
		wanted[w.Token] = true
		require.Equal(m.t, uint64(w.Weight), max(number(c.Wants[w.Token]), 1), "what %s wants", w.Token)
		require.NotContains(m.t, held, w.Token, "who holds does not wait")
	}
	if len(m.model.Waiters) > 0 {
		m.lasts(c, "holders", m.model.QueueUntil+650_000, m.longest)
		m.lasts(c, "wants", m.model.QueueUntil+650_000, m.longest)
	}
	for name := range c.Wants {
		require.True(m.t, wanted[name] || m.forgotten[name], "%s wants permits and does not wait", name)
	}
	if m.model.InUse() {
		require.Equal(m.t, uint64(m.model.Capacity), number(c.Holders["capacity"]), "capacity")
	}
}
