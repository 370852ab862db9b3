package lua_test

import (
	"context"
	"encoding"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// recorder passes calls on to a server, or answers them itself, and remembers what was sent and what came back.
type recorder struct {
	redis.Scripter     // nil: answer says what comes back
	answer         any // a reply or an error
	calls          []call
}

type call struct {
	keys, args []string // as they travel
	reply      any
}

func (r *recorder) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if r.Scripter != nil {
		return r.note(r.Scripter.EvalSha(ctx, sha, keys, args...), keys, args)
	}
	cmd := redis.NewCmd(ctx)
	if err, ok := r.answer.(error); ok {
		cmd.SetErr(err)
	} else {
		cmd.SetVal(r.answer)
	}
	return r.note(cmd, keys, args)
}

func (r *recorder) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return r.note(r.Scripter.Eval(ctx, script, keys, args...), keys, args)
}

func (r *recorder) note(cmd *redis.Cmd, keys []string, args []any) *redis.Cmd {
	c := call{keys: keys, reply: cmd.Val()}
	for _, a := range args {
		if m, ok := a.(encoding.BinaryMarshaler); ok {
			text, err := m.MarshalBinary()
			if err != nil {
				panic(err)
			}
			a = string(text)
		}
		c.args = append(c.args, fmt.Sprint(a))
	}
	r.calls = append(r.calls, c)
	return cmd
}

// verb is one method of a lock, called with a different value for each of its arguments.
type verb struct {
	call func(context.Context, lua.Lock) error
	args map[string][]string // by the names in the script's header: what must be sent
}

// verbs are all methods that run a script, by the script's name.
func verbs() map[string]verb {
	a, b, c := numbered("c", 1), numbered("c", 2), numbered("c", 3)
	return map[string]verb{
		"acquire": {
			func(ctx context.Context, l lua.Lock) error {
				_, err := l.Acquire(ctx, lua.Ask{
					Token: a, TTL: 11 * time.Millisecond, Patience: 12 * time.Millisecond, Bound: 13, Ticket: 14, Weight: 15,
				})
				return err
			},
			map[string][]string{
				"token": {a.Text()}, "ttl": {"11"}, "patience": {"12"}, "bound": {"13"}, "ticket": {"14"},
				"weight": {"15"}, "capacity": {"16"},
			},
		},
		"release": {
			func(ctx context.Context, l lua.Lock) error {
				_, err := l.Release(ctx, &lua.Leaving{Token: a}, 11*time.Millisecond)
				return err
			},
			map[string][]string{"token": {a.Text()}, "ttl": {"11"}},
		},
		"leave": {
			func(ctx context.Context, l lua.Lock) error {
				_, err := l.Leave(ctx, &lua.Leaving{Token: a}, 11*time.Millisecond, 12*time.Millisecond)
				return err
			},
			map[string][]string{"token": {a.Text()}, "ttl": {"11"}, "bury": {"12"}},
		},
		"renew": {
			func(ctx context.Context, l lua.Lock) error {
				_, _, err := l.Renew(ctx, a, 11*time.Millisecond, 12)
				return err
			},
			map[string][]string{"token": {a.Text()}, "ttl": {"11"}, "held": {"12"}},
		},
		"beat": {
			func(ctx context.Context, l lua.Lock) error {
				_, err := l.Beat(ctx, 11*time.Millisecond, 12*time.Millisecond, []token.Token{a, b, c})
				return err
			},
			map[string][]string{"ttl": {"11"}, "patience": {"12"}, "token...": texts(a, b, c)},
		},
		"force_release": {
			func(ctx context.Context, l lua.Lock) error {
				_, err := l.ForceRelease(ctx, 11*time.Millisecond, 12)
				return err
			},
			map[string][]string{"ttl": {"11"}, "seen": {"12"}},
		},
		"inspect": {
			func(ctx context.Context, l lua.Lock) error {
				_, err := l.Inspect(ctx, 11)
				return err
			},
			map[string][]string{"limit": {"11"}},
		},
	}
}

// eachVerb runs a test once for every verb.
func eachVerb(t *testing.T, test func(t *testing.T, name string, v verb)) {
	t.Helper()
	for name, v := range verbs() {
		t.Run(name, func(t *testing.T) { test(t, name, v) })
	}
}
