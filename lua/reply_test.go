package lua_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/lua"
)

// anyText stands in a reply where every text is as good as another.
const anyText = "any text"

// replies are good answers to the verbs.
func replies() map[string][]any {
	who := numbered("c", 1).Text()
	grants := []any{[]any{who, "9", int64(8)}, []any{who, "9", int64(8)}}
	holders := []any{[]any{anyText, "9", int64(8), int64(1)}}
	waiters := []any{[]any{anyText, "9", "9", int64(1)}, []any{anyText, "9", "9", int64(1)}}
	return map[string][]any{
		"acquire": {
			[]any{"granted", "9", anyText}, []any{"queued", "9", int64(1), "8", int64(-1)}, []any{"full", int64(3)}, []any{"busy", anyText},
			[]any{"capacity", "9"},
		},
		"release":       {[]any{int64(1), anyText, grants}},
		"leave":         {[]any{int64(0), anyText, []any{}}, []any{int64(0), anyText, grants}},
		"force_release": {[]any{int64(0), anyText, grants}},
		"renew":         {[]any{"renewed", "9"}, []any{"lost"}},
		"beat":          {[]any{"9", int64(0), int64(-1), []any{"queued", "granted", "gone"}}},
		"inspect":       {[]any{"9", "9", int64(1), int64(2), holders, int64(1), waiters}},
	}
}

// spoiled are all replies that differ from a good one in one place: something else is there, or the rest is missing.
func spoiled(good []any) (bad []any) {
	for i, had := range good {
		put := func(v any) {
			reply := slices.Clone(good)
			reply[i] = v
			bad = append(bad, reply)
		}
		if _, inner := good[0].([]any); !inner { // a list of lists may be shorter
			bad = append(bad, slices.Clone(good[:i]))
		}
		for _, v := range []any{nil, 1.5, true, []byte("x"), map[any]any{"a": 1}, errors.New("x")} {
			put(v)
		}
		switch had := had.(type) {
		case []any:
			put("1")
			put(int64(1))
			if len(had) > 0 {
				put([]any{nil})
			}
			for _, inner := range spoiled(had) {
				put(inner)
			}
		case int64:
			put("1")
			put([]any{had})
			put(int64(math.MinInt64))
		case string:
			put(int64(1))
			put([]any{had})
			if had != anyText {
				put("")
				put(" " + had)
				put("9007199254740992") // 2^53
			}
		}
	}
	return bad
}

func TestAReplyThatNoScriptGivesIsAnError(t *testing.T) {
	for name, v := range verbs() {
		for _, good := range replies()[name] {
			fake := &recorder{answer: good}
			require.NoError(t, v.call(t.Context(), lua.Mutex(fake, ns, "name")), "%s: %v", name, good)
			for _, fake.answer = range spoiled(good.([]any)) {
				err := v.call(t.Context(), lua.Mutex(fake, ns, "name"))
				assert.ErrorIs(t, err, lua.ErrReply, "%s: %#v", name, fake.answer)
			}
		}
	}
}

// anything is what a server could send at all, in lists of lists.
func anything() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Just[any](true), rapid.Float64().AsAny(), rapid.Int64().AsAny(), rapid.String().AsAny(),
		rapid.SampledFrom([]any{"granted", "queued", "full", "busy", "renewed", "lost", "more", "9", "-1", "18446744073709551616", numbered("c", 1).Text()}),
	)
	list := func(of *rapid.Generator[any]) *rapid.Generator[any] { return rapid.SliceOfN(of, 0, 6).AsAny() }
	return list(rapid.OneOf(leaf, leaf, list(rapid.OneOf(leaf, list(leaf)))))
}

func TestNoReplyMakesUsPanic(t *testing.T) {
	all := verbs()
	rapid.Check(t, func(r *rapid.T) {
		fake := &recorder{answer: anything().Draw(r, "reply")}
		for name, v := range all {
			if err := v.call(t.Context(), lua.Mutex(fake, ns, "name")); err != nil {
				require.ErrorIs(r, err, lua.ErrReply, name)
			}
		}
	})
}

func TestAnErrorOfTheServerStaysWhatItIs(t *testing.T) {
	down := errors.New("down")
	for name, v := range verbs() {
		assert.ErrorIs(t, v.call(t.Context(), lua.Mutex(&recorder{answer: down}, ns, "name")), down, name)
	}
}

func TestParseGrantReadsNothingElse(t *testing.T) {
	who := numbered("c", 1)
	g, err := lua.ParseGrant(who.Text() + " 1753700000000001 6000")
	require.NoError(t, err)
	assert.Equal(t, lua.Grant{Token: who, Fence: 1753700000000001, Given: 6 * time.Second}, g)
	for _, bad := range []string{
		"", " ", "  ", who.Text(), who.Text() + " 1", who.Text() + " 1 ", who.Text() + " x 1", who.Text() + " 1 x", who.Text() + " -1 1",
		who.Text() + " 1 1 1", who.Text() + "  1 1", " " + who.Text() + " 1 1", "c 1 1", "nobody:resting 1 1", who.Text() + " 1.5 1",
		who.Text() + " 18446744073709551616 1", who.Text() + " 1 9223372036854775808", who.Text() + " 1 1\n",
	} {
		_, err := lua.ParseGrant(bad)
		assert.ErrorIs(t, err, lua.ErrReply, "%q", bad)
	}
}
