package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// The program does the jobs that it adds, and those that a crash has left.
func TestRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Client().LPush(t.Context(), (&worker{name: "w"}).own(), `{"id":7,"user":"ann"}`).Err())
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var done []int
	require.NoError(t, run(ctx, "unix://"+server.Addr(), "w", 3, func(_ context.Context, j job) error {
		mu.Lock()
		defer mu.Unlock()
		if done = append(done, j.ID); len(done) == 4 {
			cancel()
		}
		return nil
	}))
	assert.ElementsMatch(t, []int{7, 1, 2, 3}, done)
}

// start has a worker work, in simulated time, until the returned function is called.
func start(
	t *testing.T, server *fairlocktest.Server, rdb *redis.Client, handle func(context.Context, job) error,
) (link *fairlocktest.Link, stop func()) {
	t.Helper()
	client := server.Client(fairlock.Config{TTL: 2 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- (&worker{client.Name(), rdb, client.Client, handle}).work(ctx) }()
	return client.Link, func() {
		cancel()
		assert.NoError(t, <-result)
	}
}

func TestWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		rdb := server.Link().Redis()
		began := time.Now()
		ends := make(chan string, 100) // of jobs: when, and which
		ended := func(j job) { ends <- fmt.Sprint(time.Since(began).Round(time.Second), " ", j.User, j.ID) }
		sofar := func() (all []string) {
			for len(ends) > 0 {
				all = append(all, <-ends)
			}
			return all
		}
		add := func(id int, user string) { require.NoError(t, (&worker{rdb: rdb}).add(t.Context(), job{id, user})) }
		left := func(list string) []string { return rdb.LRange(t.Context(), list, 0, -1).Val() }

		// Jobs of a user take turns, however long they take; those of others go beside them. One that fails is put aside.
		long := func(_ context.Context, j job) error {
			time.Sleep(5 * time.Second)
			ended(j)
			if j.ID == 2 {
				return errors.New("no such account")
			}
			return nil
		}
		require.NoError(t, rdb.LPush(t.Context(), waiting, "no job at all").Err())
		add(1, "ann")
		add(2, "ann")
		add(1, "bob")
		var stops []func()
		for range 3 {
			_, stop := start(t, server, rdb, long)
			stops = append(stops, stop)
			synctest.Wait()
		}
		time.Sleep(11 * time.Second)
		for _, stop := range stops {
			stop()
		}
		assert.ElementsMatch(t, []string{"5s ann1", "5s bob1", "10s ann2"}, sofar())
		assert.Equal(t, []string{"no job at all", `{"id":2,"user":"ann"}`}, left(failed))

		// A worker that stops puts its job back.
		add(3, "ann")
		add(4, "ann")
		_, stop := start(t, server, rdb, func(ctx context.Context, _ job) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		synctest.Wait()
		stop()
		assert.Equal(t, []string{`{"id":4,"user":"ann"}`, `{"id":3,"user":"ann"}`}, left(waiting))
		server.Mutex("user:ann").AssertFree()

		// If the lease is lost in the middle of a job, the worker takes it up again when Redis is back. If it is told to stop
		// before, another worker does the job.
		began = time.Now()
		link, stop := start(t, server, rdb, func(ctx context.Context, j job) error {
			<-ctx.Done()
			ended(j)
			return nil // not even a job that claims to be done is believed
		})
		synctest.Wait()
		link.Cut()
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"2s ann3"}, sofar())
		stop()
		_, stop = start(t, server, rdb, func(_ context.Context, j job) error { ended(j); return nil })
		time.Sleep(time.Second)
		stop()
		assert.Equal(t, []string{"3s ann3", "3s ann4"}, sofar())
		assert.Empty(t, left(waiting))
	})
}
