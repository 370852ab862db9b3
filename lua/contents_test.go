package lua_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/model"
)

// contents is all that a lock has in Redis.
type contents struct {
	Lock, Number        string
	Queue               []redis.Z
	Tombstones, Permits map[string]float64
	Heartbeats, Holders map[string]string
	Left                map[string]time.Duration // of each key; -1: it lasts for ever
}

func (m *machine) contents() contents {
	m.t.Helper()
	var number, lock *redis.StringCmd
	var queue, tombstones, permits *redis.ZSliceCmd
	var holders, heartbeats *redis.MapStringStringCmd
	left := map[string]*redis.DurationCmd{}
	_, err := m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		number, lock = p.Get(ctx, m.keys["number"]), p.Get(ctx, m.keys["lock"])
		queue, tombstones = p.ZRangeWithScores(ctx, m.keys["queue"], 0, -1), p.ZRangeWithScores(ctx, m.keys["tombstones"], 0, -1)
		permits = p.ZRangeWithScores(ctx, m.keys["permits"], 0, -1)
		holders, heartbeats = p.HGetAll(ctx, m.keys["holders"]), p.HGetAll(ctx, m.keys["heartbeats"])
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
		lock.Val(), number.Val(), queue.Val(), scores(tombstones.Val()), scores(permits.Val()), heartbeats.Val(), holders.Val(),
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
		require.True(m.t, left >= 0 || m.foreign, "%s lasts for ever", name)
	}
	if m.blind {
		return c
	}
	if len(m.model.Notified) > 0 && !m.mute {
		require.Equal(m.t, m.grants(m.model.Notified), m.notifications(m.t), "notifications")
	}
	m.model.Notified = nil
	require.Equal(m.t, m.model.Last, c.last(), "the last number")
	n := fields(c.Number)
	require.Equal(m.t, m.model.Served, uint64(n[3]), "the highest ticket that was served")
	require.Equal(m.t, m.model.First, uint64(n[4]), "the first number")
	if m.model.Last != 0 {
		if ends := n[2] * model.Millisecond; ends > m.clock {
			require.Equal(m.t, m.model.NumberUntil, ends, "when the number says that it expires")
		}
		m.lasts(c, "number", m.model.NumberUntil, m.model.NumberUntil)
	}
	m.longest = max(m.longest, m.clock+m.model.Quarantine-m.model.Clock+model.KeptAtMost)
	held := m.checkHolders(c)
	m.checkQueue(c)
	for _, w := range m.model.Waiters {
		require.NotContains(m.t, held, w.Token, "who holds does not wait")
	}
	return c
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
	members, tickets, tombstones, latest := map[string]bool{"clock": true}, map[uint64]bool{}, map[string]bool{}, int64(0)
	clock := fields(c.Heartbeats["clock"])
	for _, w := range m.model.Waiters {
		want = append(want, redis.Z{Score: float64(w.Ticket), Member: w.Token})
		members[short(w.Token)], tickets[w.Ticket] = true, true
		if m.model.Damaged {
			continue
		}
		ends, weight, _ := strings.Cut(c.Heartbeats[short(w.Token)], " ")
		require.Equal(m.t, w.Expires-m.model.Clock, int64(number(ends))-clock[0], "when %s expires", w.Token)
		require.Equal(m.t, uint64(w.Weight), max(number(weight), 1), "what %s asks for", w.Token)
	}
	require.Equal(m.t, append([]redis.Z{}, want...), c.Queue)
	if quarantine := max(m.model.Quarantine-m.model.Clock, 0); quarantine > 0 || len(want) > 0 && !m.model.Damaged {
		require.Equal(m.t, quarantine, max(clock[4]-clock[0], 0), "the quarantine")
	}
	require.Len(m.t, tickets, len(want), "tickets are distinct")
	for name := range c.Heartbeats {
		require.True(m.t, members[name] || m.forgotten[name], "%s does not wait", name)
	}
	if len(want) > 0 && !m.model.Damaged {
		require.Equal(m.t, []int64{m.model.ClockAt, m.model.Clock - m.model.Pass, int64(m.model.Cursor)},
			[]int64{clock[1], clock[0] - clock[2], clock[3]}, "the queue's clock")
		from, by := m.model.Forgets()
		m.lasts(c, "queue", from, by)
		m.lasts(c, "heartbeats", from, m.longest)
		if m.keys["holders"] != "" && !m.holdersMayEnd() { // else the next request brings the capacity
			m.lasts(c, "holders", from-100*model.Millisecond, m.longest)
		}
	}
	for name, until := range m.model.Tombstones {
		if tombstones[short(name)] = true; until > m.clock {
			require.Equal(m.t, until, int64(c.Tombstones[short(name)]), "the tombstone of %s", name)
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

// holdersMayEnd reports whether the record of the capacity may be gone before the queue is: it expires a little earlier.
func (m *machine) holdersMayEnd() bool {
	from, _ := m.model.Forgets()
	return m.evicted || m.clock >= from-100*model.Millisecond
}

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
		m.longest = max(m.longest, h.Expires+950*model.Millisecond)
		if m.keys["lock"] == "" {
			require.Equal(m.t, h.Expires, int64(c.Permits[h.Token]), "when the lease of %s ends", h.Token)
			require.Equal(m.t, fmt.Sprint(h.Weight, " ", h.Fence), c.Holders[h.Token])
		} else {
			require.Equal(m.t, fmt.Sprint(h.Token, " ", h.Fence), c.Lock)
		}
	}
	require.GreaterOrEqual(m.t, m.model.Free(), 0, "no more than there are")
	for name, ends := range c.Permits {
		recorded += number(c.Holders[name])
		if int64(ends) > m.clock {
			held[name] = number(c.Holders[name])
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
		m.lasts(c, "permits", last+400_000, m.longest)
		m.lasts(c, "holders", last+400_000, m.longest)
	}
	if len(c.Holders) > 0 {
		delete(c.Holders, "fence")
	}
	if m.keys["holders"] != "" && m.holdersMayEnd() && number(c.Holders["capacity"]) == 0 && len(m.model.Holders) == 0 {
		m.model.Capacity = 0 // it has expired before the queue
	}
	if m.model.InUse() && m.keys["holders"] != "" {
		require.Equal(m.t, uint64(m.model.Capacity), number(c.Holders["capacity"]), "capacity")
	}
	return held
}
