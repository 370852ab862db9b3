package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/examples/internal/soon"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

const ttl = 2 * time.Second

// newWorker returns a worker that reaches its locks by that way.
func newWorker(
	t *testing.T, s *redistest.Server, name string, locks *redis.Options, handle func(context.Context, job) error,
) *worker {
	t.Helper()
	rdb := redis.NewClient(locks)
	client, err := fairlock.New(rdb, fairlock.Config{Name: name, TTL: ttl, WaiterTTL: 4 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); rdb.Close() })
	return &worker{name: name, rdb: s.Client(), locks: client, handle: handle}
}

// start has workers work until the returned function is called, which reports their errors.
func start(t *testing.T, workers ...*worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(soon.Context(t))
	results := make(chan error, len(workers))
	for _, w := range workers {
		go func() { results <- w.work(ctx) }()
	}
	return sync.OnceValue(func() (err error) {
		cancel()
		for range workers {
			err = errors.Join(err, <-results)
		}
		return err
	})
}

// left returns the jobs that a list has, the next one first.
func left(t *testing.T, w *worker, list string) (all []job) {
	t.Helper()
	texts, err := w.rdb.LRange(t.Context(), list, 0, -1).Result()
	require.NoError(t, err)
	for _, text := range texts {
		var j job
		require.NoError(t, json.Unmarshal([]byte(text), &j))
		all = append([]job{j}, all...)
	}
	return all
}

func TestJobsOfAUserTakeTurnsHoweverLongTheyTake(t *testing.T) {
	server := redistest.Start(t)
	var mu sync.Mutex
	running := map[string]int{}
	both := make(chan struct{})
	done := make(chan job, 4)
	handle := func(ctx context.Context, j job) error {
		mu.Lock()
		running[j.User]++
		if running[j.User] > 1 {
			t.Errorf("two jobs of %s at once", j.User)
		}
		if running["ann"] == 1 && running["bob"] == 1 {
			select {
			case <-both:
			default:
				close(both)
			}
		}
		mu.Unlock()
		<-both // jobs of different users go together
		select {
		case <-time.After(3 * ttl / 2):
		case <-ctx.Done():
			t.Error(context.Cause(ctx))
		}
		mu.Lock()
		running[j.User]--
		mu.Unlock()
		done <- j
		return nil
	}
	var workers []*worker
	for _, name := range []string{"one", "two", "three", "four"} {
		workers = append(workers, newWorker(t, server, name, server.Options(), handle))
	}
	for i, user := range []string{"ann", "ann", "bob", "bob"} {
		require.NoError(t, workers[0].add(t.Context(), job{i, user}))
	}
	stop := start(t, workers...)
	for range 4 {
		soon.Receive(t, done)
	}
	require.NoError(t, stop())
	keys, err := workers[0].rdb.Keys(t.Context(), "jobs*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func TestAJobStopsWhenItsLeaseIsLostAndAnotherWorkerDoesIt(t *testing.T) {
	server := redistest.Start(t)
	link := redistest.NewLink(t, server)
	begun, causes := make(chan struct{}), make(chan error, 1)
	slow := newWorker(t, server, "slow", &redis.Options{Network: "unix", Addr: link.Addr(), MaxRetries: -1},
		func(ctx context.Context, _ job) error {
			close(begun)
			link.Cut()
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil // not even a job that claims to be done is believed
		})
	jobs := make(chan job, 1)
	next := newWorker(t, server, "next", server.Options(), func(_ context.Context, j job) error {
		assert.Len(t, causes, 1, "the first one still works")
		jobs <- j
		return nil
	})
	require.NoError(t, slow.add(t.Context(), job{1, "ann"}))
	stopSlow := start(t, slow)
	soon.Receive(t, begun)
	stopNext := start(t, next)
	assert.Equal(t, job{1, "ann"}, soon.Receive(t, jobs))
	require.ErrorIs(t, soon.Receive(t, causes), fairlock.ErrLost)
	_ = stopSlow() // it may have tried again, without a way to its locks
	require.NoError(t, stopNext())
	keys, err := next.rdb.Keys(t.Context(), "jobs*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func TestAWorkerThatStopsPutsItsJobBack(t *testing.T) {
	server := redistest.Start(t)
	begun := make(chan struct{})
	w := newWorker(t, server, "w", server.Options(), func(ctx context.Context, _ job) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	for id := range 2 {
		require.NoError(t, w.add(t.Context(), job{id, "ann"}))
	}
	stop := start(t, w)
	soon.Receive(t, begun)
	require.NoError(t, stop())
	assert.Equal(t, []job{{0, "ann"}, {1, "ann"}}, left(t, w, waiting))
	lease, err := w.locks.Mutex("user:ann").TryLock(t.Context())
	require.NoError(t, err, "the lock is given back")
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestAFailedJobIsPutAside(t *testing.T) {
	server := redistest.Start(t)
	calls := make(chan job, 2)
	w := newWorker(t, server, "w", server.Options(), func(_ context.Context, j job) error {
		calls <- j
		if j.ID == 1 {
			return errors.New("no such account")
		}
		return nil
	})
	require.NoError(t, w.rdb.LPush(t.Context(), waiting, "no job at all").Err())
	for id := range 3 {
		require.NoError(t, w.add(t.Context(), job{id, "ann"}))
	}
	stop := start(t, w)
	for id := range 3 {
		assert.Equal(t, id, soon.Receive(t, calls).ID)
	}
	require.NoError(t, stop())
	texts, err := w.rdb.LRange(t.Context(), failed, 0, -1).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"no job at all", `{"id":1,"user":"ann"}`}, texts)
}

func TestTheProgramFinishesWhatACrashHasLeft(t *testing.T) {
	server := redistest.Start(t)
	crashed := newWorker(t, server, "w", server.Options(), nil)
	require.NoError(t, crashed.add(t.Context(), job{7, "ann"}))
	require.NoError(t, crashed.rdb.LMove(t.Context(), waiting, crashed.own(), "right", "left").Err())

	ctx, cancel := context.WithCancel(soon.Context(t))
	defer cancel()
	done := make(chan job, 4)
	finished := make(chan error, 1)
	go func() {
		finished <- run(ctx, "unix://"+server.Addr(), "w", 3, func(_ context.Context, j job) error {
			done <- j
			return nil
		})
	}()
	var all []int
	for range 4 {
		all = append(all, soon.Receive(t, done).ID)
	}
	cancel()
	require.NoError(t, soon.Receive(t, finished))
	assert.ElementsMatch(t, []int{7, 1, 2, 3}, all)
}
