package fairlock_test

import (
	"context"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/call"
)

// What Redis does while it does not serve a client.
const (
	requestLimit = 3 * time.Second
	silenceLimit = 10 * time.Second
)

// unserved are the ways in which Redis does not serve a client: a server answers, or none does.
var unserved = map[string]func(s *fairlocktest.Server, c *fairlocktest.Client) (end func()){
	"refused": func(_ *fairlocktest.Server, c *fairlocktest.Client) func() { c.Link.Cut(); return c.Link.Mend },
	"hangs":   func(_ *fairlocktest.Server, c *fairlocktest.Client) func() { c.Link.Hang(); return c.Link.Mend },
	"replica": replies(readOnly),
	"loading": replies("LOADING Redis is loading the dataset in memory"),
	"6.2":     replies("ERR Error running script (call to f_0): @user_script:12: @user_script: 12: -" + readOnly),
}

func replies(text string) func(s *fairlocktest.Server, c *fairlocktest.Client) func() {
	return func(s *fairlocktest.Server, _ *fairlocktest.Client) func() {
		s.Miniredis.SetError(text)
		return func() { s.Miniredis.SetError("") }
	}
}

// waits and tries are calls that wait for the lock, and calls that only wait for Redis.
func waits(c *fairlocktest.Client, name string) map[string]acquire {
	return map[string]acquire{
		"mutex": c.Mutex(name).Lock, "semaphore": permits(c.Semaphore(name, 2), 2),
		"writer": c.RWMutex(name + " writer").Lock, "reader": c.RWMutex(name).RLock,
		"do": func(ctx context.Context) (lease *fairlock.Lease, err error) {
			return nil, c.Mutex(name+" do").Do(ctx, func(context.Context) error { return nil })
		},
	}
}

func tries(c *fairlocktest.Client, l *fairlock.Lease) map[string]func(context.Context) error {
	first := func(f func(context.Context) (*fairlock.Lease, error)) func(context.Context) error {
		return func(ctx context.Context) error { _, err := f(ctx); return err }
	}
	nothing := func(context.Context) error { return nil }
	return map[string]func(context.Context) error{ // each by the name of its method
		"TryLock": first(c.Mutex("x").TryLock), "TryLock for writing": first(c.RWMutex("x").TryLock), "TryRLock": first(
			c.RWMutex("x").TryRLock),
		"TryAcquire": first(func(ctx context.Context) (*fairlock.Lease,
			error) {
			return c.Semaphore("x", 2).TryAcquire(ctx, 1)
		}),
		"TryDo": func(ctx context.Context) error { return c.Mutex("x").TryDo(ctx, nothing) },
		"Resume": first(func(ctx context.Context) (*fairlock.Lease,
			error) {
			return c.Mutex("x").Resume(ctx, l.Handle())
		}),
		"Waiting": func(ctx context.Context) error { _, err := l.Waiting(ctx); return err },
	}
}

// Each method of a lock either waits for the lock, or gives up after 3 s, unless it sends nothing. The calls that give
// up are in tries, and the documents name them all.
func TestUnserved_EveryList(t *testing.T) {
	wait := []string{"Lock", "RLock", "Acquire", "Do", "RDo"}
	sendNothing := []string{"LeaseFromContext", "Name"}
	methods, listed, tried := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, kind := range []any{fairlock.Mutex{}, fairlock.Semaphore{}, fairlock.RWMutex{}} {
		for i := range reflect.TypeOf(kind).NumMethod() {
			if name := reflect.TypeOf(kind).Method(i).Name; !slices.Contains(append(wait, sendNothing...), name) {
				methods[name] = true
				listed["`"+regexp.MustCompile("^Try.*").ReplaceAllString(name, "Try…")+"`"] = true
			}
		}
	}
	methods["Waiting"], listed["`Waiting`"] = true, true // of a lease
	s := fairlocktest.NewServer(t)
	c := s.Client(fairlock.Config{})
	for name := range tries(c, hold(t, c.Mutex("x").Lock)) {
		method, _, _ := strings.Cut(name, " ")
		tried[method] = true
	}
	assert.Equal(t, methods, tried, "tries has each method that does not wait for the lock")
	for file, list := range map[string]string{
		"../docs/operating.md": `(?m)^\| (.*) \| 3 s, or as long as ctx lasts`,
		"unserved_test.go":     `(?m)^//fairlock:fault Redis does not serve a call that does not wait for the lock \((.*?)\)`,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := regexp.MustCompile(list).FindStringSubmatch(string(text))
		require.NotNil(t, found, file)
		names := map[string]bool{}
		for name := range strings.SplitSeq(found[1], ", ") {
			names["`"+strings.Trim(name, "`")+"`"] = true
		}
		assert.Equal(t, listed, names, file)
	}
}

// A first request that a server cannot serve waits as a queued waiter does, and so does one that has no answer from a
// server that has answered before. It is served within a quarter of a second after Redis is back.
//
//fairlock:fault A server cannot serve a first request (READONLY, LOADING, …), or does not answer any more: Lock, Do and Acquire wait for as long as ctx lasts
func TestUnserved_FirstRequestWaits(t *testing.T) {
	const lasts = 20 * time.Second
	bubbles(t, unserved, func(t *testing.T, s *fairlocktest.Server, _ string,
		fault func(*fairlocktest.Server, *fairlocktest.Client) func()) {
		client := s.Client(fairlock.Config{})
		unlock(t, hold(t, client.Mutex("warm").TryLock))
		end := fault(s, client)
		all := map[string]*acquisition{}
		for kind, wait := range waits(client, "x") {
			all[kind] = begin(t.Context(), wait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		over := begin(ctx, client.Mutex("y").Lock)
		<-over.done
		require.ErrorIs(t, over.err, context.DeadlineExceeded)
		require.ErrorContains(t, over.err, "context deadline exceeded: tried for 5s: ")
		pass(lasts)
		for kind, q := range all {
			assert.True(t, q.pending(), kind)
		}
		end()
		back := time.Now()
		for kind, q := range all {
			<-q.done
			require.NoError(t, q.err, kind)
			assert.LessOrEqual(t, q.at.Sub(back), 250*time.Millisecond, kind)
		}
	})
}

// If no server has ever answered, a first request gives up after 10 s, because the address may be wrong. A server that
// answers that it cannot serve it shows that the address is right.
//
//fairlock:fault A first request cannot connect: Lock gives up after 10 s, if no server has ever answered the client
func TestUnserved_WrongAddress(t *testing.T) {
	bubbles(t, unserved, func(t *testing.T, s *fairlocktest.Server, name string,
		fault func(*fairlocktest.Server, *fairlocktest.Client) func()) {
		client, start := s.Client(fairlock.Config{}), time.Now()
		end := fault(s, client)
		all := map[string]*acquisition{}
		for kind, wait := range waits(client, "x") {
			all[kind] = begin(t.Context(), wait)
		}
		pass(silenceLimit - 1)
		for kind, q := range all {
			require.True(t, q.pending(), kind)
		}
		pass(26 * time.Millisecond) // it may leave
		for kind, q := range all {
			if name != "refused" && name != "hangs" {
				assert.True(t, q.pending(), kind)
				continue
			}
			require.False(t, q.pending(), kind)
			require.ErrorIs(t, q.err, fairlock.ErrUnreachable)
			require.ErrorContains(t, q.err, ": redis is unreachable: tried for 10s: ", kind)
			assert.GreaterOrEqual(t, q.at.Sub(start), silenceLimit)
		}
		end()
		client.Close()
		pass(ttl)
	})
}

// Calls that do not wait for the lock try for 3 s to reach Redis, whether a server answers or not. They succeed if
// Redis serves them meanwhile.
//
//fairlock:fault Redis does not serve a call that does not wait for the lock (Try…, Waiting, Resume): it tries for 3 s
func TestUnserved_TriesGiveUp(t *testing.T) {
	bubbles(t, unserved, func(t *testing.T, s *fairlocktest.Server, _ string,
		fault func(*fairlocktest.Server, *fairlocktest.Client) func()) {
		client := s.Client(fairlock.Config{TTL: time.Hour})
		lease := hold(t, client.Mutex("x").Lock)
		run := func(over time.Duration, check func(name string, err error, took time.Duration)) {
			end := fault(s, client)
			for name, call := range tries(client, lease) {
				go func() {
					start := time.Now()
					err := call(t.Context())
					check(name, err, time.Since(start))
				}()
			}
			pass(over)
			end()
			pass(time.Minute)
		}
		run(4*time.Second, func(name string, err error, took time.Duration) {
			assert.ErrorIs(t, err, fairlock.ErrUnreachable, name)
			assert.ErrorContains(t, err, ": redis is unreachable: tried for 3s: ", name)
			assert.GreaterOrEqual(t, took, requestLimit, name)
			assert.LessOrEqual(t, took, requestLimit+25*time.Millisecond, name)
		})
		run(requestLimit-1200*time.Millisecond, func(name string, err error, took time.Duration) {
			assert.NotErrorIs(t, err, fairlock.ErrUnreachable, name)
			assert.Less(t, took, requestLimit, name)
		})
	})
}

// The error of a call that gives up names the latest failure that says something: not that a request was in flight when
// it gave up, if an earlier one was refused.
func TestUnserved_NamesTheFailure(t *testing.T) {
	const loading = "LOADING Redis is loading the dataset in memory"
	bubbles(t, map[string][]string{ // replies to the requests, of which the last hangs
		"Redis did not reply": {}, "LOADING": {loading}, "READONLY": {loading, readOnly},
	}, func(t *testing.T, s *fairlocktest.Server, want string, replies []string) {
		for kind, call := range map[string]func(*fairlocktest.Client) acquire{
			"a call that waits for the lock": func(c *fairlocktest.Client) acquire { return c.Mutex("x").Lock },
			"one that waits for Redis": func(c *fairlocktest.Client) acquire {
				return func(ctx context.Context) (*fairlock.Lease, error) {
					return c.Mutex("x").TryLock(ctx)
				}
			},
		} {
			client, over := s.Client(fairlock.Config{}), make(chan struct{})
			var sent atomic.Int64
			record(client).before = func(_ int, cmd redis.Cmder) error {
				if verbOf(cmd) == "leave" {
					return nil
				}
				if n := int(sent.Add(1)); n <= len(replies) {
					return refusal(replies[n-1])
				}
				<-over
				return errCut
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := call(client)(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, kind)
			require.ErrorContains(t, err, "tried for 1s: "+want, kind)
			close(over)
			synctest.Wait()
		}
	})
}

// A request that is sent on its caller's goroutine returns go-redis's error when ctx has ended: no more than that ctx
// has.
func TestUnserved_NamesTheFailureBeforeAnInlineRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		unlock(t, hold(t, client.Mutex("x").Lock))
		start := time.Now()
		record(client).before = func(n int, _ redis.Cmder) error {
			if n == 0 {
				return refusal(readOnly)
			}
			time.Sleep(time.Until(start.Add(time.Second)))
			return context.DeadlineExceeded
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Mutex("x").TryLock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "tried for 1s: READONLY")
	})
}

// A MOVED that reaches a client of one server is returned at once, and so is the end of the Redis client: they come
// again.
//
//fairlock:fault The Redis client is one of a single server, and the server is a node of a Cluster; or the Redis client is closed: an error at once
func TestUnserved_Permanent(t *testing.T) {
	bubbles(t, map[string]func(s *fairlocktest.Server, c *fairlocktest.Client){
		"MOVED": func(s *fairlocktest.Server, _ *fairlocktest.Client) {
			s.Miniredis.SetError("MOVED 3999 127.0.0.1:6381")
		},
		"ASK":    func(s *fairlocktest.Server, _ *fairlocktest.Client) { s.Miniredis.SetError("ASK 3999 127.0.0.1:6381") },
		"closed": func(_ *fairlocktest.Server, c *fairlocktest.Client) { c.Redis.Close() },
	}, func(t *testing.T, s *fairlocktest.Server, name string, fault func(*fairlocktest.Server, *fairlocktest.Client)) {
		client := s.Client(fairlock.Config{})
		lease := hold(t, client.Mutex("held").Lock)
		fault(s, client)
		all := tries(client, lease)
		for kind, wait := range waits(client, "y") {
			all[kind] = func(ctx context.Context) error { _, err := wait(ctx); return err }
		}
		start := time.Now()
		for call, f := range all {
			err := f(t.Context())
			if name == "closed" {
				require.ErrorIs(t, err, redis.ErrClosed, call)
			} else {
				require.ErrorContains(t, err, "the server is a node of a Redis Cluster, which needs a redis.ClusterClient: "+name,
					call)
			}
		}
		require.Error(t, lease.Renew(t.Context()))
		require.Error(t, lease.Unlock(t.Context()))
		assert.Less(t, time.Since(start), time.Second)
	})
}

// A Cluster moves slots: its client has followed as often as it may, and Lock waits.
func TestUnserved_ClusterMovesSlots(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		rdb := struct{ fairlock.Redis }{s.Link().Redis()}
		client, err := fairlock.New(rdb, fairlock.Config{})
		require.NoError(t, err)
		defer client.Close()
		s.Miniredis.SetError("MOVED 3999 127.0.0.1:6381")
		q := begin(t.Context(), client.Mutex("x").Lock)
		pass(time.Minute)
		assert.True(t, q.pending())
		s.Miniredis.SetError("")
		q.granted(t)
	})
}

// The error of a connection may be a context.DeadlineExceeded. The error of a call whose ctx has not ended is none.
func TestUnserved_NoDeadlineOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		record(client).before = func(int, redis.Cmder) error {
			return &net.OpError{Op: "dial",
				Err: context.DeadlineExceeded}
		}
		for _, lock := range []acquire{client.Mutex("x").TryLock, client.Mutex("x").Lock} {
			_, err := lock(t.Context())
			require.ErrorIs(t, err, fairlock.ErrUnreachable)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, call.NoReply, call.OriginOf(err), "a further call may succeed")
		}
		synctest.Wait()
	})
}

// ForceRelease reports that it took the lock also if the reply was lost and the next attempt finds it free.
func TestUnserved_ForceReleaseThatLostItsReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		s.Mutex("x").HoldAs("holder")
		client := s.Client(fairlock.Config{})
		lost := 0
		record(client).after = func(cmd redis.Cmder) {
			if verbOf(cmd) == "force_release" && lost == 0 {
				lost++
				cmd.SetErr(errCut)
			}
		}
		taken, err := admin.New(client.Redis, "").ForceRelease(t.Context(), idX(fairlock.KindMutex))
		require.NoError(t, err)
		assert.True(t, taken)
		assert.Equal(t, 1, lost)
	})
}

// If no server has ever replied, no waiter is known to be in a queue, so the log does not say that one could not leave.
func TestUnserved_WrongAddressLeavesNoWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log logged
		client := s.Client(fairlock.Config{Logger: log.logger()})
		client.Link.Cut()
		_, err := client.Mutex("x").Lock(t.Context())
		require.ErrorIs(t, err, fairlock.ErrUnreachable)
		require.NoError(t, client.Close())
		require.Len(t, log.lines, 1)
		assert.Contains(t, log.lines[0], "outage begins")
	})
}
