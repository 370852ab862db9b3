package demo_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/demo"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// quick is a demo that takes a few seconds. On a real machine its WaiterTTL outlasts pauses: a waiter that sends no
// heartbeat for longer loses its place, rightly, and the checker cannot know why.
func quick(c demo.Contest) demo.Config {
	return demo.Config{
		Contest: c, Clients: 4, Workers: 3, Duration: 900 * time.Millisecond,
		TTL: time.Second, Patience: 2 * time.Second, Hold: 2 * time.Millisecond,
	}
}

// contests are what a demo can be about, and the promise that its summary ends with.
var contests = map[demo.Contest]string{
	{Kind: demo.Mutex}:                 "one holder at a time",
	{Kind: demo.Semaphore, Permits: 5}: "never more than 5 permits in use",
	{Kind: demo.RW}:                    "every writer alone",
}

// In memory, in simulated time.
func TestRun_InMemory(t *testing.T) {
	for contest := range contests {
		t.Run(fmt.Sprint(contest), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := quick(contest)
				cfg.Hold = 20 * time.Millisecond // fewer grants: the server in memory takes a millisecond for each
				played(t, cfg)
				time.Sleep(2 * time.Second) // so long go-redis tries to connect for a client that has crashed
			})
		})
	}
}

// Two demos at once, with processes, on one server.
func TestRun_Processes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	outs := make(chan string, 2)
	for _, contest := range []demo.Contest{{Kind: demo.Mutex}, {Kind: demo.RW}} {
		go func() {
			cfg := quick(contest)
			cfg.Redis = "unix://" + server.Addr()
			outs <- played(t, cfg)
		}()
	}
	out := <-outs + <-outs
	rdb := server.Client()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		keys, err := rdb.Keys(context.Background(), "*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 2, "only the fences stay")
		for _, key := range keys {
			require.Contains(t, out, key+", for a day")
		}
	}, 30*time.Second, 50*time.Millisecond)
}

// played plays a demo to its end and returns what it wrote.
func played(t *testing.T, cfg demo.Config) string {
	t.Helper()
	var text bytes.Buffer
	r, err := demo.Run(t.Context(), cfg, &text)
	out := text.String()
	t.Log(out)
	assert.NoError(t, err)
	assert.NoError(t, r.Err())
	assert.Zero(t, r.Violations+r.Overlaps+r.Fences)
	assert.Positive(t, r.Handoff.N)
	if cfg.Kind == demo.RW || cfg.Permits > 1 {
		assert.Greater(t, r.Together, 1, "several held at once")
		assert.Greater(t, len(r.ByWeight), 1)
	}
	if !assert.Len(t, r.Crashes, 2) {
		return out
	}
	holder, waiters := r.Crashes[0], r.Crashes[1]
	assert.Positive(t, holder.Held)
	assert.Positive(t, holder.Served, "others were served after it")
	assert.Positive(t, holder.Stall)
	assert.Zero(t, waiters.Held)
	assert.Equal(t, cfg.Workers, waiters.Waiters)
	assert.Positive(t, waiters.Stall)
	assert.Regexp(t, "client-. dies (holding|reading|writing)", out)
	assert.Contains(t, out, "dies while its workers wait")
	assert.Contains(t, out, "ok  "+contests[cfg.Contest])
	assert.NotContains(t, out, "\x1b", "no colours in a pipe")
	return out
}

func TestRun_Interrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quick(demo.Contest{Kind: demo.Mutex})
		cfg.Duration = 10 * time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var out bytes.Buffer
		r, err := demo.Run(ctx, cfg, &out)
		require.NoError(t, err)
		require.NoError(t, r.Err())
		require.Contains(t, out.String(), "ok  one holder at a time")
	})
}

func TestRun_ServerDies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := quick(demo.Contest{Kind: demo.Mutex})
	cfg.Redis = "unix://" + server.Addr()
	cfg.Duration = 3 * time.Second
	time.AfterFunc(time.Second, server.Kill)
	var out bytes.Buffer
	_, err := demo.Run(t.Context(), cfg, &out)
	require.ErrorContains(t, err, "last failure")
	require.NotContains(t, out.String(), "ok  ")
}
