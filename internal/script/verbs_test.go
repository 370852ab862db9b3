package script_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/internal/model"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// verb is all that the tests of this package know of a verb. What is the same for all verbs is derived from it: that the
// method sends what the header of the script names and refuses replies of another form; a foreign key, another layout, a
// script that Redis does not know, lost replies; that the cost does not grow; that the model does the same.
type verb struct {
	name string // as the script's

	// call calls the method. A verb of one token sends the first. Each other argument has a value of its own: in the order
	// of the script's ARGV they are 11, 12 and so on.
	call func(script.Lock, []token.Token) (any, error)

	// replies are good replies: one of each form that the script has.
	replies [][]any

	samples map[string]sample

	// steps are those of scenarios that send the verb, by their first word. Each returns what it gives, in words.
	steps map[string]func(m *machine, o options, want string) string

	// random are random steps.
	random map[string]func(*random)
}

// sample is a request to a lock as machine.contend makes it, or an idle one.
type sample struct {
	send       func(script.Lock, requesters) error
	ends       func(requesters) token.Token // whose lease or ticket it ends, also if it fails then; nil: a request that fails changes nothing
	unnumbered []string                     // the locks (idle, contended) on which it works even if their number is damaged
}

// requesters are who sends samples: the holder, a token that takes its lease over, the second waiter, or a stranger.
type requesters struct {
	holder, by, second, stranger token.Token
	waiters                      []token.Token // that one heartbeat lists
}

func ofHolder(r requesters) token.Token { return r.holder }
func ofSecond(r requesters) token.Token { return r.second }

// anyText stands where every text is as good as another, someToken where a token has to be.
const (
	anyText   = "any text"
	someToken = "c:2.00007ps0" + "000000000000000000001A"

	ms    = time.Millisecond
	one   = int64(1)                     // a count, or a duration
	large = int64(1_753_700_000_000_001) // a number that is as large as a time
)

type (
	list      = []any
	tokenList = []token.Token
)

var anyLock = []string{idle, contended}

// verbs is the table of verbs. A test compares it with the files in scripts.
var verbs = []verb{
	{
		name: "acquire",
		call: func(l script.Lock, t tokenList) (any, error) {
			return l.Acquire(ctx, script.Request{
				Token: t[0], WaiterTTL: 11 * ms, MaxWaiters: 12, Ticket: 13, MaxLine: 14,
			})
		},
		replies: []list{
			{"granted", large, anyText}, {"queued", large, one, large, int64(-1), anyText}, {"queued", large, one, large, int64(-1)},
			{"busy", anyText, one, "lock", anyText}, {"busy", anyText, one, "lock"}, {"full", one, "key"}, {"resized", one},
		},
		samples: map[string]sample{
			"join": acquires(func(r requesters) script.Request { return script.Request{Token: r.stranger, WaiterTTL: waiterTTL} }),
			"return": acquires(func(r requesters) script.Request {
				return script.Request{Token: r.stranger, WaiterTTL: waiterTTL, Ticket: 1e15 + 1}
			}),
			"again": acquires(func(r requesters) script.Request { return script.Request{Token: r.second, WaiterTTL: waiterTTL} }),
			"try":   acquires(func(r requesters) script.Request { return script.Request{Token: r.stranger, Try: true} }),
			"bounded": acquires(func(r requesters) script.Request {
				return script.Request{Token: r.stranger, WaiterTTL: waiterTTL, MaxWaiters: 1}
			}),
			"extend": acquires(func(r requesters) script.Request { return script.Request{Token: r.holder, WaiterTTL: waiterTTL} }, contended),
		},
		// acquire a b*2 x/c    parties; b asks for 2 permits, c is of client x; of 5: the number of permits that its token says;
		//                      ttl 5m, wait 5m: durations; max 4: waiters; try: does not queue; ticket: with the one that it has
		//   -> granted, queued 1, busy, full 4, resized 5; if the test wants it, "by a" and "retry 45m"
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
		name: "release",
		call: func(l script.Lock, t tokenList) (any, error) {
			return l.Release(ctx, t[0], 11, script.Rest{Left: 12 * ms, By: t[1]})
		},
		replies: handoffs,
		samples: map[string]sample{
			"release": {func(l script.Lock, r requesters) error {
				return last(l.Release(ctx, r.holder, holderFence, script.Rest{}))
			}, ofHolder, anyLock},
			"early release": {func(l script.Lock, r requesters) error {
				return last(l.Release(ctx, r.holder, holderFence, script.Rest{Left: ttl / 2, By: r.by}))
			}, ofHolder, []string{idle}},
		},
		// release a            seen b: with the fence of b; kept 5m by r: for that long r holds the lock
		//   -> released grants b c, grants b(45m): for how long, nothing
		steps: map[string]func(m *machine, o options, want string) string{
			"release": func(m *machine, o options, want string) string {
				return m.became(m.release(o.p, o.fence(), o.kept, o.by), want)
			},
		},
		random: map[string]func(*random){
			"release": func(r *random) {
				p := r.anyone()
				if r.waits(p) {
					r.t.Skip("only a holder releases")
				}
				p.left = true
				kept, by := r.rest(p)
				r.release(p, p.fence, kept, by)
			},
		},
	},
	{
		name: "leave",
		call: func(l script.Lock, t tokenList) (any, error) {
			return l.Leave(ctx, script.Rest{Left: 11 * ms, By: t[1]},
				script.Leaving{Token: t[0], Tombstone: true}, script.Leaving{Token: t[1]}, script.Leaving{Token: t[2]})
		},
		replies: handoffs,
		samples: map[string]sample{
			"leave": {func(l script.Lock, r requesters) error {
				return last(l.Leave(ctx, script.Rest{}, script.Leaving{Token: r.second, Tombstone: true}))
			}, ofSecond, anyLock},
			"waiter leaves": {func(l script.Lock, r requesters) error {
				return last(l.Leave(ctx, script.Rest{}, script.Leaving{Token: r.second}))
			}, ofSecond, anyLock},
			"holder leaves": {func(l script.Lock, r requesters) error {
				return last(l.Leave(ctx, script.Rest{Left: ttl / 2, By: r.by}, script.Leaving{Token: r.holder, Tombstone: true}))
			}, ofHolder, []string{idle}},
		},
		// leave a tombstone    kept 5m by r -> as release
		steps: map[string]func(m *machine, o options, want string) string{
			"leave": func(m *machine, o options, want string) string {
				return m.became(m.leave(o.p, o.tombstone, o.kept, o.by), want)
			},
		},
		random: map[string]func(*random){
			"leave": func(r *random) {
				p := r.anyone()
				p.left = true
				kept, by := r.rest(p)
				r.leave(p, rapid.Bool().Draw(r.t, "tombstone"), kept, by)
			},
		},
	},
	{
		name:    "force_release",
		call:    func(l script.Lock, _ tokenList) (any, error) { return l.ForceRelease(ctx, 11, 12) },
		replies: []list{{large, one, anyText}, {large, one, anyText, someToken, large, one}},
		samples: map[string]sample{
			"force release": {func(l script.Lock, _ requesters) error { return last(l.ForceRelease(ctx, 1<<53, 0)) }, ofHolder, anyLock},
			"late release":  {send: func(l script.Lock, _ requesters) error { return last(l.ForceRelease(ctx, 1, 0)) }, unnumbered: anyLock},
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
		call:    func(l script.Lock, t tokenList) (any, error) { return l.Renew(ctx, t[0], 11*ms, 12) },
		replies: []list{{"renewed"}, {"lost"}},
		samples: map[string]sample{
			"renew": {send: func(l script.Lock, r requesters) error {
				return last(l.Renew(ctx, r.holder, ttl/2, holderFence))
			}, unnumbered: anyLock},
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
		call:    func(l script.Lock, t tokenList) (any, error) { return resumed(l.Resume(ctx, t[0], 11, 12*ms, t[1])) },
		replies: []list{{"resumed", large}, {"lost"}},
		samples: map[string]sample{
			"resume": {send: func(l script.Lock, r requesters) error {
				return last(resumed(l.Resume(ctx, r.holder, holderFence, ttl/2, r.by)))
			}},
		},
		// resume a by b        ttl 5m; seen z: with the fence of z; b has the weight of a unless it says -> resumed, lost
		steps: map[string]func(m *machine, o options, want string) string{
			"resume": func(m *machine, o options, _ string) string {
				return map[bool]string{true: "resumed", false: "lost"}[m.resume(o.p, o.fence(), cmp.Or(o.ttl, ttl), o.by)]
			},
		},
		random: map[string]func(*random){
			"resume": func(r *random) {
				p := r.anyone()
				late := uint64(rapid.IntRange(0, 1).Draw(r.t, "late"))
				by := p.successor
				if by == nil || rapid.Bool().Draw(r.t, "by another one") {
					weight := p.weight
					if p.permits > 1 {
						weight = rapid.SampledFrom([]int{weight, weight, 1, p.permits}).Draw(r.t, "weight")
					}
					by = r.succeeds(p, weight)
				}
				if r.resume(p, max(p.fence, late)-late, r.lease(), by) {
					p.left, p.successor = true, by // it asks no more
				}
			},
		},
	},
	{
		name:    "heartbeat",
		call:    func(l script.Lock, t tokenList) (any, error) { return l.Heartbeat(ctx, 11*ms, t) },
		replies: []list{{large, int64(-1), "qhn"}},
		samples: map[string]sample{
			"heartbeat": {send: func(l script.Lock, r requesters) error { return last(l.Heartbeat(ctx, waiterTTL, r.waiters)) }},
		},
		// heartbeat a b        -> queued, holding, gone; retry 45m: of the head
		steps: map[string]func(m *machine, o options, want string) string{
			"heartbeat": func(m *machine, o options, want string) string {
				r := m.heartbeat(cmp.Or(o.wait, waiterTTL), o.who...)
				names := map[script.WaiterState]string{
					script.NotQueued: "gone", script.StillQueued: "queued", script.Holding: "holding",
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
		name:    "waiting",
		call:    func(l script.Lock, _ tokenList) (any, error) { return l.Waiting(ctx) },
		replies: []list{{one}},
		samples: map[string]sample{
			"waiting": {send: func(l script.Lock, _ requesters) error { return last(l.Waiting(ctx)) }, unnumbered: anyLock},
		},
		// waiting              -> how many wait
		steps: map[string]func(m *machine, o options, want string) string{
			"waiting": func(m *machine, _ options, _ string) string { return fmt.Sprint(m.waiting()) },
		},
		random: map[string]func(*random){
			"waiting": func(r *random) { r.waiting() },
		},
	},
	{
		name: "inspect",
		call: func(l script.Lock, _ tokenList) (any, error) { return l.Inspect(ctx, 11) },
		replies: []list{{
			large, large, one, one, list{list{anyText, large, one}},
			one, list{list{anyText, large, large}, list{anyText, large, large}},
			list{list{anyText, one, one, one, one, large, one}},
		}},
		samples: map[string]sample{
			"inspect": {send: func(l script.Lock, _ requesters) error { return last(l.Inspect(ctx, 1000)) }},
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
		call:    func(l script.Lock, _ tokenList) (any, error) { return l.Resize(ctx, 11) },
		replies: handoffs,
		samples: map[string]sample{
			"resize": {send: func(l script.Lock, _ requesters) error { return last(l.Resize(ctx, 1)) }},
			"reset":  {send: func(l script.Lock, _ requesters) error { return last(l.Resize(ctx, 0)) }},
		},
		// resize 5; resize 0   for all; as many as each token says -> as release
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
}

var handoffs = []list{
	{one, anyText}, {one, anyText, someToken, large, one}, {one, anyText, someToken, large, one, someToken, large, one},
}

// verbsOf are the verbs of a lock; a mutex has fewer.
func verbsOf(l script.Lock) []verb {
	return slices.DeleteFunc(slices.Clone(verbs), func(v verb) bool { return !l.Has(v.name) })
}

// samplesOf are those of its verbs.
func samplesOf(l script.Lock) map[string]sample {
	all := map[string]sample{}
	for _, v := range verbsOf(l) {
		maps.Copy(all, v.samples)
	}
	return all
}

// acquires requests one permit.
func acquires(request func(requesters) script.Request, unnumbered ...string) sample {
	send := func(l script.Lock, r requesters) error { return last(l.Acquire(ctx, request(r))) }
	return sample{send: send, unnumbered: unnumbered}
}

func last(_ any, err error) error { return err }

// resumption is what Resume returns besides its error.
type resumption struct {
	Fence     uint64
	Ambiguous bool
}

func resumed(fence uint64, ambiguous bool, err error) (resumption, error) {
	return resumption{fence, ambiguous}, err
}

// request is how a party asks.
type request struct {
	ttl, wait   time.Duration
	max         int
	try, ticket bool
}

var outcomes = map[model.Outcome]script.Outcome{
	model.Granted: script.Granted, model.Queued: script.Queued, model.Busy: script.Busy, model.Full: script.Full,
	model.Resized: script.Resized,
}

// asks makes the token of a party, by its first request.
func (m *machine) asks(p *party, ttl time.Duration) {
	m.t.Helper()
	to := cmp.Or(ttl, p.token.TTL())
	if !p.asked {
		p.token = numbered(p.token.Client(), to, p.weight, p.permits, slices.Index(m.parties, p)+1)
	}
	p.asked = true
	require.Equal(m.t, tokens.Terms{TTL: to, Weight: p.weight, Permits: p.permits},
		tokens.Of(p.token.Text()), "%s asks for what it asked first", p.name)
}

func (m *machine) acquire(p *party, r request) script.Reply {
	m.t.Helper()
	m.begin("%s acquires %d of %d: %+v", p.name, p.weight, p.permits, r)
	m.asks(p, r.ttl)
	r.wait = cmp.Or(r.wait, waiterTTL)
	m.lasting(p.token.TTL())
	ask := script.Request{Token: p.token, WaiterTTL: r.wait, MaxWaiters: r.max, Try: r.try}
	if r.ticket {
		ask.Ticket = script.Ticket(p.ticket)
	}
	same := model.Request{
		Token: p.token.Text(), WaiterTTL: r.wait.Microseconds(), MaxWaiters: r.max, Ticket: uint64(ask.Ticket),
	}
	if r.try {
		same.WaiterTTL = 0
	}
	var first script.Reply
	return do(m, func() (script.Reply, error) { return m.lock().Acquire(ctx, ask) }, func(got script.Reply) {
		m.admitted = !m.holds(p) && m.model.Tombstones[same.Token] <= m.clock
		isNew, before := !m.waits(p) && !r.ticket, m.model.LastNumber()
		want := m.model.Acquire(m.clock, same)
		m.more = want.Queue == model.More
		first = script.Reply{
			Outcome: outcomes[want.Outcome], Why: m.why(same, want.Outcome), Position: want.Position, Permits: want.Permits, Holder: want.Holder,
			More: m.more && want.Ticket == 0, Fence: want.Fence, Ticket: script.Ticket(want.Ticket), Last: want.Last, RetryAfter: got.RetryAfter,
		}
		require.Equal(m.t, first, got)
		switch want.Outcome {
		case model.Busy:
			m.helps(want.RetryAfter, got.RetryAfter)
		case model.Granted:
			p.fence = got.Fence
		case model.Queued:
			p.ticket = uint64(got.Ticket)
			m.helps(want.RetryAfter, got.RetryAfter)
			require.True(m.t, !isNew || p.ticket > before, "a new ticket is above the last number")
		}
	}, func(second script.Reply) {
		first.More, second.More = false, false
		require.GreaterOrEqual(m.t, second.Last, first.Last)
		second.RetryAfter, second.Last = m.again(first.RetryAfter, second.RetryAfter), first.Last
		require.Equal(m.t, first, second, "the second reply")
	})
}

// why says what a request would have to wait for.
func (m *machine) why(r model.Request, outcome model.Outcome) script.Why {
	switch {
	case outcome != model.Busy && outcome != model.Full:
		return ""
	case outcome == model.Busy && m.model.Tombstones[r.Token] <= m.clock && m.model.Fits(r.Token):
		return script.WhyTurn
	default:
		return script.WhyLock
	}
}

// rest is what a lease leaves, as the lock and as the model get it. by is nil: nothing
func (m *machine) rest(kept time.Duration, by *party) (rest script.Rest, same model.Rest) {
	if by == nil {
		return rest, same
	}
	m.asks(by, 0)
	m.lasting(kept)
	return script.Rest{Left: kept, By: by.token}, model.Rest{Left: kept.Microseconds(), By: by.token.Text()}
}

func (m *machine) release(p *party, fence uint64, kept time.Duration, by *party) script.Handoff {
	m.t.Helper()
	m.begin("%s releases, kept %v by %+v", p.name, kept, by)
	if m.blind { // its grants were not compared
		fence = number(m.contents().Holders[p.token.Text()])
	}
	rest, same := m.rest(kept, by)
	return m.handoff(by, func() (script.Handoff, error) { return m.lock().Release(ctx, p.token, fence, rest) },
		func() model.Handoff { return m.model.Release(m.clock, p.token.Text(), fence, same) })
}

func (m *machine) leave(p *party, tombstone bool, kept time.Duration, by *party) script.Handoff {
	m.t.Helper()
	m.begin("%s leaves, tombstone %v, kept %v by %+v", p.name, tombstone, kept, by)
	rest, same := m.rest(kept, by)
	h := m.handoff(by, func() (script.Handoff, error) {
		return m.lock().Leave(ctx, rest, script.Leaving{Token: p.token, Tombstone: tombstone})
	},
		func() model.Handoff {
			return m.model.Leave(m.clock, same, []string{p.token.Text()}, map[bool]int{true: 1}[tombstone])
		})
	for name, at := range m.contents().Tombstones {
		require.True(m.t, !tombstone || int64(at) > m.clock, "the tombstone of %s is over", name)
	}
	return h
}

// forceRelease is told the fence that its caller has seen.
func (m *machine) forceRelease(seen uint64) script.Handoff {
	m.t.Helper()
	m.begin("force release, seen %d", seen)
	return m.handoff(nil, func() (script.Handoff, error) { return m.lock().ForceRelease(ctx, seen, 0) },
		func() model.Handoff { return m.model.ForceRelease(m.clock, seen) })
}

func (m *machine) resize(permits int) script.Handoff {
	m.t.Helper()
	m.begin("resize to %d", permits)
	return m.handoff(nil, func() (script.Handoff, error) { return m.lock().Resize(ctx, permits) },
		func() model.Handoff { return m.model.Resize(m.clock, permits) })
}

// handoff does a step that can release the lock, perhaps to the party that has the rest.
func (m *machine) handoff(by *party, call func() (script.Handoff, error), same func() model.Handoff) script.Handoff {
	m.t.Helper()
	m.lasting(ttl)
	return do(m, call, func(got script.Handoff) {
		want := same()
		m.more, m.admitted = want.Queue == model.More, true
		require.Equal(m.t, script.Handoff{Released: want.Released, More: m.more, Grants: m.grants(want.Grants)}, got)
		if by != nil {
			by.fence = m.fenceOf(by)
		}
	}, func(second script.Handoff) {
		rests := by != nil && m.holds(by)
		require.Equal(m.t, script.Handoff{Released: rests}, second, "the second time there is nothing to release")
	})
}

// grants returns the model's grants as they are sent.
func (m *machine) grants(granted []model.Grant) (all []script.Grant) {
	for _, g := range granted {
		who, err := token.Parse(g.Token)
		require.NoError(m.t, err)
		all = append(all, script.Grant{Token: who, Fence: g.Fence, Given: time.Duration(g.Given) * time.Microsecond})
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
	m.lasting(ttl)
	return do(m, func() (bool, error) { return m.lock().Renew(ctx, p.token, ttl, fence) }, func(got bool) {
		require.Equal(m.t, m.model.Renew(m.clock, p.token.Text(), ttl.Microseconds(), fence), got)
	}, func(bool) {})
}

func (m *machine) resume(p *party, fence uint64, ttl time.Duration, by *party) bool {
	m.t.Helper()
	m.begin("%s resumes the lease of %s for %v", by.name, p.name, ttl)
	m.asks(by, 0)
	m.lasting(ttl)
	return do(m, func() (resumption, error) { return resumed(m.lock().Resume(ctx, p.token, fence, ttl, by.token)) }, func(got resumption) {
		want := m.model.Resume(m.clock, p.token.Text(), fence, ttl.Microseconds(), by.token.Text())
		require.Equal(m.t, resumption{Fence: want}, got)
		by.fence = max(by.fence, want)
	}, func(resumption) {}).Fence > 0
}

// fenceOf is the fence of the party's lease; 0: it has none.
func (m *machine) fenceOf(p *party) uint64 {
	for _, h := range m.model.Holders {
		if h.Token == p.token.Text() {
			return h.Fence
		}
	}
	return 0
}

var waiterStates = map[model.WaiterState]script.WaiterState{
	model.NotQueued: script.NotQueued, model.StillQueued: script.StillQueued, model.Holding: script.Holding,
}

func (m *machine) heartbeat(wait time.Duration, who ...*party) script.HeartbeatReply {
	m.t.Helper()
	tokens, texts := make([]token.Token, len(who)), make([]string, len(who))
	for i, p := range who {
		tokens[i], texts[i] = p.token, p.token.Text()
	}
	m.begin("heartbeat of %v, waiter TTL %v", texts, wait)
	var first script.HeartbeatReply
	return do(m, func() (script.HeartbeatReply, error) { return m.lock().Heartbeat(ctx, wait, tokens) }, func(got script.HeartbeatReply) {
		want := m.model.Heartbeat(m.clock, wait.Microseconds(), texts)
		first = script.HeartbeatReply{RetryAfter: got.RetryAfter, Last: want.Last}
		m.more, m.admitted = want.RetryAfter == 0, true
		for _, state := range want.States {
			first.States = append(first.States, waiterStates[state])
		}
		require.Equal(m.t, first, got)
		m.helps(want.RetryAfter, got.RetryAfter)
	}, func(second script.HeartbeatReply) {
		second.Last = first.Last
		second.RetryAfter = m.again(first.RetryAfter, second.RetryAfter)
		require.Equal(m.t, first, second, "the second reply")
	})
}

func (m *machine) waiting() int {
	m.t.Helper()
	m.begin("how many wait")
	return do(m, func() (int, error) { return m.lock().Waiting(ctx) }, func(got int) {
		require.Equal(m.t, m.model.Waiting(m.clock), got)
	}, func(int) {})
}

func (m *machine) inspect(limit int) script.Snapshot {
	m.t.Helper()
	m.begin("inspect %d", limit)
	return do(m, func() (script.Snapshot, error) { return m.lock().Inspect(ctx, limit) }, func(got script.Snapshot) {
		if m.model.Lost {
			return // nothing is repaired
		}
		want := script.Snapshot{
			Now: time.UnixMicro(m.clock), Fence: m.model.LastNumber(), Used: m.model.Used(), Resized: m.model.Resized,
			Waiting: len(m.model.Waiters),
		}
		for i, h := range m.model.FirstToExpire(limit) {
			left := got.Holders[min(i, len(got.Holders)-1)].Left
			m.near(h.Expires-m.clock, left.Microseconds(), "what is left to "+h.Token)
			want.Holders = append(want.Holders, script.Holder{Token: h.Token, Fence: h.Fence, Left: left})
		}
		for _, w := range m.model.Waiters[:min(limit, len(m.model.Waiters))] {
			want.Waiters = append(want.Waiters, script.Waiter{
				Token: w.Token, Ticket: script.Ticket(w.Ticket), Expires: time.UnixMicro(m.model.Expires(m.clock, w)),
			})
		}
		require.Equal(m.t, want, got)
	}, func(script.Snapshot) {})
}
