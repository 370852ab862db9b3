package script_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/token"
)

// verb is all that the tests of this package know of a verb. Tests of all verbs are derived from it. They check that
// the method refuses replies of another form, and that the cost does not grow. They try a foreign key, a damaged number
// and refused writes.
type verb struct {
	name string // as the script's

	// replies are good replies: one of each form that the script has.
	replies [][]any

	samples map[string]sample
}

// sample is a request to a lock as machine.contend makes it, or an idle one.
type sample struct {
	send func(script.Lock, requesters) (any, error)
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

// try sends it, and returns its error.
func (s sample) try(l script.Lock, r requesters) error {
	_, err := s.send(l, r)
	return err
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

type list = []any

var anyLock = []string{idle, contended}

// verbs is the table of verbs. A test compares it with the files in scripts.
var verbs = []verb{
	{
		name: "acquire",
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
		name:    "release",
		replies: handoffs,
		samples: map[string]sample{
			"release": {func(l script.Lock, r requesters) (any, error) {
				return l.Release(ctx, r.holder, r.fence, script.Rest{})
			}, ofHolder, anyLock},
			"early release": {func(l script.Lock, r requesters) (any, error) {
				return l.Release(ctx, r.holder, r.fence, script.Rest{Left: ttl / 2, By: r.by})
			}, ofHolder, []string{idle}},
		},
	},
	{
		name:    "leave",
		replies: handoffs,
		samples: map[string]sample{
			"leave": {func(l script.Lock, r requesters) (any, error) {
				return l.Leave(ctx, script.Rest{}, script.Leaving{Token: r.second, Tombstone: true})
			}, ofSecond, anyLock},
			"waiter leaves": {func(l script.Lock, r requesters) (any, error) {
				return l.Leave(ctx, script.Rest{}, script.Leaving{Token: r.second})
			}, ofSecond, anyLock},
			"holder leaves": {func(l script.Lock, r requesters) (any, error) {
				return l.Leave(ctx, script.Rest{Left: ttl / 2, By: r.by}, script.Leaving{Token: r.holder, Tombstone: true})
			}, ofHolder, []string{idle}},
		},
	},
	{
		name:    "force_release",
		replies: []list{{large, one, anyText}, {large, one, anyText, someToken, large, one}},
		samples: map[string]sample{
			"force release": {func(l script.Lock, _ requesters) (any, error) { return l.ForceRelease(ctx, 1<<53, 0) }, ofHolder,
				anyLock},
			"late release": {send: func(l script.Lock, _ requesters) (any, error) { return l.ForceRelease(ctx, 1, 0) },
				unnumbered: anyLock},
		},
	},
	{
		name:    "renew",
		replies: []list{{"renewed"}, {"lost"}},
		samples: map[string]sample{
			"renew": {send: func(l script.Lock, r requesters) (any, error) {
				return l.Renew(ctx, r.holder, ttl/2, r.fence)
			}, unnumbered: anyLock},
		},
	},
	{
		name:    "resume",
		replies: []list{{"resumed", large}, {"lost"}},
		samples: map[string]sample{
			"resume": {send: func(l script.Lock, r requesters) (any, error) {
				return resumed(l.Resume(ctx, r.holder, r.fence, ttl/2, r.by))
			}},
		},
	},
	{
		name:    "heartbeat",
		replies: []list{{large, int64(-1), "qhn"}},
		samples: map[string]sample{
			"heartbeat": {send: func(l script.Lock, r requesters) (any, error) { return l.Heartbeat(ctx, waiterTTL, r.waiters) }},
		},
	},
	{
		name: "inspect",
		replies: []list{{
			large, large, one, one, list{list{anyText, large, one}},
			one, one, list{list{anyText, large, large}, list{anyText, large, large}},
			list{list{anyText, one, one, one, one, large, one}},
		}},
		samples: map[string]sample{
			"inspect": {send: func(l script.Lock, _ requesters) (any, error) { return l.Inspect(ctx, 100, 100) }},
		},
	},
	{
		name:    "resize",
		replies: handoffs,
		samples: map[string]sample{
			"resize": {send: func(l script.Lock, _ requesters) (any, error) { return l.Resize(ctx, 1) }},
			"reset":  {send: func(l script.Lock, _ requesters) (any, error) { return l.Resize(ctx, 0) }},
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

// faked sends samples to a fake.
var faked = requesters{
	holder: mutex.held(0), by: mutex.held(1), second: mutex.queued(1), stranger: mutex.held(2), fence: 1,
	waiters: mutex.waiters(3),
}

// answered calls check with what the method returns for each sample, if Redis gives an answer.
func (v verb) answered(answer any, check func(result any, err error)) {
	for _, s := range v.samples {
		check(s.send(script.Semaphore(fake{answer}, "ns", "name"), faked))
	}
}

// acquires requests one permit.
func acquires(who func(requesters) token.Token, request script.Request, unnumbered ...string) sample {
	send := func(l script.Lock, r requesters) (any, error) {
		request := request
		request.Token = who(r)
		return l.Acquire(ctx, request)
	}
	return sample{send: send, unnumbered: unnumbered}
}

// resumption is what Resume returns besides its error.
type resumption struct {
	Fence     uint64
	Ambiguous bool
}

func resumed(fence uint64, ambiguous bool, err error) (resumption, error) {
	return resumption{fence, ambiguous}, err
}

// Urgent requests do not wait behind the others of their client. Repeatable ones are sent again on another connection
// after a second without a reply; who sends the others repeats them.
//
//fairlock:promise Thousands of Locks that begin or end at once
func TestVerbs_UrgentAndRepeatable(t *testing.T) {
	var r unsent
	var all, urgent, once []string
	lock := script.Semaphore(&r, "ns", "name")
	for _, v := range verbs {
		all = append(all, v.name)
		for _, s := range v.samples {
			require.Error(t, s.try(lock, faked))
		}
		if r.Urgent {
			urgent = append(urgent, v.name)
		}
		if !r.Repeatable {
			once = append(once, v.name)
		}
	}
	assert.ElementsMatch(t, script.ScriptNames(), all)
	assert.Equal(t, []string{"release", "renew", "heartbeat"}, urgent)
	assert.Equal(t, []string{"renew", "heartbeat", "resize"}, once)
	_, err := lock.Leave(ctx, script.Rest{}, script.Leaving{}, script.Leaving{Urgent: true})
	require.Error(t, err)
	assert.True(t, r.Urgent)
}

func TestRenew_RoundsUpToMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", 1: "1", ms: "1", ms + 1: "2"} {
		var r unsent
		_, err := script.Mutex(&r, "ns", "name").Renew(ctx, mutex.held(0), d, 0)
		require.Error(t, err)
		assert.Equal(t, want, fmt.Sprint(r.Args[2]))
	}
}
