package lua

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// Verb is a verb in tests.
type Verb struct {
	Name string
	// Call calls the verb's method. A verb of one token sends the first. Each other argument has a value of its own: in
	// the order of the script's ARGV they are 11, 12 and so on.
	Call func(context.Context, Lock, []token.Token) (any, error)
	// Replies are good replies: one of each form that the script has.
	Replies [][]any
}

// AnyText is in Replies where every text is as good as another, SomeToken where a token has to be.
const (
	AnyText   = "any text"
	SomeToken = "c:1.00000010000.000000000000000000001A"
)

type (
	reply  = []any
	tokens = []token.Token
)

// Verbs is the table of verbs from which tests are derived. A test compares it with the files in scripts.
var Verbs = []Verb{
	{"acquire", func(ctx context.Context, l Lock, t tokens) (any, error) {
		return l.Acquire(ctx, Request{t[0], 11 * ms, 12, 13, 14 * ms, false, 15})
	}, []reply{{"granted", large, AnyText}, {"queued", large, one, large, int64(-1), AnyText}, {"busy", AnyText, AnyText}, {"full", one}, {"capacity", large}}},

	{"release", func(ctx context.Context, l Lock, t tokens) (any, error) {
		return l.Release(ctx, t[0], 11)
	}, handoffs},

	{"leave", func(ctx context.Context, l Lock, t tokens) (any, error) {
		return l.Leave(ctx, t[0], true)
	}, handoffs},

	{"renew", func(ctx context.Context, l Lock, t tokens) (any, error) {
		return l.Renew(ctx, t[0], 11*ms, 12)
	}, []reply{{"renewed", large}, {"lost", int64(0)}, {"lost", large}}},

	{"heartbeat", func(ctx context.Context, l Lock, t tokens) (any, error) {
		return l.Heartbeat(ctx, 11*ms, t)
	}, []reply{{large, int64(-1), reply{"queued", "holding", "not_queued"}}, {large, one, reply{"granted", "queued", "queued"}}}},

	{"force_release", func(ctx context.Context, l Lock, _ tokens) (any, error) {
		return l.ForceRelease(ctx, 11)
	}, handoffs},

	{"inspect", func(ctx context.Context, l Lock, _ tokens) (any, error) {
		return l.Inspect(ctx, 11)
	}, []reply{{large, large, one, one, reply{reply{AnyText, large, one, one}}, one, reply{reply{AnyText, large, large, one}, reply{AnyText, large, large, one}}, one}}},
}

var handoffs = []reply{
	{one, AnyText}, {one, AnyText, SomeToken, large, one}, {one, AnyText, SomeToken, large, one, SomeToken, large, one},
}

const (
	ms    = time.Millisecond
	one   = int64(1)                     // a count, or a duration
	large = int64(1_753_700_000_000_001) // a number that is as large as a time
)

// ScriptNames lists the verbs that have a script.
func ScriptNames() []string { return slices.Clone(verbs) }

// Scripts returns the scripts of all kinds of locks, by kind and verb.
func Scripts() map[string]map[string]string {
	all := map[string]map[string]string{}
	for kind, scripts := range map[string]map[string]script{"mutex": mutex.scripts, "permits": permits.scripts} {
		all[kind] = map[string]string{}
		for verb, s := range maps.All(scripts) {
			all[kind][verb] = s.text
		}
	}
	return all
}

// Keys returns the keys of a lock in the order of KEYS.
func (l Lock) Keys() []string { return l.keys }
