package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
)

// server stands for Redis and the way to it. It is a hook that sends nothing.
type server struct {
	// by the key of commands: closed when they end. Others end after pause.
	hang  map[string]chan struct{}
	fault map[string]func(ctx context.Context) error // by the key of commands: called instead
	pause time.Duration

	command func(name string) error // called with the name of each command; may be nil

	callers sync.WaitGroup // of begin

	mu       sync.Mutex
	batches  [][]string     // guarded by mu: keys, as they were sent
	inline   []string       // guarded by mu: keys of what was sent on its caller's goroutine
	values   []any          // guarded by mu: of valueKey, of what was sent alone
	inFlight map[string]int // guarded by mu: by the first key of a batch; "": all
	most     map[string]int // guarded by mu: in flight at once
	notes    []string       // guarded by mu: what note was told
}

// told is the Dispatcher's note, for requests of a lock.
func (s *server) told(lock string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lock != "" {
		s.notes = append(s.notes, fmt.Sprint(lock, ": ", err))
	}
}

func newServer() *server {
	hang := map[string]chan struct{}{"hangs": make(chan struct{}), "hangs, too": make(chan struct{})}
	fault := map[string]func(context.Context) error{}
	return &server{hang: hang, fault: fault, inFlight: map[string]int{}, most: map[string]int{}}
}

func (s *server) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(ctx, fmt.Sprint(cmd.Args()[3]))
		return s.run(ctx, cmd)
	}
}

func (s *server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return s.run(ctx, cmds...) }
}

type valueKey struct{}

// note notes what was sent alone.
func (s *server) note(ctx context.Context, key string) {
	stack := make([]uintptr, 100)
	frames := runtime.CallersFrames(stack[:runtime.Callers(0, stack)])
	inline := false
	for more := true; more && !inline; {
		var frame runtime.Frame
		frame, more = frames.Next()
		inline = strings.HasSuffix(frame.Function, "dispatch_test.send")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, ctx.Value(valueKey{}))
	if inline {
		s.inline = append(s.inline, key)
	}
}

func (s *server) run(ctx context.Context, cmds ...redis.Cmder) error {
	var keys []string
	for _, cmd := range cmds {
		keys = append(keys, fmt.Sprint(cmd.Args()[3]))
	}
	s.count(1, keys)
	defer s.count(-1, keys)
	for _, cmd := range cmds {
		if s.command == nil {
			break
		}
		if err := s.command(cmd.Name()); err != nil {
			cmd.SetErr(err)
			return err
		}
	}
	for i, key := range keys {
		if fault := s.fault[key]; fault != nil {
			err := fault(ctx)
			cmds[i].SetErr(err)
			return err
		}
	}
	for _, key := range keys {
		if over := s.hang[key]; over != nil {
			<-over
		}
	}
	time.Sleep(s.pause)
	for i, cmd := range cmds {
		cmd.(*redis.Cmd).SetVal(keys[i])
	}
	return nil
}

// count notes that a batch has been sent, or has come back.
func (s *server) count(n int, keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 {
		s.batches = append(s.batches, keys)
	}
	for _, key := range []string{"", keys[0]} {
		s.inFlight[key] += n
		s.most[key] = max(s.most[key], s.inFlight[key])
	}
}

func (s *server) sent() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range s.batches {
		keys = append(keys, batch...)
	}
	return keys
}

// spare is how many commands or pipelines of a lane may be in flight in place of overdue ones.
const spare = 8

// kinds are the two ways in which a Dispatcher works, with their bound of commands or pipelines in flight, in each
// lane.
var kinds = map[string]struct {
	wrap  func(*redis.Client) redis.Scripter
	bound int
}{
	"plain": {func(rdb *redis.Client) redis.Scripter { return rdb }, 2 + spare},
	"other": {func(rdb *redis.Client) redis.Scripter { return struct{ redis.Scripter }{rdb} }, 16 + spare},
}

func client(t *testing.T, hook redis.Hook) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no connection")
		}})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(hook)
	return rdb
}

// bubble runs a test of both kinds in simulated time.
func bubble(t *testing.T, test func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int)) {
	t.Parallel()
	for name, kind := range kinds {
		bubbleOf(t, name, kind.bound, func(t *testing.T, s *server) redis.Scripter { return kind.wrap(client(t, s)) }, test)
	}
}

// bubbleOf runs a test of one client in simulated time.
func bubbleOf(t *testing.T, name string, bound int, rdb func(*testing.T, *server) redis.Scripter,
	test func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			d := dispatch.New(rdb(t, s), clock.System{}, s.told)
			defer d.Close()
			test(t, s, d, bound)
		})
	})
}

var script = dispatch.NewScript("return KEYS[1]")

func send(ctx context.Context, d *dispatch.Dispatcher, key string) error {
	_, err := d.Send(ctx, dispatch.Request{Script: script, Keys: []string{key}})
	return err
}

// The caller of a command that hangs returns when its ctx ends, and learns when the command is over. The error does not
// wrap the cause of the ctx.
func TestDispatcher_Abandon(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		start := time.Now()
		err := send(ctx, d, "hangs")
		require.Equal(t, time.Second, time.Since(start))
		require.NotErrorIs(t, err, cause)
		var abandoned *dispatch.AbandonedError
		require.ErrorAs(t, err, &abandoned)
		synctest.Wait()
		select {
		case <-abandoned.Over:
			t.Fatal("the command is still in flight")
		default:
		}
		close(s.hang["hangs"])
		<-abandoned.Over
	})
}

// A command whose ctx ends before a sender has taken it is never sent.
func TestDispatcher_DropsAbandoned(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		s.begin(t, d, "hangs", bound, 60*time.Millisecond) // one after the other, each in a sender of its own
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		err := send(ctx, d, "late")
		assert.Equal(t, time.Minute, time.Since(start))
		var abandoned *dispatch.AbandonedError
		require.ErrorAs(t, err, &abandoned)
		<-abandoned.Over
		close(s.hang["hangs"])
		synctest.Wait()
		assert.Len(t, s.sent(), bound)
		assert.NotContains(t, s.sent(), "late")
		require.NoError(t, send(t.Context(), d, "next"), "and what comes now is sent")
	})
}

// Commands that hang delay those behind them by 50 ms at most, and no more are in flight than the bound, those that
// hang included.
func TestDispatcher_ReplacesAnOverdueSender(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		s.begin(t, d, "hangs, too", bound-spare, 0)
		require.NoError(t, send(t.Context(), d, "goes"))
		close(s.hang["hangs, too"])
		s.callers.Wait()
		s.begin(t, d, "hangs", bound-spare, 0)                         // all senders at once
		batch := map[int]int{2 + spare: 256 - 2, 16 + spare: 1}[bound] // as many as go at once
		s.begin(t, d, "hangs", batch, 0)                               // it is sent when two of them are overdue
		s.begin(t, d, "goes behind it", 1, 0)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		assert.Contains(t, s.sent(), "goes behind it")
		for range spare - 2 {
			start := time.Now()
			require.NoError(t, send(t.Context(), d, "goes"))
			assert.LessOrEqual(t, time.Since(start), 50*time.Millisecond)
			time.Sleep(100 * time.Millisecond)
			s.begin(t, d, "hangs", 1, 0)
		}
		s.begin(t, d, "hangs", 2*bound, 0)
		s.begin(t, d, "goes late", 1000, 0)
		time.Sleep(time.Hour)
		assert.NotContains(t, s.sent(), "goes late")
		close(s.hang["hangs"])
		s.callers.Wait()
		assert.Equal(t, bound, s.most[""])
	})
}

// An urgent command is sent at once, however many others there are. Redis has received at most 256 of these, and one
// for each sender that is overdue.
//
//fairlock:promise Thousands of Locks that begin or end at once: renewals, heartbeats and releases of their client do not wait behind them
func TestDispatcher_UrgentCommandsDoNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer func() {
			cancel()
			close(s.hang["hangs"])
			s.callers.Wait()
		}()
		for range 20_000 {
			s.callers.Go(func() { assert.Error(t, send(ctx, d, "hangs")) })
		}
		for range 100 {
			start := time.Now()
			_, err := d.Send(ctx, dispatch.Request{Script: script, Keys: []string{"urgent"}, Urgent: true})
			require.NoError(t, err)
			require.Equal(t, start, time.Now())
			time.Sleep(10 * time.Millisecond)
		}
		others := map[int]int{2 + spare: 256 + spare - 1, 16 + spare: 16 + spare}[bound]
		assert.Len(t, s.sent(), others+100)
	})
}

// begin sends n commands with a key, with pauses. Each is under way, or queued, before the next.
func (s *server) begin(t *testing.T, d *dispatch.Dispatcher, key string, n int, pause time.Duration) {
	t.Helper()
	for range n {
		s.callers.Go(func() { assert.NoError(t, send(t.Context(), d, key)) })
		time.Sleep(pause)
		synctest.Wait()
	}
}

// An overdue sender whose command comes back at last does not add to those that took its place.
func TestDispatcher_OverdueSendersStop(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		s.pause = time.Millisecond
		prompt := bound - spare
		s.begin(t, d, "hangs", prompt, 0)
		time.Sleep(60 * time.Millisecond)
		s.begin(t, d, "slow", 2000, 0)
		close(s.hang["hangs"])
		s.callers.Wait()
		assert.LessOrEqual(t, s.most["slow"], prompt)
	})
}

// Close finds an idle sender while commands are queued and another sender is about to be overdue.
func TestDispatcher_CloseDuringReplacement(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		prompt := min(bound-spare, 8)
		s.begin(t, d, "hangs", bound-spare, 0)
		time.Sleep(60 * time.Millisecond)
		s.begin(t, d, "hangs, too", prompt, 0)
		if prompt < bound-spare { // the rest of those that may be sent at once
			s.begin(t, d, "hangs, too", bound-spare-prompt, 0)
		}
		s.begin(t, d, "queued", 10, 0)
		close(s.hang["hangs"]) // their senders have been replaced, and are idle
		synctest.Wait()
		time.AfterFunc(time.Minute, func() { close(s.hang["hangs, too"]) })
		d.Close()
		s.callers.Wait()
	})
}

// Many commands whose ctx ends at once leave nothing behind that a later one would wait for.
func TestDispatcher_MassWithdrawal(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		s.begin(t, d, "hangs", bound, 60*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		for range 10_000 {
			s.callers.Go(func() { assert.Error(t, send(ctx, d, "withdrawn")) })
		}
		synctest.Wait()
		s.begin(t, d, "later", 1, 0)
		assert.Equal(t, 10_001, d.Waiting())
		cancel()
		synctest.Wait()
		assert.Equal(t, 1, d.Waiting())
		close(s.hang["hangs"])
		s.callers.Wait()
		assert.Equal(t, []string{"later"}, s.sent()[bound:])
	})
}

// On a plain client, commands that coincide go in one pipeline, in their order, and no more than 256 are in flight. On
// others each goes alone.
func TestDispatcher_Pipelines(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		s.begin(t, d, "hangs", bound-spare-1, 0)
		s.begin(t, d, "hangs, too", 1, 0) // all senders are busy
		var want []string
		for i := range 600 {
			want = append(want, fmt.Sprint(i))
			s.callers.Go(func() {
				reply, err := d.Send(t.Context(), dispatch.Request{Script: script, Keys: want[i : i+1]})
				assert.NoError(t, err)
				assert.Equal(t, want[i], reply)
			})
			synctest.Wait()
		}
		close(s.hang["hangs"])
		synctest.Wait()
		var sizes []int
		for _, batch := range s.batches[bound-spare:] {
			sizes = append(sizes, len(batch))
		}
		if bound == kinds["plain"].bound {
			assert.Equal(t, []int{255, 255, 90}, sizes)
			assert.Equal(t, want, s.sent()[bound-spare:])
		} else {
			assert.Len(t, sizes, len(want))
		}
		close(s.hang["hangs, too"])
		s.callers.Wait()
	})
}

// Close waits for what is in flight, also if its caller has gone, and for what is queued. Nothing is sent later.
func TestDispatcher_CloseWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, bound int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, send(ctx, d, "hangs"))
		s.begin(t, d, "hangs", bound-1, 60*time.Millisecond)
		s.begin(t, d, "queued", 10, 0)
		time.AfterFunc(time.Minute, func() { close(s.hang["hangs"]) })
		start := time.Now()
		d.Close()
		assert.Equal(t, time.Minute, time.Since(start))
		s.callers.Wait()
		d.Close()
		require.ErrorIs(t, send(t.Context(), d, "y"), dispatch.ErrClosed)
		assert.Len(t, s.sent(), bound+10)
	})
}

// A hook that ends its goroutine leaves no caller waiting, and no sender fewer.
func TestDispatcher_HookThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, d *dispatch.Dispatcher, _ int) {
		s.fault["exit"] = func(context.Context) error { runtime.Goexit(); return nil } // as testing.T.FailNow does
		for range 300 {
			s.callers.Go(func() { assert.ErrorContains(t, send(t.Context(), d, "exit"), "hook") })
		}
		s.callers.Wait()
		s.begin(t, d, "goes", 10, 0)
		s.callers.Wait()
	})
}
