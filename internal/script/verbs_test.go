package script_test

import (
	"maps"
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/token"
)

// verb is all that the tests of this package know of a verb. Tests of all verbs are derived from it. They check that
// the method sends the arguments that the header of the script names, and refuses replies of another form. They try a
// foreign key, another layout, a script that Redis does not know, and lost replies. They check that the cost does not
// grow.
type verb struct {
	name string // as the script's

	// call calls the method. A verb of one token sends the first. Each other argument has a value of its own: in the order
	// of the script's ARGV they are 11, 12 and so on.
	call func(script.Lock, []token.Token) (any, error)

	// replies are good replies: one of each form that the script has.
	replies [][]any

	samples map[string]sample
}

// sample is a request to a lock as machine.contend makes it, or an idle one.
type sample struct {
	send func(script.Lock, requesters) error
	// the token whose lease or ticket it ends, even if it fails then; nil: a request that fails changes nothing
	ends func(requesters) token.Token
	// the locks (idle, contended) on which it works even if their number is damaged
	unnumbered []string
}

// requesters are who sends samples: a holder, a token that takes its lease over, a waiter behind the first, a stranger.
type requesters struct {
	holder, by, second, stranger token.Token
	fence                        uint64        // of the holder
	waiters                      []token.Token // that one heartbeat lists
}

func ofHolder(r requesters) token.Token   { return r.holder }
func ofSecond(r requesters) token.Token   { return r.second }
func ofStranger(r requesters) token.Token { return r.stranger }

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
			"join":    acquires(ofStranger, script.Request{WaiterTTL: waiterTTL}),
			"return":  acquires(ofStranger, script.Request{WaiterTTL: waiterTTL, Ticket: 1e15 + 1}),
			"again":   acquires(ofSecond, script.Request{WaiterTTL: waiterTTL}),
			"try":     acquires(ofStranger, script.Request{Try: true}),
			"bounded": acquires(ofStranger, script.Request{WaiterTTL: waiterTTL, MaxWaiters: 1}),
			"extend":  acquires(ofHolder, script.Request{WaiterTTL: waiterTTL}, contended),
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
				return last(l.Release(ctx, r.holder, r.fence, script.Rest{}))
			}, ofHolder, anyLock},
			"early release": {func(l script.Lock, r requesters) error {
				return last(l.Release(ctx, r.holder, r.fence, script.Rest{Left: ttl / 2, By: r.by}))
			}, ofHolder, []string{idle}},
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
	},
	{
		name:    "renew",
		call:    func(l script.Lock, t tokenList) (any, error) { return l.Renew(ctx, t[0], 11*ms, 12) },
		replies: []list{{"renewed"}, {"lost"}},
		samples: map[string]sample{
			"renew": {send: func(l script.Lock, r requesters) error {
				return last(l.Renew(ctx, r.holder, ttl/2, r.fence))
			}, unnumbered: anyLock},
		},
	},
	{
		name:    "resume",
		call:    func(l script.Lock, t tokenList) (any, error) { return resumed(l.Resume(ctx, t[0], 11, 12*ms, t[1])) },
		replies: []list{{"resumed", large}, {"lost"}},
		samples: map[string]sample{
			"resume": {send: func(l script.Lock, r requesters) error {
				return last(resumed(l.Resume(ctx, r.holder, r.fence, ttl/2, r.by)))
			}},
		},
	},
	{
		name:    "heartbeat",
		call:    func(l script.Lock, t tokenList) (any, error) { return l.Heartbeat(ctx, 11*ms, t) },
		replies: []list{{large, int64(-1), "qhn"}},
		samples: map[string]sample{
			"heartbeat": {send: func(l script.Lock, r requesters) error { return last(l.Heartbeat(ctx, waiterTTL, r.waiters)) }},
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
			"inspect": {send: func(l script.Lock, _ requesters) error { return last(l.Inspect(ctx, 100, 100)) }},
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
func acquires(who func(requesters) token.Token, request script.Request, unnumbered ...string) sample {
	send := func(l script.Lock, r requesters) error {
		request := request
		request.Token = who(r)
		return last(l.Acquire(ctx, request))
	}
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
