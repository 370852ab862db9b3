package lua_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stretchr/testify/require"
)

// random are random steps. Whoever has left or released asks no more, as a client does; only a request that went astray
// arrives later, and only of a token that has a tombstone.
func (m *machine) random(t *rapid.T) map[string]func(*rapid.T) {
	leases := []time.Duration{time.Second, 61 * time.Millisecond, ttl}
	waits := []time.Duration{waiterTTL, 500 * time.Millisecond, 10 * time.Millisecond}
	sizes := []int{m.capacity}
	if m.capacity == 3 {
		sizes = []int{3, 1, 2, 5}
	}
	around := []time.Duration{0, 1, -1, -1000, -1001, -999, 1000, 1001} // an event, in µs
	if m.mini == nil {
		leases, waits = []time.Duration{ttl, 5 * ttl}, []time.Duration{waiterTTL, 2 * ttl}
		around = []time.Duration{5 * time.Minute / 1000, -5 * time.Minute / 1000}
	}
	size := sizes[0]
	lease := func() time.Duration { return rapid.SampledFrom(leases).Draw(t, "ttl") }
	wait := func() time.Duration { return rapid.SampledFrom(waits).Draw(t, "waiter TTL") }
	anyone := func() *party {
		if len(m.parties) == 0 {
			t.Skip("nobody is there")
		}
		last := m.parties[max(len(m.parties)-10, 0):]
		return last[rapid.IntRange(0, len(last)-1).Draw(t, "who")]
	}
	tombstone := func(p *party) bool { return m.model.Tombstones[p.token.Text()] > m.clock }
	join := func(try bool) func(*rapid.T) {
		return func(t *rapid.T) {
			p := m.party(fmt.Sprint("p", len(m.parties)))
			weights := []int{1, size}
			for w := 2; w < min(size, 6); w++ {
				weights = append(weights, w)
			}
			p.capacity, p.weight, p.try = size, rapid.SampledFrom(weights).Draw(t, "weight"), try
			m.acquire(p, request{lease(), wait(), rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(t, "max"), try, false})
		}
	}
	again := func(t *rapid.T) {
		p := anyone()
		if p.left && !tombstone(p) {
			t.Skip("it asks no more")
		}
		m.acquire(p, request{0, wait(), 0, p.try, !p.try && rapid.Bool().Draw(t, "with its ticket")})
	}
	pass := func(pass func(time.Duration)) func(t *rapid.T) {
		return func(t *rapid.T) {
			events := append(m.events(), m.clock)
			to := events[rapid.IntRange(0, len(events)-1).Draw(t, "event")]
			to = max(to+int64(rapid.SampledFrom(around).Draw(t, "off")), m.clock+1)
			near := func(at int64) bool { return max(at-to, to-at) < m.slack+m.slack/2 }
			if m.mini == nil && (to < m.clock+m.slack || slices.ContainsFunc(events, near)) {
				t.Skip("too close to an event")
			}
			pass(time.Duration(to-m.clock) * time.Microsecond)
		}
	}
	return map[string]func(*rapid.T){
		"join": join(false), "join too": join(false), "try": join(true),
		"again": again, "once more": again,
		"pass": pass(m.after), "pass on": pass(m.after), "stall": pass(m.stall),
		"release": func(*rapid.T) {
			p := anyone()
			if m.waits(p) {
				t.Skip("only a holder releases")
			}
			p.left = true
			m.release(p)
		},
		"renew":    func(*rapid.T) { m.renew(anyone(), lease()) },
		"inspect":  func(*rapid.T) { m.inspect(rapid.SampledFrom([]int{100, 2, 1}).Draw(t, "limit")) },
		"new size": func(*rapid.T) { size = rapid.SampledFrom(sizes).Draw(t, "size") },
		"leave": func(t *rapid.T) {
			p := anyone()
			p.left = true
			m.leave(p, rapid.Bool().Draw(t, "tombstone"))
		},
		"heartbeat": func(t *rapid.T) {
			var who []*party
			for _, p := range m.parties[max(len(m.parties)-8, 0):] {
				if rapid.Bool().Draw(t, "beats") {
					who = append(who, p)
				}
			}
			m.heartbeat(wait(), who...)
		},
		"force release": func(t *rapid.T) {
			late := uint64(rapid.IntRange(0, 1).Draw(t, "late"))
			m.forceRelease(max(m.model.Last, late) - late)
		},
		"lose": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			m.lose()
			m.after(2 * time.Minute) // no ticket of before is given again
		},
		"evict": func(t *rapid.T) {
			keys := slices.Sorted(maps.Keys(m.contents().Left))
			keys = slices.DeleteFunc(keys, func(key string) bool { // the model knows one loss at a time
				return key == "lock" || key == "number" && m.keys["lock"] == "" || m.model.Last == 0 || m.model.Lost || m.model.Damaged
			})
			if len(keys) == 0 || rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			m.evict(rapid.SampledFrom(keys).Draw(t, "key"))
			m.after(2 * time.Minute) // no ticket of before is given again
		},
		"report": func(*rapid.T) {
			if p := anyone(); !m.holds(p) && p.fence > 0 {
				m.report(p)
			}
		},
		"": func(t *rapid.T) {
			m.once = rapid.Bool().Draw(t, "the next step is sent once")
			if len(m.model.Waiters) > 0 && !m.more && m.admitted && m.model.QuarantineLeft() == 0 {
				require.Greater(t, m.model.Waiters[0].Weight, m.model.Free(), "the head fits")
			}
		},
	}
}

// events are the moments to come at which something ends, in order.
func (m *machine) events() (at []int64) {
	from, by := m.model.Forgets()
	at = append(at, from, (from+by)/2, by, m.model.NumberUntil)
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

func TestModel_RandomSteps(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{mutex, semaphore(3), rwMutex} {
		for where, start := range map[string]func(testing.TB) *server{"redis": real, "memory": memory} {
			t.Run(k.name+"/"+where, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				rapid.Check(t, func(t *rapid.T) {
					m := newMachine(t, s, k)
					t.Repeat(m.random(t))
					require.Empty(t, m.notifications(t), "more notifications than grants")
				})
			})
		}
	}
}
