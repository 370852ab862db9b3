package script_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// verb is all that the tests of this package know of a verb. What is the same for all verbs is derived from it: that
// the method sends what the header of the script names and refuses replies of another form; a foreign key, another
// layout, a script that Redis does not know, lost replies; that the cost does not grow.
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
}

// sample is a request to a lock as machine.contend makes it, or an idle one.
type sample struct {
	send func(script.Lock, requesters) error
	// whose lease or ticket it ends, also if it fails then; nil: a request that fails changes nothing
	ends func(requesters) token.Token
	// the locks (idle, contended) on which it works even if their number is damaged
	unnumbered []string
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
			{"granted", large, anyText}, {"queued", large, one, large, int64(-1), anyText}, {"queued", large, one, large,
				int64(-1)},
			{"busy", anyText, one, "lock", anyText}, {"busy", anyText, one, "lock"}, {"full", one, "key"}, {"resized", one},
		},
		samples: map[string]sample{
			"join": acquires(func(r requesters) script.Request {
				return script.Request{Token: r.stranger,
					WaiterTTL: waiterTTL}
			}),
			"return": acquires(func(r requesters) script.Request {
				return script.Request{Token: r.stranger, WaiterTTL: waiterTTL, Ticket: 1e15 + 1}
			}),
			"again": acquires(func(r requesters) script.Request {
				return script.Request{Token: r.second,
					WaiterTTL: waiterTTL}
			}),
			"try": acquires(func(r requesters) script.Request { return script.Request{Token: r.stranger, Try: true} }),
			"bounded": acquires(func(r requesters) script.Request {
				return script.Request{Token: r.stranger, WaiterTTL: waiterTTL, MaxWaiters: 1}
			}),
			"extend": acquires(func(r requesters) script.Request {
				return script.Request{Token: r.holder,
					WaiterTTL: waiterTTL}
			}, contended),
		},
		// acquire a b*2 x/c parties; b asks for 2 permits, c is of client x; of 5: the number of permits that its token says;
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
				fence := o.fence()
				return m.became(m.handoff(func() (script.Handoff, error) {
					return m.lock().Release(ctx, o.p.token, fence, m.rest(o.kept, o.by))
				}), want)
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
				return m.became(m.handoff(func() (script.Handoff, error) {
					return m.lock().Leave(ctx, m.rest(o.kept, o.by), script.Leaving{Token: o.p.token, Tombstone: o.tombstone})
				}), want)
			},
		},
	},
	{
		name:    "force_release",
		call:    func(l script.Lock, _ tokenList) (any, error) { return l.ForceRelease(ctx, 11, 12) },
		replies: []list{{large, one, anyText}, {large, one, anyText, someToken, large, one}},
		samples: map[string]sample{
			"force release": {func(l script.Lock, _ requesters) error { return last(l.ForceRelease(ctx, 1<<53, 0)) }, ofHolder,
				anyLock},
			"late release": {send: func(l script.Lock, _ requesters) error { return last(l.ForceRelease(ctx, 1, 0)) },
				unnumbered: anyLock},
		},
		// force seen a         with a's fence; without seen with the last one -> as release
		steps: map[string]func(m *machine, o options, want string) string{
			"force": func(m *machine, o options, want string) string {
				seen := m.contents().highest()
				if o.seen != nil {
					seen = o.seen.fence
				}
				return m.became(m.handoff(func() (script.Handoff, error) { return m.lock().ForceRelease(ctx, seen, 0) }), want)
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
				fence := o.fence()
				renewed := do(m, func() (bool, error) { return m.lock().Renew(ctx, o.p.token, cmp.Or(o.ttl, ttl), fence) })
				return map[bool]string{true: "renewed", false: "lost"}[renewed]
			},
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
				fence := o.fence()
				m.asks(o.by, 0)
				r := do(m, func() (resumption, error) {
					return resumed(m.lock().Resume(ctx, o.p.token, fence, cmp.Or(o.ttl, ttl), o.by.token))
				})
				return map[bool]string{true: "resumed", false: "lost"}[r.Fence > 0]
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
				var tokens []token.Token
				for _, p := range o.who {
					tokens = append(tokens, p.token)
				}
				r := do(m, func() (script.HeartbeatReply, error) {
					return m.lock().Heartbeat(ctx, cmp.Or(o.wait, waiterTTL), tokens)
				})
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
	},
	{
		name: "inspect",
		call: func(l script.Lock, _ tokenList) (any, error) { return l.Inspect(ctx, 11, 12) },
		replies: []list{{
			large, large, one, one, list{list{anyText, large, one}},
			one, one, list{list{anyText, large, large}, list{anyText, large, large}},
			list{list{anyText, one, one, one, one, large, one}},
		}},
		samples: map[string]sample{
			"inspect": {send: func(l script.Lock, _ requesters) error { return last(l.Inspect(ctx, 1000, 1000)) }},
		},
		// inspect 10           -> the holders | the waiters, at most 10 of each
		steps: map[string]func(m *machine, o options, want string) string{
			"inspect": func(m *machine, o options, _ string) string {
				if o.number < 0 {
					o.number = 100
				}
				var words []string
				s := do(m, func() (script.Snapshot, error) { return m.lock().Inspect(ctx, o.number, o.number) })
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
			"resize": func(m *machine, o options, want string) string {
				return m.became(m.handoff(func() (script.Handoff, error) { return m.lock().Resize(ctx, o.number) }), want)
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

// asks makes the token of a party, by its first request.
func (m *machine) asks(p *party, ttl time.Duration) {
	m.t.Helper()
	to := cmp.Or(ttl, p.token.TTL())
	if !p.asked {
		p.token = numbered(p.token.Client(), to, p.weight, p.permits, slices.Index(m.parties, p)+1)
	}
	p.asked = true
	require.Equal(m.t, tokens.Terms{TTL: to, Weight: p.weight, Permits: p.permits, Flags: p.token.Terms().Flags},
		p.token.Terms(), "%s asks for what it asked first", p.name)
}

func (m *machine) acquire(p *party, r request) script.Reply {
	m.t.Helper()
	m.asks(p, r.ttl)
	ask := script.Request{Token: p.token, WaiterTTL: cmp.Or(r.wait, waiterTTL), MaxWaiters: r.max, Try: r.try}
	if r.ticket {
		ask.Ticket = script.Ticket(p.ticket)
	}
	return do(m, func() (script.Reply, error) { return m.lock().Acquire(ctx, ask) })
}

// rest is what a lease leaves. by is nil: nothing
func (m *machine) rest(kept time.Duration, by *party) script.Rest {
	if by == nil {
		return script.Rest{}
	}
	m.asks(by, 0)
	by.token = rested(by.token)
	return script.Rest{Left: kept, By: by.token}
}

func (m *machine) handoff(call func() (script.Handoff, error)) script.Handoff {
	m.t.Helper()
	return do(m, call)
}
