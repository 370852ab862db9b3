package dispatch_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
)

// reply is when an attempt that does not hang has one: never at the instant at which an earlier attempt fails.
const reply = time.Millisecond

// dead makes the first n attempts of a request hang until the test ends, as on a half-open connection. It returns how
// often the request was sent. The caller calls end.
func (s *server) dead(key string, n int32) (sent *atomic.Int32, end func()) {
	over, sent := make(chan struct{}), new(atomic.Int32)
	s.fault[key] = func(context.Context) error {
		if sent.Add(1) > n {
			time.Sleep(reply)
			return replied("replied")
		}
		<-over
		return errors.New("timeout")
	}
	return sent, func() { close(over) }
}

// replied is an error that Redis has sent.
type replied string

func (r replied) Error() string { return string(r) }
func (replied) RedisError()     {}

func (s *server) request(key string) dispatch.Request {
	return dispatch.Request{Lock: key, Script: script, Keys: []string{key}, Repeatable: true}
}

// A request that may be sent twice is sent again after a second without a reply, and again after 1, 2, 4 s more. The
// first reply counts. An attempt without a reply has failed after 2 s, unless another one has a reply.
func TestHang_SentAgain(t *testing.T) {
	type want struct {
		sent   int32
		took   time.Duration // a minute: it goes on hanging
		failed int
	}
	for name, test := range map[string]struct {
		dead   int32
		change func(*dispatch.Request)
		want   want
	}{
		"no connection is dead":   {0, nil, want{1, reply, 0}},
		"one connection is dead":  {1, nil, want{2, time.Second + reply, 0}},
		"two are":                 {2, nil, want{3, 2*time.Second + reply, 1}},
		"three are":               {3, nil, want{4, 4*time.Second + reply, 3}},
		"all are":                 {100, nil, want{8, time.Minute, 8}},
		"it must not run twice":   {1, func(r *dispatch.Request) { r.Repeatable = false }, want{1, time.Minute, 1}},
		"urgent, and one is dead": {1, func(r *dispatch.Request) { r.Urgent = true }, want{2, time.Second + reply, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
				sent, end := s.dead("x", test.dead)
				defer end()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r := s.request("x")
				if test.change != nil {
					test.change(&r)
				}
				counted := dispatch.Count("x")
				r.Args = []any{counted}
				start := time.Now()
				_, err := d.Send(ctx, r)
				noReply := 0
				s.mu.Lock()
				for _, note := range s.notes {
					if strings.HasPrefix(note, "x: no reply yet") {
						noReply++
					}
				}
				s.mu.Unlock()
				assert.Equal(t, test.want, want{sent.Load(), time.Since(start), noReply})
				var abandoned *dispatch.AbandonedError
				assert.Equal(t, test.want.took == time.Minute, errors.As(err, &abandoned))
				assert.Equal(t, test.want.sent > 1 || test.dead > 0, counted.Ambiguous(err), "the hook marshals nothing")
			})
		})
	}
}

// The error of a hanging request says why no connection can be made, until Redis has replied to another request.
func TestHang_NoConnection(t *testing.T) {
	plain := func(t *testing.T, s *server) redis.Scripter { return client(t, s) }
	bubbleOf(t, "plain", 0, plain, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		_, end := s.dead("x", 2)
		defer end()
		for _, test := range []struct {
			limit time.Duration
			want  string
		}{{501 * time.Millisecond, "Redis did not reply: no connection"}, {499 * time.Millisecond, "Redis did not reply"}} {
			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			_, err := d.Send(ctx, s.request("x"))
			cancel()
			require.EqualError(t, err, test.want)
			require.NoError(t, send(t.Context(), d, "y"))
		}
	})
}

// One dial at a time looks for the cause, and what it finds does not count if Redis has replied meanwhile.
func TestHang_LateDial(t *testing.T) {
	var dials atomic.Int32
	plain := func(t *testing.T, s *server) redis.Scripter {
		rdb := client(t, s)
		rdb.Options().Dialer = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			time.Sleep(5 * time.Second)
			return nil, errors.New("no connection")
		}
		return rdb
	}
	bubbleOf(t, "plain", 0, plain, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		_, end := s.dead("x", 100)
		defer end()
		hang := func(limit time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := d.Send(ctx, s.request("x"))
			assert.EqualError(t, err, "Redis did not reply")
		}
		for range 3 {
			s.callers.Go(func() { hang(3 * time.Second) })
			time.Sleep(600 * time.Millisecond)
		}
		require.NoError(t, send(t.Context(), d, "y"))
		time.Sleep(4 * time.Second)
		hang(400 * time.Millisecond)
		s.callers.Wait()
		assert.EqualValues(t, 1, dials.Load())
	})
}

// Many requests hang on half-open connections, in pipelines or alone, and some of them must not run twice. All others
// have a reply after a second.
func TestHang_ManyAreSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		sent, end := s.dead("x", int32(bound-spare))
		defer end()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		for range bound - spare {
			s.callers.Go(func() { _ = send(ctx, d, "x") }) // a renewal
		}
		synctest.Wait()
		_, endOthers := s.dead("y", 2)
		defer endOthers()
		for range 500 {
			s.callers.Go(func() {
				_, err := d.Send(ctx, s.request("y"))
				assert.EqualError(t, err, "replied")
				assert.LessOrEqual(t, time.Since(start), 2200*time.Millisecond)
			})
		}
		s.callers.Wait()
		assert.LessOrEqual(t, sent.Load(), int32(bound-spare))
	})
}

// A long way to Redis costs a request twice, and its reply is not later.
func TestHang_FirstReplyCounts(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		s.pause = 1200 * time.Millisecond
		start := time.Now()
		_, err := d.Send(t.Context(), s.request("x"))
		require.NoError(t, err)
		assert.Equal(t, s.pause, time.Since(start))
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"x", "x"}, s.sent())
	})
}

// A caller that leaves while its request is queued again is told that it was sent.
func TestHang_LeftWhileQueuedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		s.begin(t, d, "hangs", bound-1, 60*time.Millisecond)
		_, end := s.dead("x", 100)
		defer end()
		ctx, cancel := context.WithTimeout(t.Context(), 1900*time.Millisecond)
		defer cancel()
		r := s.request("x")
		counted := dispatch.Count("x")
		r.Args = []any{counted}
		_, err := d.Send(ctx, r)
		assert.True(t, counted.Ambiguous(err))
		close(s.hang["hangs"])
		s.callers.Wait()
	})
}

// A request is sent by its hash, and by its text if the server does not have the script. It is sent to read only if the
// server and its rights allow that.
func TestSend_Commands(t *testing.T) {
	const unknown, denied = "ERR unknown command 'EVALSHA_RO'",
		"NOPERM User u has no permissions to run the 'evalsha_ro' command"
	for name, test := range map[string]struct {
		readOnly bool
		replies  map[string]string // errors, by command
		want     []string          // the commands of two requests
		err      string
	}{
		"loaded":     {false, nil, []string{"evalsha", "evalsha"}, ""},
		"not loaded": {false, map[string]string{"evalsha": "NOSCRIPT x"}, []string{"evalsha", "eval", "evalsha", "eval"}, ""},
		"to read":    {true, nil, []string{"evalsha_ro", "evalsha_ro"}, ""},
		"a text": {true, map[string]string{"evalsha_ro": "NOSCRIPT x"},
			[]string{"evalsha_ro", "eval_ro", "evalsha_ro", "eval_ro"}, ""},
		"Redis 6":  {true, map[string]string{"evalsha_ro": unknown}, []string{"evalsha_ro", "evalsha", "evalsha"}, ""},
		"no right": {true, map[string]string{"evalsha_ro": denied}, []string{"evalsha_ro", "evalsha", "evalsha"}, ""},
		"no right to both": {true, map[string]string{"evalsha_ro": denied, "evalsha": "NOPERM x"},
			[]string{"evalsha_ro", "evalsha", "evalsha_ro", "evalsha"}, denied},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
				var sent []string
				s.command = func(name string) error {
					sent = append(sent, name)
					if text := test.replies[name]; text != "" {
						return replied(text)
					}
					return nil
				}
				for range 2 {
					counted := dispatch.Count("x")
					_, err := d.Send(t.Context(), dispatch.Request{
						Script: script, Keys: []string{"x"}, Args: []any{counted}, ReadOnly: test.readOnly,
					})
					if test.err == "" {
						require.NoError(t, err)
					} else {
						require.EqualError(t, err, test.err)
					}
					assert.False(t, counted.Ambiguous(err))
				}
				assert.Equal(t, test.want, sent)
			})
		})
	}
}
