package lua_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// echo is a server that gives one reply to everything.
type echo struct {
	reply any
}

func (e echo) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	switch reply := e.reply.(type) {
	case nil:
		cmd.SetErr(redis.Nil)
	case error:
		cmd.SetErr(reply)
	default:
		cmd.SetVal(reply)
	}
	return cmd
}

func (e echo) Eval(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return e.EvalSha(ctx, "", nil)
}

// refusal is an error that the server sends.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// lines are a reply as text: one value in a line, marked as in RESP3. What has a length there ends with a line "." here,
// so that every text is a reply, and a small change of it is a small change of the reply.
type lines []string

func parseReply(text string) any {
	l := lines(strings.Split(text, "\n"))
	return l.value()
}

func (l *lines) value() any {
	if len(*l) == 0 || (*l)[0] == "" {
		l.skip()
		return nil
	}
	mark, rest := (*l)[0][0], (*l)[0][1:]
	l.skip()
	switch mark {
	case '+':
		return rest
	case '-':
		return refusal(rest)
	case '#':
		return rest == "t"
	case ':':
		if n, err := strconv.ParseInt(rest, 10, 64); err == nil {
			return n
		}
	case ',':
		if x, err := strconv.ParseFloat(rest, 64); err == nil {
			return x
		}
	case '(':
		if n, ok := new(big.Int).SetString(rest, 10); ok {
			return n
		}
	case '*':
		return l.list()
	case '%':
		m := map[any]any{}
		for _, v := range l.list() {
			m[fmt.Sprint(v)] = v
		}
		return m
	}
	return nil
}

func (l *lines) list() []any {
	values := []any{}
	for len(*l) > 0 && (*l)[0] != "." {
		values = append(values, l.value())
	}
	l.skip()
	return values
}

func (l *lines) skip() { *l = (*l)[min(1, len(*l)):] }

// written is a reply as the text that reads as it.
func written(v any) string {
	switch v := v.(type) {
	case []any:
		text := "*"
		for _, item := range v {
			text += "\n" + written(item)
		}
		return text + "\n."
	case string:
		return "+" + v
	case int64:
		return ":" + strconv.FormatInt(v, 10)
	default:
		return "_"
	}
}

// edges are all replies that differ from a good one in one number, which is none of ours, or just one.
func edges(good []any) (all []any) {
	for i, had := range good {
		put := func(v any) {
			reply := slices.Clone(good)
			reply[i] = v
			all = append(all, reply)
		}
		switch had := had.(type) {
		case []any:
			for _, inner := range edges(had) {
				put(inner)
			}
		case int64:
			for _, n := range []int64{
				math.MinInt64, -1, 0, math.MaxInt64, 9223372036854, 9223372036855 /* ms to ns */, 1<<53 - 1, 1 << 53,
			} {
				put(n)
			}
		case string:
			put("0")
			put("9")
		}
	}
	return all
}

// plausible checks what a verb returns for a reply that it accepts.
func plausible(t *testing.T, result any, tokens int) {
	t.Helper()
	switch r := result.(type) {
	case lua.Reply:
		goodNumber(t, r.Fence)
		goodNumber(t, uint64(r.Ticket))
		switch r.Outcome {
		case lua.Granted:
			goodFence(t, r.Fence)
		case lua.Queued:
			assert.Positive(t, r.Ticket)
			assert.Positive(t, r.Position)
			assert.Zero(t, r.RetryAfter%time.Millisecond, "%d overflowed", r.RetryAfter)
		case lua.Full:
			assert.Positive(t, r.Position)
		case lua.CapacityDiffers:
			assert.Positive(t, r.Capacity)
		default:
			assert.Equal(t, lua.Busy, r.Outcome)
		}
	case lua.Handoff:
		for _, g := range r.Grants {
			goodGrant(t, g)
		}
	case lua.Renewal:
		if r.Held {
			goodFence(t, r.Fence)
		} else {
			assert.Zero(t, r.Fence)
		}
	case lua.HeartbeatReply:
		goodNumber(t, r.Fence)
		assert.Zero(t, r.RetryAfter%time.Millisecond, "%d overflowed", r.RetryAfter)
		require.Len(t, r.States, tokens)
		for _, s := range r.States {
			assert.Contains(t, []lua.WaiterState{lua.NotQueued, lua.StillQueued, lua.Holding, lua.NowGranted}, s)
		}
		assert.True(t, -1 <= r.First && r.First < tokens, "%d of %d", r.First, tokens)
	case lua.Snapshot:
		goodNumber(t, r.Fence)
		assert.False(t, r.Now.Before(time.UnixMicro(0)))
		for _, n := range []int{r.Used, r.Capacity, r.Waiting} {
			assert.GreaterOrEqual(t, n, 0)
		}
		for _, h := range r.Holders {
			goodNumber(t, h.Fence)
			assert.GreaterOrEqual(t, h.Weight, 0) // unknown after an eviction
			assert.Zero(t, h.Left%time.Millisecond, "%d overflowed", h.Left)
		}
		for _, w := range r.Waiters {
			goodNumber(t, uint64(w.Ticket))
			assert.Positive(t, w.Weight)
			assert.False(t, w.Expires.Before(time.UnixMicro(0)))
		}
	default:
		assert.Failf(t, "a verb returns what this test does not know", "%T", result)
	}
}

// withoutAmbiguous clears what is set whatever the error.
func withoutAmbiguous(result any) any {
	switch r := result.(type) {
	case lua.Reply:
		r.Ambiguous = false
		return r
	case lua.Handoff:
		r.Ambiguous = false
		return r
	}
	return result
}

func FuzzReply(f *testing.F) {
	for _, v := range lua.Verbs {
		for _, reply := range v.Replies {
			f.Add(written(reply), uint8(2))
			for _, other := range append(spoiled(reply), edges(reply)...) {
				f.Add(written(other), uint8(2))
			}
		}
	}
	for _, text := range []string{
		"", "_", "#t", ":1", ",1.5", "(18446744073709551616", "+granted", "%\n+granted\n:9\n+empty\n.", "*\n.", "*\n*\n*\n*",
		"-ERR x", "-NOSCRIPT x", "-WRONGTYPE x", "-OOM x", "-NOPERM x", "*\n-ERR x\n.", "*\n+granted\n(9\n+empty\n.",
		"*\n:9\n:0\n:0\n*\n.\n.",
	} {
		f.Add(text, uint8(0))
	}
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		reply := parseReply(text)
		tokens := make([]token.Token, 1+n%4)
		for i := range tokens {
			tokens[i] = numbered("c", i+1)
		}
		server := echo{reply: reply}
		for _, l := range []lua.Lock{lua.Mutex(server, ns, "name"), lua.Semaphore(server, ns, "name", 5)} {
			for _, v := range lua.Verbs {
				result, err := v.Call(t.Context(), l, tokens)
				switch refused, ok := reply.(error); {
				case err == nil:
					require.False(t, ok, "%s takes an error for a reply", v.Name)
					plausible(t, result, len(tokens))
					continue
				case ok:
					require.ErrorIs(t, err, refused, v.Name)
				default:
					require.ErrorIs(t, err, lua.ErrReply, v.Name)
				}
				assert.Zero(t, withoutAmbiguous(result), v.Name)
			}
			more, err := l.Admit(t.Context(), ttl)
			assert.False(t, more && err != nil)
		}
	})
}
