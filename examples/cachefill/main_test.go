package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/examples/internal/soon"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// newCache returns a cache as another process would have it; queued tells when one of its readers is in line.
func newCache(t *testing.T, s *redistest.Server, ttl time.Duration) (c *Cache, queued <-chan struct{}) {
	t.Helper()
	joined := make(chan struct{}, 100)
	rdb := redis.NewClient(s.Options())
	locks, err := fairlock.New(rdb, fairlock.Config{
		TTL: ttl, Trace: &fairlock.Trace{Queued: func(fairlock.QueuedInfo) { joined <- struct{}{} }},
	})
	require.NoError(t, err)
	t.Cleanup(func() { locks.Close(); rdb.Close() })
	return &Cache{rdb: rdb, locks: locks, lasts: time.Minute}, joined
}

func TestAnEntryIsComputedOnceForAllWhoMissIt(t *testing.T) {
	ctx := soon.Context(t)
	const clients, readers = 4, 25
	server := redistest.Start(t)
	var computed atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	compute := func(context.Context) (string, error) {
		if computed.Add(1) == 1 {
			close(begun)
		}
		<-goOn
		return "report", nil
	}
	var wg sync.WaitGroup
	read := func(c *Cache) {
		wg.Go(func() {
			if value, err := c.Get(ctx, "key", compute); err != nil || value != "report" {
				t.Error(value, err)
			}
		})
	}
	first, _ := newCache(t, server, time.Minute)
	read(first)
	soon.Receive(t, begun)
	for range clients {
		c, queued := newCache(t, server, time.Minute)
		for range readers {
			read(c)
		}
		for range readers {
			soon.Receive(t, queued) // all of them have missed it
		}
	}
	close(goOn)
	wg.Wait()
	assert.EqualValues(t, 1, computed.Load())

	lease, err := first.locks.Mutex("cache:key").Lock(ctx)
	require.NoError(t, err)
	_, err = first.Get(ctx, "key", nil)
	require.NoError(t, err, "who finds an entry needs no lock")
	require.NoError(t, lease.Unlock(ctx))
}

func TestIfComputingFailsTheNextInLineDoesIt(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	first, _ := newCache(t, server, time.Minute)
	next, queued := newCache(t, server, time.Minute)
	broken := errors.New("database is away")
	got := make(chan string, 1)
	_, err := first.Get(ctx, "key", func(context.Context) (string, error) {
		go func() {
			value, err := next.Get(ctx, "key", func(context.Context) (string, error) { return "report", nil })
			assert.NoError(t, err)
			got <- value
		}()
		soon.Receive(t, queued)
		return "", broken
	})
	require.ErrorIs(t, err, broken)
	assert.Equal(t, "report", soon.Receive(t, got))
}

func TestIfItsProcessCrashesTheNextInLineDoesItAfterTheTTL(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	first, _ := newCache(t, server, 500*time.Millisecond)
	next, _ := newCache(t, server, 500*time.Millisecond)
	_, err := first.Get(ctx, "key", func(ctx context.Context) (string, error) {
		go first.locks.Close() // ends the lease and gives nothing back, as a crash does
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	require.ErrorIs(t, err, fairlock.ErrClosed)
	value, err := next.Get(ctx, "key", func(context.Context) (string, error) { return "report", nil })
	require.NoError(t, err)
	assert.Equal(t, "report", value)
}

func TestTheProgramComputesOnce(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	computed, err := run(ctx, "unix://"+server.Addr(), 3, 20)
	require.NoError(t, err)
	assert.EqualValues(t, 1, computed)
	computed, err = run(ctx, "unix://"+server.Addr(), 1, 1)
	require.NoError(t, err)
	assert.Zero(t, computed)
}
