package demo

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// sample is a demo of three clients. The second was killed at 20 ms, while it held the lock until 2 s.
func sample(out *strings.Builder) *demo {
	d := &demo{
		Config: Config{Type: locks.Type{Kind: fairlock.KindMutex}, Clients: 3, Workers: 1, TTL: 2 * time.Second,
			WaiterTTL: 3 * time.Second, Where: "in memory"},
		lock: "x", began: time.Now(), out: out, last: map[[2]int]history.Op{}, grants: make([]int, 3),
		quit: func(error) {}, crashes: []crash{{history.Span{Process: 1, From: 20e6, To: 21e6}, "while it held the lock"}},
	}
	for _, step := range []struct {
		ms     int64
		client int
		op     history.Op
		ticket uint64
	}{
		{1, 0, history.Request, 0}, {2, 0, history.Granted, 0}, {3, 1, history.Request, 0}, {4, 1, history.Queued, 1004},
		{10, 0, history.Unlock, 0}, {13, 1, history.Granted, 1004}, {12, 0, history.Released, 0},
		{14, 2, history.Request, 0}, {15, 2, history.Queued, 1015}, {2014, 2, history.Granted, 1015},
		{2024, 2, history.Unlock, 0}, {2025, 2, history.Released, 0},
	} {
		e := history.Event{At: step.ms * 1e6, Process: step.client, Op: step.op, Lock: "x", Token: fmt.Sprint(step.client),
			Ticket: step.ticket}
		if step.op == history.Granted {
			e.Fence, e.Until = uint64(step.ms), (step.ms+2000)*1e6
		}
		d.add(e)
	}
	return d
}

// The wait after a crash is the crash's, and not that of a handoff.
func TestDemo_Summary(t *testing.T) {
	var out strings.Builder
	require.NoError(t, sample(&out).conclude(nil))
	for _, want := range []string{
		"grants    3 grants: client-1 1, client-2 1, client-3 1\n",
		"wait      p50 10ms  p99 2s ",
		"handoff   p50 3ms  p99 3ms ",
		"client-2  killed while it held the lock; no grant for 1.99s then\n",
		"\nok  strict FIFO, and never held by more than its kind allows\n",
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.NotContains(t, out.String(), "\x1b", "no colours in a pipe")

	out.Reset()
	away := errors.New("Redis is gone")
	require.ErrorIs(t, sample(&out).conclude(away), away)
	assert.Contains(t, out.String(), "\nUNFINISHED  until then strict FIFO")

	out.Reset()
	d := sample(&out)
	d.events[5].At = 9e6 // it was granted the lock while the first client held it
	require.ErrorContains(t, d.conclude(nil), "broke its promises")
	assert.Contains(t, out.String(), "\nFAILED  exclusion: 2 of 1 are held")
	require.ErrorIs(t, (&demo{out: &out}).conclude(away), away, "nothing was recorded")
}
