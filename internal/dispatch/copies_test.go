package dispatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
)

// dead has the first n times that a command is sent hang until the test ends, as on a connection that somebody on the
// way has forgotten. It returns how often the command was sent. The caller calls end.
func (s *server) dead(key string, n int32) (sent *atomic.Int32, end func()) {
	over, sent := make(chan struct{}), new(atomic.Int32)
	s.fault[key] = func(context.Context) error {
		if sent.Add(1) > n {
			return replied{}
		}
		<-over
		return errors.New("timeout")
	}
	return sent, func() { close(over) }
}

// replied is an error that Redis has sent.
type replied struct{}

func (replied) Error() string { return "replied" }
func (replied) RedisError()   {}

func repeatable(ctx context.Context) context.Context { return dispatch.With(ctx, dispatch.Repeatable) }

// Of a command that may be sent twice, a copy is sent when it has had no reply for a second, and one more a second
// later; on a Cluster each second. The first reply counts.
func TestCopies_OfWhatHangs(t *testing.T) {
	type want struct {
		sent int32
		took time.Duration // 0: it goes on hanging
	}
	for name, test := range map[string]struct {
		dead int32
		ctx  func(context.Context) context.Context
		want want
	}{
		"no connection is dead":          {0, repeatable, want{1, 0}},
		"one connection is dead":         {1, repeatable, want{2, time.Second}},
		"two are":                        {2, repeatable, want{3, 2 * time.Second}},
		"three are":                      {3, repeatable, want{3, time.Minute}},
		"the command must not run twice": {1, func(ctx context.Context) context.Context { return ctx }, want{1, time.Minute}},
		"urgent, and one is dead": {1, func(ctx context.Context) context.Context {
			return dispatch.With(ctx, dispatch.Urgent|dispatch.Repeatable)
		}, want{2, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
				sent, end := s.dead("x", test.dead)
				defer end()
				expected := test.want
				if test.dead == 3 && bound == kinds["other"].bound {
					expected = want{4, 3 * time.Second}
				}
				ctx, cancel := context.WithTimeout(test.ctx(t.Context()), time.Minute)
				defer cancel()
				start := time.Now()
				err := send(ctx, d, "x")
				assert.Equal(t, expected, want{sent.Load(), time.Since(start)})
				var abandoned *dispatch.AbandonedError
				assert.Equal(t, expected.took == time.Minute, errors.As(err, &abandoned))
			})
		})
	}
}

// When a copy was answered at once, the connections are dead, and not the server: all that hang are copied.
func TestCopies_OthersFollow(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		const n = 5
		sent, end := s.dead("x", n)
		defer end()
		start := time.Now()
		for range n {
			s.callers.Go(func() { _ = send(repeatable(t.Context()), d, "x") })
			time.Sleep(60 * time.Millisecond) // each in a sender of its own
		}
		s.callers.Wait()
		assert.LessOrEqual(t, time.Since(start), 2100*time.Millisecond)
		assert.LessOrEqual(t, sent.Load(), int32(2*n))
	})
}

// A command that must not run twice hangs already: those after it are copied a second after each was sent.
func TestCopies_BehindOneThatMustNotRunTwice(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		_, endOfFirst := s.dead("renewal", 1)
		defer endOfFirst()
		_, end := s.dead("x", 2)
		defer end()
		s.callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_ = send(ctx, d, "renewal")
		})
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		_ = send(repeatable(t.Context()), d, "x")
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

// A server that is slow has little more to do: a stall, and a long way to it.
func TestCopies_FewForAServerThatIsSlow(t *testing.T) {
	for name, test := range map[string]struct {
		callers, requests int
		stall, pause      time.Duration
	}{
		"a stall":              {100, 20, 1500 * time.Millisecond, 10 * time.Millisecond},
		"a long way":           {1, 200, 0, 1200 * time.Millisecond},
		"a long way, for many": {50, 20, 0, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
				s.pause = test.pause
				stalled := time.Now().Add(test.stall)
				s.fault["stall"] = func(context.Context) error {
					time.Sleep(max(time.Until(stalled), 10*time.Millisecond))
					return replied{}
				}
				key := map[bool]string{true: "stall", false: "x"}[test.stall > 0]
				for range test.callers {
					s.callers.Go(func() {
						for range test.requests {
							_ = send(repeatable(t.Context()), d, key)
						}
					})
				}
				s.callers.Wait()
				assert.LessOrEqual(t, len(s.sent()), test.callers*test.requests*11/10)
			})
		})
	}
}

// With a pool of one connection, a copy would wait for that of the command.
func TestCopies_NoneWithOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		rdb := client(t, s)
		rdb.Options().PoolSize = 1
		d := dispatch.New(rdb, clock.System{})
		defer d.Close()
		sent, end := s.dead("x", 1)
		defer end()
		ctx, cancel := context.WithTimeout(repeatable(t.Context()), time.Minute)
		defer cancel()
		require.Error(t, send(ctx, d, "x"))
		assert.Equal(t, int32(1), sent.Load())
	})
}
