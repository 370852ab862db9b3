package demo_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
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
		Contest: demo.Contest{Kind: demo.Mutex},
		Clients: 4, Workers: 3, Duration: 900 * time.Millisecond,
		TTL: 2 * time.Second, Patience: 3 * time.Second, Hold: 2 * time.Millisecond,
	}
}

// contests are what a demo can be about, and the promise that its summary ends with.
var contests = map[demo.Contest]string{
	{Kind: demo.Mutex}:                 "one holder at a time",
	{Kind: demo.Semaphore, Permits: 5}: "never more than 5 permits in use",
	{Kind: demo.Semaphore, Permits: 1}: "never more than 1 permit in use",
	{Kind: demo.RW}:                    "every writer alone",
}

func TestInMemoryEverybodyIsServedInOrderAcrossCrashes(t *testing.T) {
	for contest := range contests {
		t.Run(fmt.Sprint(contest), func(t *testing.T) {
			t.Parallel()
			cfg := quick()
			cfg.Contest = contest
			played(t, cfg)
		})
	}
}

func TestProcessesAreServedInOrderAcrossKills(t *testing.T) {
	for contest := range contests {
		t.Run(fmt.Sprint(contest), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			cfg := quick()
			cfg.Contest = contest
			cfg.Redis = "unix://" + server.Addr()
			out := played(t, cfg)

			rdb := server.Client()
			require.Eventually(t, func() bool {
				keys, err := rdb.Keys(t.Context(), "*").Result()
				return err == nil && len(keys) == 1 && strings.Contains(out, keys[0]+", for a day")
			}, 30*time.Second, 50*time.Millisecond, "only the fence stays, and the summary names it")
		})
	}
}

// played plays a demo to its end and returns what it wrote. On a busy machine a client may die before all of its workers
// wait; then another one is played.
func played(t *testing.T, cfg demo.Config) string {
	t.Helper()
	for range 3 {
		if out, waiters := playedOnce(t, cfg); waiters == cfg.Workers {
			return out
		}
	}
	require.Fail(t, "no client died while all of its workers waited")
	return ""
}

// playedOnce also returns how many workers waited when their client died.
func playedOnce(t *testing.T, cfg demo.Config) (out string, waiting int) {
	t.Helper()
	var text bytes.Buffer
	v, err := demo.Run(t.Context(), cfg, &text)
	out = text.String()
	t.Log(out)
	require.NoError(t, err)
	require.NoError(t, v.Err())
	require.Zero(t, v.Violations)
	require.Zero(t, v.Overlaps)
	require.Positive(t, v.HandOff.N)
	if cfg.Kind == demo.RW || cfg.Permits > 1 {
		require.Greater(t, v.Together, 1, "several held at once")
		require.Greater(t, len(v.ByWeight), 1)
	}
	require.Len(t, v.Crashes, 2)
	holder, waiters := v.Crashes[0], v.Crashes[1]
	require.Positive(t, holder.Held)
	require.Positive(t, holder.Served, "somebody was served after it")
	require.Positive(t, holder.Stall)
	require.Zero(t, waiters.Held)
	require.Positive(t, waiters.Stall)
	require.Regexp(t, "client-. dies (holding|reading|writing)", out)
	require.Contains(t, out, "dies while its workers wait")
	require.Contains(t, out, "ok  "+contests[cfg.Contest])
	require.NotContains(t, out, "\x1b", "no colours in a pipe")
	return out, waiters.Waiters
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
	cfg.Duration = 3 * time.Second
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
