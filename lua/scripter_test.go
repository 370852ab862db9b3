package lua_test

import (
	"context"
	"encoding"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// recorder passes requests on to a server, or replies itself, and records what was sent and what came back.
type recorder struct {
	lua.Scripter     // nil: answer is the reply
	answer       any // a reply or an error
	calls        []call
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

// send calls the method of a verb, with the tokens c:1 to c:3.
func send(ctx context.Context, l lua.Lock, v lua.Verb) error {
	_, err := v.Call(ctx, l, []token.Token{numbered("c", 1), numbered("c", 2), numbered("c", 3)})
	return err
}
