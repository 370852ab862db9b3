package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	runChild()
	logging.Disable()
	m.Run()
}

// The page and the pictures are made of the results that are there: go run ./bench -write . -render.
func TestOutputs_AreThoseOfTheResults(t *testing.T) {
	r, err := readResults("..")
	require.NoError(t, err)
	for name, want := range r.outputs() {
		have, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		assert.Equal(t, want, string(have), "run: go run ./bench -write . -render")
	}
}

// cells measures each peer once in each of these settings.
func cells(t *testing.T, all []peer, slice time.Duration, settings ...setting) *results {
	t.Helper()
	l := &lab{results: &results{}, program: "redis-server", slice: slice, progress: func(string) {}}
	t.Cleanup(l.close)
	present, err := l.start(t.Context(), all)
	require.NoError(t, err)
	require.Empty(t, l.Missing)
	require.Len(t, present, len(all))
	for _, s := range settings {
		for _, p := range present {
			require.NoError(t, l.cell(t.Context(), s, p, 1))
		}
	}
	return l.results
}

// Without the build tag nightly, etcd is not among the peers, and the workloads that wait for a TTL are left out.
func TestCell_EveryPeerInEveryWorkload(t *testing.T) {
	free := setting{Workload: uncontended, RTT: 2 * time.Millisecond}
	contended := setting{Workload: handoff, Contenders: 8}
	peers, settings := slices.Clone(peers), []setting{free, contended, {Workload: parallel, Contenders: many}}
	missing := 0
	if etcd == nil {
		peers = slices.DeleteFunc(peers, func(p peer) bool { return p.onEtcd })
	} else {
		settings = append(settings, setting{Workload: idle, Contenders: waiters}, setting{Workload: crash})
		missing = 2
	}
	r := cells(t, peers, 100*time.Millisecond, settings...)
	require.Empty(t, r.Missing)
	require.Len(t, r.Cells, len(settings)*len(peers)-missing)
	for _, m := range r.Cells {
		switch m.Workload {
		case idle:
		case crash:
			assert.Greater(t, m.BeyondTTL, -100.0, "%v", m) // TTL begins a little before the holder says so
			assert.Less(t, m.BeyondTTL, 15_000.0, "%v", m)
		default:
			if m.Workload == handoff && m.Peer == redsyncPeer.name {
				continue // it may not poll in so short a time
			}
			assert.Positive(t, m.PerSecond, "%v", m)
			if m.RTT > 0 && m.Peer != etcdPeer.name {
				assert.GreaterOrEqual(t, m.P50, 4000.0, "two round trips over the proxy: %v", m)
			}
		}
	}
	for _, p := range peers {
		if p.onEtcd {
			continue
		}
		n, ok := r.commandsEach(free, p.name)
		require.True(t, ok)
		assert.InDelta(t, 2, n, 0.5, "%s sends two commands for a pair", p.name)
	}
	again, _ := r.sameAgain(contended, ours.name)
	assert.Zero(t, again, "the others wait before it")
}

// A lock that does not exclude is found out.
func TestCell_NotExcluded(t *testing.T) {
	none := peer{name: "none", open: func(string, time.Duration) (session, error) { return noLock{}, nil }}
	l := &lab{results: &results{}, program: "redis-server", slice: 50 * time.Millisecond, progress: func(string) {}}
	t.Cleanup(l.close)
	_, err := l.start(t.Context(), []peer{none})
	require.NoError(t, err)
	for _, s := range []setting{{Workload: handoff, Contenders: 8}, {Workload: idle, Contenders: waiters}} {
		require.ErrorContains(t, l.cell(t.Context(), s, none, 1), "another goroutine held it")
	}
}

type noLock struct{}

func (noLock) lock(context.Context, string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}
func (noLock) close() {}

func TestResults_RatesAreOfOneRound(t *testing.T) {
	s := setting{Workload: uncontended}
	r := &results{Peers: []peerInfo{{Name: barePair.name}, {Name: ours.name}, {Name: etcdPeer.name}}}
	for round, rates := range [][2]float64{{10, 2}, {100, 50}, {1000, 900}} {
		r.Cells = append(r.Cells, measured{s, barePair.name, round, figures{PerSecond: rates[0]}},
			measured{s, ours.name, round, figures{PerSecond: rates[1]}})
	}
	rate, ok := r.rate(s, ours.name)
	assert.Equal(t, []any{0.5, true}, []any{rate, ok}, "of 0.2, 0.5 and 0.9")
	assert.Equal(t, "| of | fairlock |\n|---|---:|\n| a | 0.50 |\n| b | |", r.table("of", row{"a", others(r.rate, s)},
		row{"b", others(r.rate, setting{Workload: parallel})}))
}

// With a fence no update is lost, without a check each overtaken holder loses one, and a look at the lease helps unless
// the pause comes after it. The schedule is that of its seed.
func TestCountLost(t *testing.T) {
	const pauses, seed = 3, 4
	assert.Equal(t, schedule(seed, pauses), schedule(seed, 2*pauses)[:pauses])
	assert.NotEqual(t, schedule(seed, pauses), schedule(seed+1, pauses))
	l, err := countLost(t.Context(), []peer{ours, redislockPeer}, seed, pauses, func(string) {})
	require.NoError(t, err)
	require.Positive(t, l.AfterLook)
	require.Less(t, l.AfterLook, pauses)
	assert.Equal(t, []lostRow{
		{ours.name, "nothing", pauses, pauses}, {ours.name, ours.look, l.AfterLook, l.AfterLook}, {ours.name, ours.fence, 0,
			0},
		{redislockPeer.name, "nothing", pauses, pauses}, {redislockPeer.name, redislockPeer.look, l.AfterLook, l.AfterLook},
	}, l.Rows)
	assert.Contains(t, l.text(), "| nothing | 3 | 3 |\n")
}
