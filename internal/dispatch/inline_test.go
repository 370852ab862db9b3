package dispatch_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
)

// deadline returns a ctx with a deadline that is far away.
func deadline(parent context.Context, t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(parent, 24*time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// noRedis is an address that is never dialled. It has no host name, because go-redis 9.23 resolves one when a client is
// made, and package net shares the result between bubbles.
const noRedis = "127.0.0.1:1"

// inlineBubble runs a test in simulated time, of clients that obey deadlines.
func inlineBubble(t *testing.T, test func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int)) {
	t.Parallel()
	bubbleOf(t, "plain", kinds["plain"].bound, func(t *testing.T, s *server) redis.Scripter {
		rdb := redis.NewClient(&redis.Options{Addr: noRedis, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(s)
		return rdb
	}, test)
	bubbleOf(t, "cluster", kinds["other"].bound, func(t *testing.T, s *server) redis.Scripter {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			ContextTimeoutEnabled: true,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return nil, errors.New("nothing is to be dialled")
			},
		})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(s)
		return rdb
	}, test)
}

// warm sends a first command, after which Redis is known to answer.
func warm(t *testing.T, d *dispatch.Dispatcher) {
	t.Helper()
	require.NoError(t, send(deadline(t.Context(), t), d, "first"))
	synctest.Wait() // its sender is idle
}

// beginInline sends a command inline, and returns when it is under way.
func (s *server) beginInline(t *testing.T, d *dispatch.Dispatcher, key string) {
	t.Helper()
	s.callers.Go(func() { assert.NoError(t, send(deadline(t.Context(), t), d, key)) })
	synctest.Wait()
	require.Contains(t, s.inline, key)
}

// A command is sent on its caller's goroutine if its ctx has a deadline, the client obeys deadlines, and its clock is
// the system's. The first command is not, as it may have to dial.
func TestInline_IfTheCallerMayBeBlocked(t *testing.T) {
	plain := func(obeys bool) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: noRedis, ContextTimeoutEnabled: obeys})
	}
	sentinel := func(obeys bool) redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", ContextTimeoutEnabled: obeys})
	}
	cluster := func(obeys bool) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{noRedis}, ContextTimeoutEnabled: obeys})
	}
	for name, c := range map[string]struct {
		rdb    redis.UniversalClient
		own    bool // it is of the user's own type
		clock  clock.Clock
		inline []string
	}{
		"plain":                  {plain(true), false, clock.System{}, []string{"deadline"}},
		"Sentinel":               {sentinel(true), false, clock.System{}, []string{"deadline"}},
		"cluster":                {cluster(true), false, clock.System{}, []string{"deadline"}},
		"plain, no deadlines":    {plain(false), false, clock.System{}, nil},
		"Sentinel, no deadlines": {sentinel(false), false, clock.System{}, nil},
		"cluster, no deadlines":  {cluster(false), false, clock.System{}, nil},
		"own type":               {plain(true), true, clock.System{}, nil},
		"another clock":          {plain(true), false, clock.NewFake(time.Now()), nil},
	} {
		s := newServer()
		c.rdb.AddHook(s)
		scripter := redis.Scripter(c.rdb)
		if c.own {
			scripter = struct{ redis.Scripter }{c.rdb}
		}
		d := dispatch.New(scripter, c.clock, s.told)
		cancellable, cancel := context.WithCancel(context.Background())
		for _, key := range []string{"first", "never ends", "cancellable", "deadline"} {
			ctx := map[string]context.Context{"never ends": context.Background(), "cancellable": cancellable}[key]
			if ctx == nil {
				ctx = deadline(context.Background(), t)
			}
			d.Idle()
			require.NoError(t, send(ctx, d, key))
		}
		assert.Equal(t, c.inline, s.inline, name)
		cancel()
		d.Close()
		require.NoError(t, c.rdb.Close())
	}
}

// A command that is alone carries the values of its caller's ctx, for a span's parent, inline or not.
func TestInline_HooksSeeTheCallersContext(t *testing.T) {
	inlineBubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		warm(t, d)
		ctx := context.WithValue(t.Context(), valueKey{}, "span")
		require.NoError(t, send(deadline(ctx, t), d, "inline"))
		require.NoError(t, send(ctx, d, "not inline"))
		assert.Equal(t, []any{nil, "span", "span"}, s.values)
		assert.Equal(t, []string{"inline"}, s.inline)
	})
}

// Close waits for an inline command. Then none is sent any more.
func TestInline_CloseWaits(t *testing.T) {
	inlineBubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		warm(t, d)
		s.beginInline(t, d, "hangs")
		time.AfterFunc(time.Minute, func() { close(s.hang["hangs"]) })
		start := time.Now()
		d.Close()
		assert.Equal(t, time.Minute, time.Since(start))
		s.callers.Wait()
		require.ErrorIs(t, send(deadline(t.Context(), t), d, "y"), dispatch.ErrClosed)
		assert.NotContains(t, s.sent(), "y")
	})
}

// An inline command that hangs delays no other. One that comes meanwhile goes to a sender at once, and one that comes
// when each sender is busy waits for at most 50 ms.
func TestInline_HangingHoldsUpNoOther(t *testing.T) {
	inlineBubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		warm(t, d)
		s.beginInline(t, d, "hangs")
		start := time.Now()
		require.NoError(t, send(deadline(t.Context(), t), d, "goes"))
		assert.Zero(t, time.Since(start))
		s.begin(t, d, "hangs", bound-spare-1, 0) // with it, all senders
		require.NoError(t, send(t.Context(), d, "goes late"))
		assert.Equal(t, 50*time.Millisecond, time.Since(start))
		if bound == kinds["other"].bound { // of a Cluster, whose servers must not wait for each other
			bound = 16 + 200
		}
		s.begin(t, d, "hangs", 2*bound, 60*time.Millisecond)
		assert.Equal(t, []string{"hangs"}, s.inline)
		assert.Equal(t, bound, s.most[""])
		close(s.hang["hangs"])
		s.callers.Wait()
	})
}

// A hook that panics, or ends its goroutine, does so on the caller's goroutine. Nothing stays in flight, and what waits
// is sent.
func TestInline_HookEndsGoroutine(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("hook") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inlineBubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
				warm(t, d)
				s.fault["ends"] = func(context.Context) error {
					<-s.hang["hangs"]
					end()
					return nil
				}
				over := make(chan any, 1)
				s.callers.Go(func() {
					defer func() { over <- recover() }()
					_ = send(deadline(t.Context(), t), d, "ends")
					assert.Fail(t, "it goes on")
				})
				synctest.Wait()
				s.begin(t, d, "hangs, too", bound-spare-1, 0)
				s.begin(t, d, "waits", 1, 0)
				close(s.hang["hangs"])
				synctest.Wait()
				if name == "panic" {
					assert.Equal(t, "hook", <-over)
				}
				assert.Contains(t, s.sent(), "waits")
				close(s.hang["hangs, too"])
				s.callers.Wait()
				synctest.Wait()
				assert.Zero(t, d.Waiting())
				require.NoError(t, send(deadline(t.Context(), t), d, "goes"))
				assert.Equal(t, []string{"ends", "goes"}, s.inline)
			})
		})
	}
}

// After a command without a reply, the next one has a sender, which can be left when ctx ends.
func TestInline_NotDuringOutage(t *testing.T) {
	inlineBubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		warm(t, d)
		s.fault["no reply"] = func(context.Context) error { return errReset }
		s.fault["error"] = func(context.Context) error { return redis.Nil } // any that Redis has replied
		ctx := deadline(t.Context(), t)
		require.Error(t, send(ctx, d, "no reply"))
		require.Error(t, send(ctx, d, "no reply"))
		synctest.Wait() // the sender has noted it, before another one notes the next reply
		require.NoError(t, send(ctx, d, "goes"))
		synctest.Wait()
		require.Error(t, send(ctx, d, "error"))
		require.NoError(t, send(ctx, d, "goes, too"))
		s.fault["exit"] = func(context.Context) error { runtime.Goexit(); return nil }
		s.callers.Go(func() { _ = send(ctx, d, "exit") })
		s.callers.Wait()
		require.NoError(t, send(ctx, d, "goes"))
		assert.Equal(t, []string{"no reply", "error", "goes, too", "exit"}, s.inline)
	})
}

// lateContext has a deadline a moment before it ends, as a connection may notice it.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// When the deadline ends an inline command, ctx has ended when the caller returns, so that the reason is there. Nothing
// is in flight. A ctx that does not end at its deadline delays its caller by 50 ms at most; a reply or another error is
// not delayed.
func TestInline_EndsAtTheDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		key   string
		ends  time.Duration // of ctx; 0: never
		pause time.Duration // of Redis
		takes time.Duration
		want  error
	}{
		"ctx ends a moment later": {"late", time.Second + time.Millisecond, 0, time.Second + time.Millisecond,
			os.ErrDeadlineExceeded},
		"ctx does not end":     {"late", 0, 0, time.Second + 50*time.Millisecond, os.ErrDeadlineExceeded},
		"a reply that is late": {"goes", 0, 2 * time.Second, 2 * time.Second, nil},
		"another error":        {"no reply", 0, 0, 0, errReset},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.fault["no reply"] = func(context.Context) error { return errReset }
			s.fault["late"] = func(ctx context.Context) error { // as go-redis does
				deadline, _ := ctx.Deadline()
				time.Sleep(time.Until(deadline))
				return os.ErrDeadlineExceeded
			}
			rdb := redis.NewClient(&redis.Options{Addr: noRedis, ContextTimeoutEnabled: true})
			rdb.AddHook(s)
			defer rdb.Close()
			d := dispatch.New(rdb, clock.System{}, func(string, error) {})
			warm(t, d)
			s.pause = c.pause
			ctx, start := context.Background(), time.Now()
			if c.ends > 0 {
				ending, cancel := context.WithTimeout(ctx, c.ends)
				defer cancel()
				ctx = ending
			}
			err := send(lateContext{ctx, start.Add(time.Second)}, d, c.key)
			require.ErrorIs(t, err, c.want, name)
			assert.Equal(t, c.takes, time.Since(start), name)
			assert.Equal(t, c.ends > 0, ctx.Err() != nil, name)
			var reply redis.Error
			require.NotErrorAs(t, err, &reply, "package script looks for that")
			assert.Equal(t, []string{c.key}, s.inline)
			d.Close()
			assert.Equal(t, c.takes, time.Since(start), "nothing is in flight")
		})
	}
}

// errReset is an error of a connection.
var errReset = errors.New("connection reset")
