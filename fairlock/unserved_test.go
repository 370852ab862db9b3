package fairlock_test

import (
	"context"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// tries are the calls that do not wait for the lock, but for Redis, each by the name of its method.
func tries(c *fairlocktest.Client, l *fairlock.Lease) map[string]func(context.Context) error {
	first := func(f func(context.Context) (*fairlock.Lease, error)) func(context.Context) error {
		return func(ctx context.Context) error { _, err := f(ctx); return err }
	}
	nothing := func(context.Context) error { return nil }
	return map[string]func(context.Context) error{
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
		"faults_test.go":       `(?m)^//fairlock:fault Redis does not serve a call that does not wait for the lock \((.*?)\)`,
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

// The error of a call that gives up names the latest failure with a cause. After a refusal, that is not the request in
// flight when the call gave up, and not the end of ctx.
func TestUnserved_NamesTheFailure(t *testing.T) {
	const loading = "LOADING Redis is loading the dataset in memory"
	bubbles(t, map[string][]string{ // replies to the requests; the last request hangs
		"Redis did not reply": {}, "LOADING": {loading}, "READONLY": {loading, readOnly},
	}, func(t *testing.T, s *fairlocktest.Server, want string, replies []string) {
		for _, inline := range []bool{false, true} {
			client := clientWith(t, s, fairlock.Config{}, func(o *redis.Options) { o.ContextTimeoutEnabled = inline })
			start, sent := time.Now(), atomic.Int64{}
			record(client).before = func(_ int, cmd redis.Cmder) error {
				if n := int(sent.Add(1)); n <= len(replies) && verbOf(cmd) != "leave" {
					return refusal(replies[n-1])
				}
				if !inline { // it hangs
					time.Sleep(time.Until(start.Add(2 * time.Second)))
					return errCut
				}
				time.Sleep(time.Until(start.Add(time.Second)))
				return context.DeadlineExceeded
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := client.Mutex("x").Lock(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			if !inline || len(replies) > 0 {
				require.ErrorContains(t, err, "tried for 1s: "+want)
			}
			pass(time.Minute)
		}
	})
}

// Redis refuses acquires, as while a slot moves, and replies to the heartbeats of a waiter. TryLock gives up after 3 s.
func TestUnserved_TryBesideAWaiter(t *testing.T) {
	bubbleAlone(t, func(t *testing.T, s *fairlocktest.Server) {
		client := clientWith(t, s, fairlock.Config{}, func(*redis.Options) {})
		holder := s.Mutex("x").HoldAs("holder")
		queued := begin(t.Context(), client.Mutex("x").Lock)
		var moved atomic.Bool
		record(client).before = func(_ int, cmd redis.Cmder) error {
			if verbOf(cmd) == "acquire" && !moved.Load() {
				return refusal("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return nil
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.Mutex("x").TryLock(ctx)
		require.ErrorIs(t, err, fairlock.ErrUnreachable)
		assert.Equal(t, 3*time.Second, time.Since(start))
		moved.Store(true)
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, queued.granted(t).Unlock(t.Context()))
	})
}
