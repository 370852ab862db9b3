package demo_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/demo"
	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// quick is a demo that takes a few seconds. Patience outlasts the pauses of a busy machine: a waiter that stays
// silent for longer loses its place, rightly, and the judge cannot know why.
func quick() demo.Config {
	return demo.Config{
		Clients: 4, Workers: 3, Duration: 900 * time.Millisecond,
		TTL: 2 * time.Second, Patience: 1500 * time.Millisecond, Hold: 2 * time.Millisecond,
	}
}

func TestInMemoryEverybodyIsServedInOrderAcrossCrashes(t *testing.T) {
	t.Parallel()
	played(t, quick())
}

func TestProcessesAreServedInOrderAcrossKills(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := quick()
	cfg.Redis = "unix://" + server.Addr()
	out := played(t, cfg)
	require.Contains(t, out, ":fence, for a day")

	rdb := server.Client()
	require.Eventually(t, func() bool {
		keys, err := rdb.Keys(t.Context(), "*").Result()
		return err == nil && len(keys) == 1
	}, 30*time.Second, 50*time.Millisecond, "only the fence stays")
}

// played plays a demo to its end and returns what it wrote.
func played(t *testing.T, cfg demo.Config) string {
	t.Helper()
	var out bytes.Buffer
	v, err := demo.Run(t.Context(), cfg, &out)
	t.Log(out.String())
	require.NoError(t, err)
	require.NoError(t, v.Err())
	require.Zero(t, v.Violations)
	require.Zero(t, v.Overlaps)
	require.Positive(t, v.HandOff.N)
	require.Len(t, v.Crashes, 2)
	holder, waiters := v.Crashes[0], v.Crashes[1]
	require.True(t, holder.Held)
	require.Positive(t, holder.Stall, "somebody was served after it")
	require.False(t, waiters.Held)
	require.Equal(t, cfg.Workers, waiters.Waiters)
	require.Positive(t, waiters.Stall)
	require.Contains(t, out.String(), "dies while it holds the lock")
	require.Contains(t, out.String(), "dies while its workers wait")
	require.Contains(t, out.String(), "ok  one holder at a time")
	require.NotContains(t, out.String(), "\x1b", "no colours in a pipe")
	return out.String()
}

func TestInterruptedDemoEndsWithASummary(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Duration = 10 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	v, err := demo.Run(ctx, cfg, &out)
	require.NoError(t, err)
	require.NoError(t, v.Err())
	require.Contains(t, out.String(), "ok  one holder at a time")
}

func TestServerThatDiesEndsTheDemoWithAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := quick()
	cfg.Redis = "unix://" + server.Addr()
	cfg.Duration = 10 * time.Second
	time.AfterFunc(time.Second, server.Kill)
	var out bytes.Buffer
	_, err := demo.Run(t.Context(), cfg, &out)
	require.ErrorContains(t, err, "last failure")
	require.NotContains(t, out.String(), "ok  ")
}

func TestClientThatSharesAServerWithAnotherDemoIsNotDisturbed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := quick()
	cfg.Redis = "unix://" + server.Addr()
	verdicts := make(chan judge.Verdict, 2)
	for range 2 {
		go func() {
			v, _ := demo.Run(t.Context(), cfg, &bytes.Buffer{})
			verdicts <- v
		}()
	}
	for range 2 {
		v := <-verdicts
		require.NoError(t, v.Err())
		require.Len(t, v.Crashes, 2)
		require.Len(t, v.ByClient, cfg.Clients)
	}
}
