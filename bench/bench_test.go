package main

import (
	"bufio"
	"context"
	"encoding/xml"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A peer whose command the server does not have is left out.
func TestPeers_Need(t *testing.T) {
	l := &lab{results: &results{}, program: "redis-server", progress: func(string) {}}
	t.Cleanup(l.close)
	present, err := l.start(t.Context(), []peer{{name: "has it", needs: "get"}, {name: "lacks it", needs: "nosuch"}})
	require.NoError(t, err)
	require.Len(t, present, 1)
	assert.Equal(t, "has it", present[0].name)
}

// Redis counts the commands of scripts with those of clients. What a peer is said to send, its scripts do not run.
func TestPeers_Send(t *testing.T) {
	l := &lab{results: &results{}, program: "redis-server", slice: 200 * time.Millisecond, progress: func(string) {}}
	t.Cleanup(l.close)
	var onRedis []peer
	for _, p := range peers {
		if !p.onEtcd {
			onRedis = append(onRedis, p)
		}
	}
	_, err := l.start(t.Context(), onRedis)
	require.NoError(t, err)
	for _, p := range onRedis {
		byScripts, byClients := monitored(t, l.redis.addr, func() {
			require.NoError(t, l.cell(t.Context(), setting{Workload: handoff, Contenders: 4}, p, 1))
			require.Empty(t, l.Missing)
		})
		for _, name := range p.sends {
			assert.NotContains(t, byScripts, name, p.name)
			delete(byClients, name)
		}
		// To open a connection, and of this program.
		for _, name := range []string{"hello", "ping", "client", "cluster", "info", "flushall", "quit"} {
			delete(byClients, name)
		}
		assert.Empty(t, byClients, p.name)
	}
}

// monitored returns which commands Redis runs meanwhile.
func monitored(t *testing.T, addr string, work func()) (byScripts, byClients map[string]bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "MONITOR\r\n")
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20) // a script is in one line
	require.True(t, lines.Scan())
	byScripts, byClients = map[string]bool{}, map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			_, line, _ := strings.Cut(lines.Text(), "[")
			from, line, found := strings.Cut(line, `] "`)
			name, _, _ := strings.Cut(strings.ToLower(line), `"`)
			switch {
			case found && name == "echo":
				return
			case found && strings.HasSuffix(from, " lua"):
				byScripts[name] = true
			case found:
				byClients[name] = true
			}
		}
	}()
	work()
	end, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = end.Close() }()
	_, err = io.WriteString(end, "ECHO end\r\n")
	require.NoError(t, err)
	<-done
	return byScripts, byClients
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

func TestPicture(t *testing.T) {
	p := panel{title: "a < b", xs: []float64{2, 8, 32}, xNames: []string{"2", "8", "32"}, series: []series{
		{"one", 1, []float64{1, 10, 100}}, {"two", 2, []float64{3, math.NaN(), 100}}, {"nothing", 3,
			[]float64{math.NaN(), math.NaN(), math.NaN()}},
	}}
	svg := picture("a picture", p)
	require.NoError(t, xml.Unmarshal([]byte(svg), new(struct{})))
	assert.Contains(t, svg, `points="56.0,274.0 181.0,159.0 306.0,44.0"`, "both axes are logarithmic")
	assert.Contains(t, svg, `points="56.0,219.1 306.0,44.0"`, "what is missing is left out")
	assert.NotContains(t, svg, "nothing")
	assert.Equal(t, []float64{37, 51}, p.labels(scale{1, 100, 274, 44})[:2], "names do not cover each other")
	for _, c := range []struct {
		low, high float64
		steps     []float64
	}{{3, 3, []float64{2, 5}}, {0.3, 1.2, []float64{0.2, 0.5, 1, 2}}, {1, 10, []float64{1, 2, 5, 10}}, {3, 9000,
		[]float64{1, 10, 100, 1000, 10000}}} {
		assert.InDeltaSlice(t, c.steps, around([]series{{ys: []float64{c.low, c.high}}}), 1e-9)
	}
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
