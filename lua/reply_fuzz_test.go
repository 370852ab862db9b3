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
	redis.Scripter
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
			for _, n := range []int64{math.MinInt64, -1, 0, math.MaxInt64, 9223372036854, 9223372036855} { // ms to ns
				put(n)
			}
		case string:
			for _, n := range []string{"0", "-1", "9007199254740991", "9007199254740992", "18446744073709551615"} {
				put(n)
			}
		}
	}
	return all
}

// answered is a lock whose server gives that reply to everything.
type answered struct {
	lua.Lock
	reply any
}

// The same calls, whatever comes back. Each checks what it accepts.
var accepts = map[string]func(*testing.T, answered, []token.Token) error{
	"acquire": func(t *testing.T, l answered, tokens []token.Token) error {
		a, err := l.Acquire(t.Context(), lua.Ask{Token: tokens[0], TTL: ttl, Patience: patience, Weight: 1})
		a.Resent = false // holds whatever the error
		if err != nil {
			assert.Zero(t, a)
			return err
		}
		goodNumber(t, a.Fence)
		goodNumber(t, uint64(a.Ticket))
		switch a.Outcome {
		case lua.Granted:
			goodFence(t, a.Fence)
		case lua.Queued:
			assert.Positive(t, a.Ticket)
			assert.Positive(t, a.Position)
			assert.Zero(t, a.Helps%time.Millisecond, "%d overflowed", a.Helps)
		case lua.Full:
			assert.Positive(t, a.Position)
		case lua.Capacity:
			assert.Positive(t, a.Capacity)
		default:
			assert.Equal(t, lua.Busy, a.Outcome)
		}
		return nil
	},
	"release": func(t *testing.T, l answered, tokens []token.Token) error {
		h, err := l.Release(t.Context(), &lua.Leaving{Token: tokens[0]}, ttl)
		return goodHandover(t, h, err)
	},
	"leave": func(t *testing.T, l answered, tokens []token.Token) error {
		h, err := l.Leave(t.Context(), &lua.Leaving{Token: tokens[0]}, ttl, patience)
		return goodHandover(t, h, err)
	},
	"force-release": func(t *testing.T, l answered, _ []token.Token) error {
		h, err := l.ForceRelease(t.Context(), ttl, 9)
		return goodHandover(t, h, err)
	},
	"renew": func(t *testing.T, l answered, tokens []token.Token) error {
		fence, held, err := l.Renew(t.Context(), tokens[0], ttl, 9)
		if held {
			require.NoError(t, err)
			goodFence(t, fence)
			return nil
		}
		assert.Zero(t, fence)
		if err == nil {
			assert.Equal(t, "lost", l.reply.([]any)[0])
		}
		return err
	},
	"beat": func(t *testing.T, l answered, tokens []token.Token) error {
		p, err := l.Beat(t.Context(), ttl, patience, tokens)
		if err != nil {
			assert.Zero(t, p)
			return err
		}
		goodNumber(t, p.Fence)
		assert.Zero(t, p.Helps%time.Millisecond, "%d overflowed", p.Helps)
		require.Len(t, p.States, len(tokens))
		for _, s := range p.States {
			assert.Contains(t, []lua.State{lua.Gone, lua.Waiting, lua.Holding, lua.Admitted}, s)
		}
		assert.True(t, -1 <= p.Best && p.Best < len(tokens), "%d of %d", p.Best, len(tokens))
		return nil
	},
	"admit": func(t *testing.T, l answered, _ []token.Token) error {
		more, err := l.Admit(t.Context(), ttl)
		assert.False(t, more && err != nil)
		return err
	},
	"inspect": func(t *testing.T, l answered, _ []token.Token) error {
		s, err := l.Inspect(t.Context(), 9)
		if err != nil {
			assert.Zero(t, s)
			return err
		}
		goodNumber(t, s.Fence)
		assert.False(t, s.Now.Before(time.UnixMicro(0)))
		for _, n := range []int{s.Used, s.Capacity, s.Waiting} {
			assert.GreaterOrEqual(t, n, 0)
		}
		for _, h := range s.Holders {
			goodNumber(t, h.Fence)
			assert.GreaterOrEqual(t, h.Weight, 0) // nobody knows it after an eviction
			assert.Zero(t, h.Left%time.Millisecond, "%d overflowed", h.Left)
		}
		for _, w := range s.Waiters {
			goodNumber(t, uint64(w.Ticket))
			assert.Positive(t, w.Weight)
			assert.False(t, w.Alive.Before(time.UnixMicro(0)))
		}
		return nil
	},
}

func goodHandover(t *testing.T, h lua.Handover, err error) error {
	t.Helper()
	h.Resent = false // holds whatever the error
	if err != nil {
		assert.Zero(t, h)
		return err
	}
	for _, g := range h.Grants {
		goodGrant(t, g)
	}
	return nil
}

func FuzzReply(f *testing.F) {
	for _, all := range replies() {
		for _, reply := range all {
			f.Add(written(reply), uint8(2))
			for _, other := range append(spoiled(reply.([]any)), edges(reply.([]any))...) {
				f.Add(written(other), uint8(2))
			}
		}
	}
	for _, text := range []string{
		"", "_", "#t", ":1", ",1.5", "(18446744073709551616", "+granted", "%\n+granted\n+9\n+empty\n.", "*\n.", "*\n*\n*\n*",
		"-ERR x", "-NOSCRIPT x", "-WRONGTYPE x", "-OOM x", "-NOPERM x", "*\n-ERR x\n.", "*\n+granted\n(9\n+empty\n.",
		"*\n+9\n:0\n:0\n*\n.\n.",
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
			for verb, call := range accepts {
				err := call(t, answered{l, reply}, tokens)
				if refused, ok := reply.(error); ok {
					require.ErrorIs(t, err, refused, verb)
				} else if err != nil {
					require.ErrorIs(t, err, lua.ErrReply, verb)
				}
			}
		}
	})
}
