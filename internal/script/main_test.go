package script_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
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

// fake gives each request an answer: a reply or an error.
type fake struct{ answer any }

func (f fake) Send(context.Context, dispatch.Request) (any, error) {
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
