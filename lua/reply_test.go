package lua_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/lua"
)

// isGood reports whether a reply is in the table of verbs.
func isGood(reply any) bool {
	for _, v := range lua.Verbs {
		for _, good := range v.Replies {
			if reflect.DeepEqual(reply, any(good)) {
				return true
			}
		}
	}
	return false
}

// spoiled are all replies that differ from a good one in one place: something else is there, or the rest is missing.
func spoiled(good []any) []any {
	return slices.DeleteFunc(spoil(good), isGood) // fewer grants are no error
}

func spoil(good []any) (bad []any) {
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
			for _, inner := range spoil(had) {
				put(inner)
			}
		case int64:
			put("1")
			put([]any{had})
			put(int64(math.MinInt64))
			if had > 1<<32 {
				put(int64(1 << 53))
			}
		case string:
			put(int64(1))
			put([]any{had})
			if had != lua.AnyText {
				put("")
				put(" " + had)
			}
		}
	}
	return bad
}

func TestReply_SpoiledIsAnError(t *testing.T) {
	for _, v := range lua.Verbs {
		require.NotEmpty(t, v.Replies, v.Name)
		for _, good := range v.Replies {
			fake := &recorder{answer: good}
			require.NoError(t, send(t.Context(), lua.Mutex(fake, ns, "name"), v), "%s: %v", v.Name, good)
			for _, fake.answer = range spoiled(good) {
				err := send(t.Context(), lua.Mutex(fake, ns, "name"), v)
				assert.ErrorIs(t, err, lua.ErrReply, "%s: %#v", v.Name, fake.answer)
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

func TestReply_NoneMakesAMethodPanic(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		fake := &recorder{answer: anything().Draw(r, "reply")}
		for _, v := range lua.Verbs {
			if err := send(t.Context(), lua.Mutex(fake, ns, "name"), v); err != nil {
				require.ErrorIs(r, err, lua.ErrReply, v.Name)
			}
		}
	})
}

func TestErrors_AreWrapped(t *testing.T) {
	down := errors.New("down")
	for _, v := range lua.Verbs {
		assert.ErrorIs(t, send(t.Context(), lua.Mutex(&recorder{answer: down}, ns, "name"), v), down, v.Name)
	}
}

func TestParseNotification_ReadsNothingElse(t *testing.T) {
	who := numbered("c", 1)
	g, err := lua.ParseNotification(who.Text() + " 1753700000000001 6000")
	require.NoError(t, err)
	assert.Equal(t, lua.Grant{Token: who, Fence: 1753700000000001, Given: 6 * time.Second}, g)
	for _, bad := range []string{
		"", " ", "  ", who.Text(), who.Text() + " 1", who.Text() + " 1 ", who.Text() + " x 1", who.Text() + " 1 x", who.Text() + " -1 1",
		who.Text() + " 1 1 1", who.Text() + "  1 1", " " + who.Text() + " 1 1", "c 1 1", "nobody:resting 1 1", who.Text() + " 1.5 1",
		who.Text() + " 18446744073709551616 1", who.Text() + " 1 9223372036854775808", who.Text() + " 1 1\n",
	} {
		_, err := lua.ParseNotification(bad)
		assert.ErrorIs(t, err, lua.ErrReply, "%q", bad)
	}
}
