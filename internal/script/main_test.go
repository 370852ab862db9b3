package script_test

import (
	"context"
	"encoding"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

var namespaces atomic.Int64

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// client returns a client of a server, closed when the test ends.
func client(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// fake passes requests on to a server, or replies itself, and records what was sent.
type fake struct {
	script.Scripter
	answer  any  // if there is no server: a reply or an error
	unknown bool // whether requests were written
	calls   []sent
}

type sent struct{ keys, args []string } // as they travel

func (f *fake) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	switch answer := f.answer.(type) {
	case error:
		cmd.SetErr(answer)
	case nil:
		cmd.SetErr(redis.Nil)
	default:
		cmd.SetVal(answer)
	}
	if f.Scripter != nil {
		cmd = f.Scripter.EvalSha(ctx, sha, keys, args...)
	}
	return f.record(cmd, keys, args)
}

func (f *fake) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if f.Scripter == nil {
		return f.EvalSha(ctx, "", keys, args...)
	}
	return f.record(f.Scripter.Eval(ctx, script, keys, args...), keys, args)
}

func (f *fake) record(cmd *redis.Cmd, keys []string, args []any) *redis.Cmd {
	c := sent{keys: keys}
	for _, a := range args {
		if m, ok := a.(encoding.BinaryMarshaler); ok && f.Scripter == nil && !f.unknown { // which counts
			text, _ := m.MarshalBinary()
			a = string(text)
		}
		c.args = append(c.args, fmt.Sprint(a))
	}
	f.calls = append(f.calls, c)
	return cmd
}

// refusal is an error that the server sends.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// three are the tokens of three requests.
func three(l script.Lock) []token.Token {
	permits := map[bool]int{false: 5}[l.Mutex()]
	return []token.Token{numbered("c", ttl, 1, permits, 1), numbered("c", ttl, 1, permits, 2),
		numbered("c", ttl, 1, permits, 3)}
}

// send calls the method of a verb.
func send(l script.Lock, v verb) error { return last(v.call(l, three(l))) }

// sendAll calls each verb's method with a server that gives this answer.
func sendAll(answer any) map[string]error {
	all := map[string]error{}
	for _, v := range verbs {
		all[v.name] = send(script.Semaphore(&fake{answer: answer}, "ns", "name"), v)
	}
	return all
}

func texts(tokens ...token.Token) (all []string) {
	for _, t := range tokens {
		all = append(all, t.Text())
	}
	return all
}
