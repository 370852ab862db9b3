package lua_test

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/internal/model"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// verb is all that the tests of this package know of a verb. What is the same for all verbs is derived from it: that the
// method sends what the header of the script names and refuses replies of another form; a foreign key, another layout, a
// script that Redis does not know, lost replies; that the cost does not grow; that the model does the same.
type verb struct {
	name string // as the script's

	// call calls the method. A verb of one token sends the first. Each other argument has a value of its own: in the order
	// of the script's ARGV they are 11, 12 and so on.
	call func(lua.Lock, []token.Token) (any, error)

	// replies are good replies: one of each form that the script has.
	replies [][]any

	samples map[string]sample

	// steps are those of scenarios that send the verb, by their first word. Each returns what it gives, in words.
	steps map[string]func(m *machine, o options, want string) string

	// random are random steps.
	random map[string]func(*random)
}

// sample is a request to a lock as machine.contend makes it, or an idle one: of its holder, of the second waiter, or of a
// stranger.
type sample struct {
	send       func(l lua.Lock, waiters []token.Token) error
	ends       token.Token // whose lease or ticket it ends, also if it fails then; zero: a request that fails changes nothing
	unnumbered []string    // the locks (idle, contended) on which it works even if their number is damaged
}

// anyText stands where every text is as good as another, someToken where a token has to be.
const (
	anyText   = "any text"
	someToken = "c:1.00000010000.0000000001.0.000000000000000000001A"

	ms    = time.Millisecond
	one   = int64(1)                     // a count, or a duration
	large = int64(1_753_700_000_000_001) // a number that is as large as a time
)

type (
	list   = []any
	tokens = []token.Token
)

var anyLock = []string{idle, contended}

// verbs is the table of verbs. A test compares it with the files in scripts.
var verbs = []verb{
	{
		name: "acquire",
		call: func(l lua.Lock, t tokens) (any, error) {
			return l.Acquire(ctx, lua.Request{
				Token: t[0], WaiterTTL: 11 * ms, MaxWaiters: 12, Ticket: 13,
			})
		},
		replies: []list{
			{"granted", large, anyText}, {"queued", large, one, large, int64(-1), anyText}, {"queued", large, one, large, int64(-1)}, {"busy", anyText, anyText}, {"busy", anyText}, {"busy", anyText, anyText, one},
			{"full", one}, {"capacity", large, large},
		},
		samples: map[string]sample{
			"join":    acquires(lua.Request{Token: stranger, WaiterTTL: waiterTTL}),
			"return":  acquires(lua.Request{Token: stranger, WaiterTTL: waiterTTL, Ticket: 1e15 + 1}),
			"again":   acquires(lua.Request{Token: second, WaiterTTL: waiterTTL}),
			"try":     acquires(lua.Request{Token: stranger, Try: true}),
			"bounded": acquires(lua.Request{Token: stranger, WaiterTTL: waiterTTL, MaxWaiters: 1}),
			"extend":  acquires(lua.Request{Token: holder, WaiterTTL: waiterTTL}, contended),
		},
		// acquire a b*2 x/c    parties; b wants 2 permits, c is of client x; of 5: capacity; ttl 5m, wait 5m: durations;
		//                      max 4: waiters; try: does not queue; ticket: with the one that it has
		//   -> granted, queued 1, busy, full 4, capacity 5; if the test wants it, "by a" and "retry 45m"
		steps: map[string]func(m *machine, o options, want string) string{
			"acquire": func(m *machine, o options, want string) string {
				var all []string
				wants := strings.Split(want, ",")
				for i, p := range o.who {
					all = append(all, m.reply(m.acquire(p, o.request), wants[min(i, len(wants)-1)]))
				}
				return strings.Join(all, ", ")
			},
		},
		random: map[string]func(*random){
			"join":     func(r *random) { r.join(false) },
			"join too": func(r *random) { r.join(false) },
			"try":      func(r *random) { r.join(true) },
			"again":    (*random).again, "once more": (*random).again,
		},
	},
	{
		name:    "release",
		call:    func(l lua.Lock, t tokens) (any, error) { return l.Release(ctx, t[0], 11, 12*ms) },
		replies: handoffs,
		samples: map[string]sample{
			"release":       {func(l lua.Lock, _ tokens) error { return last(l.Release(ctx, holder, holderFence, 0)) }, holder, anyLock},
			"early release": {func(l lua.Lock, _ tokens) error { return last(l.Release(ctx, holder, holderFence, ttl/2)) }, holder, anyLock},
		},
		// release a            seen b: with the fence of b; kept 5m: the lock stays taken for that long
		//   -> released grants b c, grants b(45m): for how long, nothing
		steps: map[string]func(m *machine, o options, want string) string{
			"release": func(m *machine, o options, want string) string {
				return m.became(m.release(o.p, o.fence(), o.kept), want)
			},
		},
		random: map[string]func(*random){
			"release": func(r *random) {
				p := r.anyone()
				if r.waits(p) {
					r.t.Skip("only a holder releases")
				}
				p.left = true
				r.release(p, p.fence, r.kept())
			},
		},
	},
	{
		name: "leave",
		call: func(l lua.Lock, t tokens) (any, error) {
			return l.Leave(ctx, 11*ms, lua.Leaving{Token: t[0], Tombstone: true}, lua.Leaving{Token: t[1]}, lua.Leaving{Token: t[2]})
		},
		replies: handoffs,
		samples: map[string]sample{
			"leave": {func(l lua.Lock, _ tokens) error {
				return last(l.Leave(ctx, 0, lua.Leaving{Token: second, Tombstone: true}))
			}, second, anyLock},
			"waiter leaves": {func(l lua.Lock, _ tokens) error {
				return last(l.Leave(ctx, 0, lua.Leaving{Token: second}))
			}, second, anyLock},
			"holder leaves": {func(l lua.Lock, _ tokens) error {
				return last(l.Leave(ctx, ttl/2, lua.Leaving{Token: holder, Tombstone: true}))
			}, holder, anyLock},
		},
		// leave a tombstone    kept 5m -> as release
		steps: map[string]func(m *machine, o options, want string) string{
			"leave": func(m *machine, o options, want string) string {
				return m.became(m.leave(o.p, o.tombstone, o.kept), want)
			},
		},
		random: map[string]func(*random){
			"leave": func(r *random) {
				p := r.anyone()
				p.left = true
				r.leave(p, rapid.Bool().Draw(r.t, "tombstone"), r.kept())
			},
		},
	},
	{
		name:    "force_release",
		call:    func(l lua.Lock, _ tokens) (any, error) { return l.ForceRelease(ctx, 11, 12) },
		replies: []list{{large, one, anyText}, {large, one, anyText, someToken, large, one}},
		samples: map[string]sample{
			"force release": {func(l lua.Lock, _ tokens) error { return last(l.ForceRelease(ctx, 1<<53, 0)) }, holder, anyLock},
			"late release":  {send: func(l lua.Lock, _ tokens) error { return last(l.ForceRelease(ctx, 1, 0)) }, unnumbered: anyLock},
		},
		// force seen a         with a's fence; without seen with the last one -> as release
		steps: map[string]func(m *machine, o options, want string) string{
			"force": func(m *machine, o options, want string) string {
				seen := max(m.contents().last(), m.model.LastNumber())
				if o.seen != nil {
					seen = o.seen.fence
				}
				return m.became(m.forceRelease(seen), want)
			},
		},
		random: map[string]func(*random){
			"force release": func(r *random) {
				late := uint64(rapid.IntRange(0, 1).Draw(r.t, "late"))
				r.forceRelease(max(r.model.Last, late) - late)
			},
		},
	},
	{
		name:    "renew",
		call:    func(l lua.Lock, t tokens) (any, error) { return l.Renew(ctx, t[0], 11*ms, 12) },
		replies: []list{{"renewed"}, {"lost"}},
		samples: map[string]sample{
			"renew": {send: func(l lua.Lock, _ tokens) error { return last(l.Renew(ctx, holder, ttl/2, holderFence)) }, unnumbered: anyLock},
		},
		// renew a ttl 5m       seen b: with the fence of b -> renewed, lost
		steps: map[string]func(m *machine, o options, want string) string{
			"renew": func(m *machine, o options, _ string) string {
				return map[bool]string{true: "renewed", false: "lost"}[m.renew(o.p, cmp.Or(o.ttl, ttl), o.fence())]
			},
		},
		random: map[string]func(*random){
			"renew": func(r *random) { p := r.anyone(); r.renew(p, r.lease(), p.fence) },
		},
	},
	{
		name:    "resume",
		call:    func(l lua.Lock, t tokens) (any, error) { return l.Resume(ctx, t[0], 11*ms, 12, "13") },
		replies: []list{{"resumed", large}, {"lost"}},
		samples: map[string]sample{
			"resume": {send: func(l lua.Lock, _ tokens) error { return last(l.Resume(ctx, holder, ttl/2, holderFence, "7")) }},
		},
		// resume a ttl 5m 8    by its token, after which it has the token of a resumed lease; seen z: as if the last number were
		//                      still the fence of z; 8: that request; without it 7 -> resumed, lost
		// original a           from now on a has the token that it had before
		steps: map[string]func(m *machine, o options, want string) string{
			"resume": func(m *machine, o options, _ string) string {
				seen := m.model.LastNumber()
				if o.seen != nil {
					seen = o.seen.fence
				}
				return map[bool]string{true: "resumed", false: "lost"}[m.resume(o.p, cmp.Or(o.ttl, ttl), seen, strconv.Itoa(max(o.number, 7)))]
			},
			"original": func(_ *machine, o options, _ string) string {
				o.p.token = o.p.original
				return ""
			},
		},
		random: map[string]func(*random){
			"resume": func(r *random) {
				p := r.anyone()
				late := uint64(rapid.IntRange(0, 1).Draw(r.t, "late"))
				p.left = r.resume(p, r.lease(), max(r.model.Last, late)-late, rapid.SampledFrom([]string{"7", "8"}).Draw(r.t, "id")) || p.left // it asks no more
			},
		},
	},
	{
		name: "heartbeat",
		call: func(l lua.Lock, t tokens) (any, error) { return l.Heartbeat(ctx, 11*ms, t) },
		replies: []list{
			{large, int64(-1), "qhn"},
		},
		samples: map[string]sample{
			"heartbeat": {send: func(l lua.Lock, waiters tokens) error { return last(l.Heartbeat(ctx, waiterTTL, waiters)) }},
		},
		// heartbeat a b        -> queued, holding, gone; retry 45m: of the head
		steps: map[string]func(m *machine, o options, want string) string{
			"heartbeat": func(m *machine, o options, want string) string {
				r := m.heartbeat(cmp.Or(o.wait, waiterTTL), o.who...)
				names := map[lua.WaiterState]string{
					lua.NotQueued: "gone", lua.StillQueued: "queued", lua.Holding: "holding",
				}
				var all []string
				for _, state := range r.States {
					all = append(all, names[state])
				}
				return strings.TrimSpace(strings.Join(all, ", ") + retry(r.RetryAfter, want))
			},
		},
		random: map[string]func(*random){
			"heartbeat": func(r *random) {
				var who []*party
				for _, p := range r.parties[max(len(r.parties)-8, 0):] {
					if rapid.Bool().Draw(r.t, "beats") {
						who = append(who, p)
					}
				}
				r.heartbeat(r.wait(), who...)
			},
		},
	},
	{
		name: "inspect",
		call: func(l lua.Lock, _ tokens) (any, error) { return l.Inspect(ctx, 11) },
		replies: []list{{
			large, large, one, one, list{list{anyText, large, one}},
			one, list{list{anyText, large, large}, list{anyText, large, large}},
		}},
		samples: map[string]sample{
			"inspect": {send: func(l lua.Lock, _ tokens) error { return last(l.Inspect(ctx, 1000)) }},
		},
		// inspect 10           -> the holders | the waiters, at most 10 of each
		steps: map[string]func(m *machine, o options, want string) string{
			"inspect": func(m *machine, o options, _ string) string {
				if o.number < 0 {
					o.number = 100
				}
				var words []string
				s := m.inspect(o.number)
				for _, h := range s.Holders {
					words = append(words, m.nameOf(h.Token, int(weightOf(h.Token))))
				}
				words = append(words, "|")
				for _, w := range s.Waiters {
					words = append(words, m.nameOf(w.Token, int(weightOf(w.Token))))
				}
				return strings.Join(words, " ")
			},
		},
		random: map[string]func(*random){
			"inspect": func(r *random) { r.inspect(rapid.SampledFrom([]int{100, 2, 1}).Draw(r.t, "limit")) },
		},
	},
	{
		name:    "resize",
		call:    func(l lua.Lock, _ tokens) (any, error) { return l.Resize(ctx, 11) },
		replies: handoffs,
		samples: map[string]sample{
			"resize": {send: func(l lua.Lock, _ tokens) error { return last(l.Resize(ctx, 1)) }},
			"reset":  {send: func(l lua.Lock, _ tokens) error { return last(l.Resize(ctx, 0)) }},
		},
		// resize 5; resize 0   for all; as many as each brings -> as release
		steps: map[string]func(m *machine, o options, want string) string{
			"resize": func(m *machine, o options, want string) string { return m.became(m.resize(o.number), want) },
		},
		random: map[string]func(*random){
			"resize": func(r *random) {
				if len(r.sizes) == 1 {
					r.t.Skip("a read-write lock is not resized")
				}
				r.resize(rapid.SampledFrom([]int{0, 1, 2, 3, 6}).Draw(r.t, "to"))
			},
		},
	},
	{
		name:    "waiting",
		call:    func(l lua.Lock, _ tokens) (any, error) { return l.Waiting(ctx) },
		replies: []list{{one}},
		samples: map[string]sample{
			"waiting": {send: func(l lua.Lock, _ tokens) error { return last(l.Waiting(ctx)) }, unnumbered: anyLock},
		},
		// waiting              -> how many wait
		steps: map[string]func(m *machine, o options, want string) string{
			"waiting": func(m *machine, _ options, _ string) string { return strconv.Itoa(m.waiting()) },
		},
		random: map[string]func(*random){
			"waiting": func(r *random) { r.waiting() },
		},
	},
}

var handoffs = []list{
	{one, anyText}, {one, anyText, someToken, large, one}, {one, anyText, someToken, large, one, someToken, large, one},
}

// verbsOf are the verbs of a lock; a mutex has fewer.
func verbsOf(l lua.Lock) []verb {
	return slices.DeleteFunc(slices.Clone(verbs), func(v verb) bool { return !l.Has(v.name) })
}

// samplesOf are those of its verbs.
func samplesOf(l lua.Lock) map[string]sample {
	all := map[string]sample{}
	for _, v := range verbsOf(l) {
		maps.Copy(all, v.samples)
	}
	return all
}

// acquires requests one permit.
func acquires(r lua.Request, unnumbered ...string) sample {
	send := func(l lua.Lock, _ tokens) error { return last(l.Acquire(ctx, r)) }
	return sample{send: send, unnumbered: unnumbered}
}

func last(_ any, err error) error { return err }

// request is how a party asks.
type request struct {
	ttl, wait   time.Duration
	max         int
	try, ticket bool
}

var outcomes = map[model.Outcome]lua.Outcome{
	model.Granted: lua.Granted, model.Queued: lua.Queued, model.Busy: lua.Busy, model.Full: lua.Full,
	model.CapacityDiffers: lua.CapacityDiffers,
}

func (m *machine) acquire(p *party, r request) lua.Reply {
	m.t.Helper()
	m.begin("%s acquires %d of %d: %+v", p.name, p.weight, p.capacity, r)
	if to := cmp.Or(r.ttl, p.token.TTL()); to != p.token.TTL() || p.weight != p.token.Weight() {
		require.False(m.t, p.asked, "the TTL and the weight of %s are those of its first request", p.name)
		p.token = numbered(p.token.Client(), to, p.weight, slices.Index(m.parties, p)+1)
		p.original = p.token
	}
	p.asked = true
	r.wait = cmp.Or(r.wait, waiterTTL)
	m.lasting(p.token.TTL(), r.wait)
	ask := lua.Request{Token: p.token, WaiterTTL: r.wait, MaxWaiters: r.max, Try: r.try}
	if r.ticket {
		ask.Ticket = lua.Ticket(p.ticket)
	}
	same := model.Request{
		Token: p.token.Text(), TTL: p.token.TTL().Microseconds(), WaiterTTL: r.wait.Microseconds(), MaxWaiters: r.max,
		Weight: p.weight, Capacity: p.capacity, Ticket: uint64(ask.Ticket),
	}
	if r.try {
		same.WaiterTTL = 0
	}
	var first lua.Reply
	return do(m, func() (lua.Reply, error) { return m.lock(p).Acquire(ctx, ask) }, func(got lua.Reply) {
		m.admitted = !m.holds(p) && m.model.Tombstones[same.Token] <= m.clock
		isNew, before := !m.waits(p) && !r.ticket, m.model.LastNumber()
		want := m.model.Acquire(m.clock, same)
		m.more, m.admitted = want.Queue == model.More, m.admitted && want.Outcome != model.CapacityDiffers
		first = lua.Reply{
			Outcome: outcomes[want.Outcome], Position: want.Position, Capacity: want.Capacity, Wanted: want.Wanted, Holder: want.Holder,
			More: m.more && want.Outcome != model.Queued, Fence: want.Fence, Ticket: lua.Ticket(want.Ticket), Last: want.Last, RetryAfter: got.RetryAfter,
		}
		require.Equal(m.t, first, got)
		switch want.Outcome {
		case model.Busy:
			if want.RetryAfter > 0 && !m.more {
				m.helps(want.RetryAfter, got.RetryAfter)
			}
			require.Equal(m.t, want.RetryAfter > 0, got.RetryAfter > 0)
		case model.Granted:
			p.fence = got.Fence
		case model.Queued:
			p.ticket = uint64(got.Ticket)
			m.helps(want.RetryAfter, got.RetryAfter)
			require.True(m.t, !isNew || p.ticket > before, "a new ticket is above the last number")
		}
	}, func(second lua.Reply) {
		first.More, second.More = false, false
		require.GreaterOrEqual(m.t, second.Last, first.Last)
		second.RetryAfter, second.Last = m.again(first.RetryAfter, second.RetryAfter), first.Last
		require.Equal(m.t, first, second, "the second reply")
	})
}

func (m *machine) release(p *party, fence uint64, kept time.Duration) lua.Handoff {
	m.t.Helper()
	m.begin("%s releases, kept %v", p.name, kept)
	if m.blind { // its grants were not compared
		fence = number(m.contents().Holders[p.token.Text()])
	}
	return m.handoff(func() (lua.Handoff, error) { return m.lock(p).Release(ctx, p.token, fence, kept) },
		func() model.Handoff { return m.model.Release(m.clock, p.token.Text(), fence, kept.Microseconds()) })
}

func (m *machine) leave(p *party, tombstone bool, kept time.Duration) lua.Handoff {
	m.t.Helper()
	m.begin("%s leaves, tombstone %v, kept %v", p.name, tombstone, kept)
	h := m.handoff(func() (lua.Handoff, error) {
		return m.lock(p).Leave(ctx, kept, lua.Leaving{Token: p.token, Tombstone: tombstone})
	},
		func() model.Handoff {
			return m.model.Leave(m.clock, kept.Microseconds(), []string{p.token.Text()}, map[bool]int{true: 1}[tombstone])
		})
	for name, at := range m.contents().Tombstones {
		require.True(m.t, !tombstone || int64(at) > m.clock, "the tombstone of %s is over", name)
	}
	return h
}

// forceRelease is told the fence that its caller has seen.
func (m *machine) forceRelease(seen uint64) lua.Handoff {
	m.t.Helper()
	m.begin("force release, seen %d", seen)
	return m.handoff(func() (lua.Handoff, error) { return m.any().ForceRelease(ctx, seen, 0) },
		func() model.Handoff { return m.model.ForceRelease(m.clock, seen) })
}

func (m *machine) resize(permits int) lua.Handoff {
	m.t.Helper()
	m.begin("resize to %d", permits)
	return m.handoff(func() (lua.Handoff, error) { return m.any().Resize(ctx, permits) },
		func() model.Handoff { return m.model.Resize(m.clock, permits) })
}

func (m *machine) handoff(call func() (lua.Handoff, error), same func() model.Handoff) lua.Handoff {
	m.t.Helper()
	m.lasting(ttl, 0)
	return do(m, call, func(got lua.Handoff) {
		want := same()
		m.more, m.admitted = want.Queue == model.More, true
		require.Equal(m.t, lua.Handoff{Released: want.Released, More: m.more, Grants: m.grants(want.Grants)}, got)
	}, func(second lua.Handoff) {
		require.Equal(m.t, lua.Handoff{}, second, "the second time there is nothing to release")
	})
}

// grants returns the model's grants as they are sent.
func (m *machine) grants(granted []model.Grant) (all []lua.Grant) {
	for _, g := range granted {
		who, err := token.Parse(g.Token)
		require.NoError(m.t, err)
		all = append(all, lua.Grant{Token: who, Fence: g.Fence, Given: time.Duration(g.Given) * time.Microsecond})
		for _, p := range m.parties {
			if p.token == who && g.Fence > 0 {
				p.fence = g.Fence
			}
		}
	}
	return all
}

func (m *machine) renew(p *party, ttl time.Duration, fence uint64) bool {
	m.t.Helper()
	m.begin("%s renews for %v", p.name, ttl)
	m.lasting(ttl, 0)
	return do(m, func() (bool, error) { return m.lock(p).Renew(ctx, p.token, ttl, fence) }, func(got bool) {
		require.Equal(m.t, m.model.Renew(m.clock, p.token.Text(), ttl.Microseconds(), fence), got)
	}, func(bool) {})
}

func (m *machine) resume(p *party, ttl time.Duration, seen uint64, id string) bool {
	m.t.Helper()
	m.begin("%s is resumed for %v", p.name, ttl)
	m.lasting(ttl, 0)
	before, resumed := p.token, p.token.With(token.Resumed)
	return do(m, func() (uint64, error) { return m.any().Resume(ctx, before, ttl, seen, id) }, func(got uint64) {
		require.Equal(m.t, m.model.Resume(m.clock, before.Text(), ttl.Microseconds(), seen, id), got)
		if got > 0 {
			p.token, p.fence = resumed, got
		}
	}, func(uint64) {}) > 0
}

var waiterStates = map[model.WaiterState]lua.WaiterState{
	model.NotQueued: lua.NotQueued, model.StillQueued: lua.StillQueued, model.Holding: lua.Holding,
}

func (m *machine) heartbeat(wait time.Duration, who ...*party) lua.HeartbeatReply {
	m.t.Helper()
	tokens, texts := make([]token.Token, len(who)), make([]string, len(who))
	for i, p := range who {
		tokens[i], texts[i] = p.token, p.token.Text()
	}
	m.begin("heartbeat of %v, waiter TTL %v", texts, wait)
	m.lasting(0, wait)
	var first lua.HeartbeatReply
	return do(m, func() (lua.HeartbeatReply, error) { return m.any().Heartbeat(ctx, wait, tokens) }, func(got lua.HeartbeatReply) {
		want := m.model.Heartbeat(m.clock, wait.Microseconds(), m.capacity, texts)
		first = lua.HeartbeatReply{RetryAfter: got.RetryAfter, Last: want.Last}
		m.more, m.admitted = want.RetryAfter == 0, true
		for _, state := range want.States {
			first.States = append(first.States, waiterStates[state])
		}
		require.Equal(m.t, first, got)
		m.helps(want.RetryAfter, got.RetryAfter)
	}, func(second lua.HeartbeatReply) {
		second.Last = first.Last
		second.RetryAfter = m.again(first.RetryAfter, second.RetryAfter)
		require.Equal(m.t, first, second, "the second reply")
	})
}

func (m *machine) waiting() int {
	m.t.Helper()
	m.begin("how many wait")
	return do(m, func() (int, error) { return m.any().Waiting(ctx) }, func(got int) {
		require.Equal(m.t, m.model.Waiting(m.clock), got)
	}, func(int) {})
}

func (m *machine) inspect(limit int) lua.Snapshot {
	m.t.Helper()
	m.begin("inspect %d", limit)
	return do(m, func() (lua.Snapshot, error) { return m.any().Inspect(ctx, limit) }, func(got lua.Snapshot) {
		if m.model.Lost {
			return // nothing is repaired
		}
		want := lua.Snapshot{
			Now: time.UnixMicro(m.clock), Fence: m.model.LastNumber(), Used: m.model.Used(), Capacity: got.Capacity,
			Waiting: len(m.model.Waiters),
		}
		require.True(m.t, !m.model.InUse() && m.model.Resized == 0 || got.Capacity == m.model.InForce(), "capacity %d", got.Capacity)
		for i, h := range m.model.FirstToExpire(limit) {
			left := got.Holders[min(i, len(got.Holders)-1)].Left
			m.near(h.Expires-m.clock, left.Microseconds(), "what is left to "+h.Token)
			want.Holders = append(want.Holders, lua.Holder{Token: h.Token, Fence: h.Fence, Left: left})
		}
		for _, w := range m.model.Waiters[:min(limit, len(m.model.Waiters))] {
			want.Waiters = append(want.Waiters, lua.Waiter{
				Token: w.Token, Ticket: lua.Ticket(w.Ticket), Expires: time.UnixMicro(m.model.Expires(m.clock, w)),
			})
		}
		require.Equal(m.t, want, got)
	}, func(lua.Snapshot) {})
}
