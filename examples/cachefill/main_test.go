package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

func TestRun(t *testing.T) {
	t.Parallel()
	url := "unix://" + redistest.Start(t).Addr()
	computed, err := run(t.Context(), url, 3, 20)
	require.NoError(t, err)
	assert.EqualValues(t, 1, computed)
	computed, err = run(t.Context(), url, 1, 1)
	require.NoError(t, err)
	assert.Zero(t, computed)
}

// If computing fails, or its process crashes, the next one in line does it.
func TestCache_ComputingFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		broken := errors.New("database is away")
		cacheOf := func(c *fairlocktest.Client) *Cache { return &Cache{c.Redis, c.Client, time.Minute} }
		read := func(began time.Time, key string, want time.Duration) {
			compute := func(context.Context) (string, error) { return "report", nil }
			value, err := cacheOf(server.Client(fairlock.Config{})).Get(t.Context(), key, compute)
			assert.NoError(t, err)
			assert.Equal(t, "report", value)
			assert.Equal(t, want, time.Since(began))
		}
		began := time.Now()
		_, err := cacheOf(server.Client(fairlock.Config{})).Get(t.Context(), "fails", func(context.Context) (string, error) {
			go read(began, "fails", time.Second)
			time.Sleep(time.Second)
			return "", broken
		})
		require.ErrorIs(t, err, broken)
		synctest.Wait()

		first := server.Client(fairlock.Config{TTL: 2 * time.Second})
		began = time.Now()
		_, err = cacheOf(first).Get(t.Context(), "crashes", func(ctx context.Context) (string, error) {
			first.Crash()
			return "", context.Cause(ctx)
		})
		require.ErrorIs(t, err, fairlock.ErrClosed)
		read(began, "crashes", 2*time.Second)

		lease := server.Mutex("cache:crashes").HoldAs("somebody")
		read(time.Now(), "crashes", 0) // an entry that is there needs no lock
		require.NoError(t, lease.Unlock(t.Context()))
	})
}
