package script_test

import (
	"context"
	"encoding"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
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

// fake replies itself, and records what was sent.
type fake struct {
	answer  any  // a reply or an error
	unknown bool // whether requests were written
	calls   []sent
}

type sent struct{ keys, args []string } // as they travel

func (f *fake) Send(_ context.Context, r dispatch.Request) (any, error) {
	c := sent{keys: r.Keys}
	for _, a := range r.Args {
		if m, ok := a.(encoding.BinaryMarshaler); ok && !f.unknown { // which counts
			text, _ := m.MarshalBinary()
			a = string(text)
		}
		c.args = append(c.args, fmt.Sprint(a))
	}
	f.calls = append(f.calls, c)
	switch answer := f.answer.(type) {
	case error:
		return nil, answer
	case nil:
		return nil, redis.Nil
	default:
		return answer, nil
	}
}

// refusal is an error that the server sends.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// three are the tokens of three requests.
func three(l script.Lock) []token.Token {
	return map[bool]kind{true: mutex, false: semaphore(5)}[l.Mutex()].waiters(3)
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
