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
func (r *random) wait() time.Duration  { return rapid.SampledFrom(r.waitings).Draw(r.t, "waiter TTL") }

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
	p.capacity, p.weight, p.try = r.size, rapid.SampledFrom(weights).Draw(r.t, "weight"), try
	r.acquire(p, request{r.lease(), r.wait(), rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(r.t, "max"), try, false})
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
				return key == "lock" || key == "number" && r.keys["lock"] == "" || r.model.Last == 0 || r.model.Lost || r.model.Damaged
			})
			if len(keys) == 0 || rapid.IntRange(0, 3).Draw(t, "really") != 0 {
				t.Skip("not so often")
			}
			r.evict(rapid.SampledFrom(keys).Draw(t, "key"))
			r.after(2 * time.Minute) // no ticket of before is given again
		},
		"": func(t *rapid.T) {
			r.once = rapid.Bool().Draw(t, "the next step is sent once")
			if len(r.model.Waiters) > 0 && !r.more && r.admitted && r.model.QuarantineLeft() == 0 {
				require.Greater(t, r.model.Waiters[0].Weight, r.model.Free(), "the head fits")
			}
		},
	}
	for _, v := range verbs {
		for name, step := range v.random {
			all[name] = func(*rapid.T) { step(r) }
		}
	}
	return all
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
