package demo

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/golden"
	"github.com/fairlock/fairlock-go/fairlock"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// quick is a demo that takes a few seconds of simulated time.
func quick(c Contest) Config {
	return Config{
		Contest: c, Clients: 4, Workers: 3, Duration: 900 * time.Millisecond,
		TTL: time.Second, WaiterTTL: fairlock.MinWaiterTTL, Hold: 40 * time.Millisecond,
	}
}

// trying is how long go-redis may still try to connect for a client that has crashed.
const trying = 2 * time.Second

// inBubble plays a demo in memory, in simulated time, until ctx ends, and returns what came of it and what it wrote.
func inBubble(t *testing.T, cfg Config, ends time.Duration, check func(t *testing.T, r Result, out string)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), ends)
		defer cancel()
		var out strings.Builder
		r, err := Run(ctx, cfg, &out)
		require.NoError(t, err)
		require.NoError(t, r.Err())
		check(t, r, out.String())
		time.Sleep(trying)
	})
}

func TestRun(t *testing.T) {
	for contest, promise := range map[Contest]string{
		{Kind: Mutex}:                 "one holder at a time",
		{Kind: Semaphore, Permits: 5}: "never more than 5 permits in use",
		{Kind: RW}:                    "every writer alone",
	} {
		t.Run(string(contest.Kind), func(t *testing.T) {
			inBubble(t, quick(contest), time.Minute, func(t *testing.T, r Result, out string) {
				assert.Zero(t, r.Violations+r.Overlaps+r.Fences)
				assert.Positive(t, r.Handoff.N)
				assert.Equal(t, contest.Kind != Mutex, r.Together > 1 && len(r.ByWeight) > 1, "several held at once")
				require.Len(t, r.Crashes, 2)
				holder, waiters := r.Crashes[0], r.Crashes[1]
				assert.Positive(t, holder.Held)
				assert.Positive(t, holder.Served, "others were served after it")
				assert.Positive(t, holder.Stall)
				assert.Equal(t, []int{0, 3}, []int{waiters.Held, waiters.Waiters})
				assert.Positive(t, waiters.Stall)
				assert.Regexp(t, "client-. dies (holding|reading|writing)", out)
				assert.Contains(t, out, "dies while its workers wait")
				assert.Contains(t, out, "ok  "+promise)
				assert.NotContains(t, out, "\x1b", "no colours in a pipe")
			})
		})
	}
}

func TestRun_Interrupted(t *testing.T) {
	cfg := quick(Contest{Kind: Mutex})
	cfg.Duration = 10 * time.Minute
	inBubble(t, cfg, 1500*time.Millisecond, func(t *testing.T, _ Result, out string) {
		require.Contains(t, out, "ok  one holder at a time")
	})
}

func TestScenario_RedisIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := quick(Contest{Kind: Mutex})
		setup, rec, err := start(cfg)
		require.NoError(t, err)
		time.AfterFunc(100*time.Millisecond, func() {
			for _, c := range setup.clients {
				c.(*local).link.Cut()
			}
		})
		err = scenario{cfg, rec, setup}.run(t.Context())
		require.ErrorContains(t, err, "last failure")
		setup.stop()
		require.NotContains(t, setup.summary(cfg, rec.result(rec.clock.now()), rec.elapsed(), err), "ok  ")
		time.Sleep(trying)
	})
}

// sample is a lock that a dead client holds, with waiters, one of them dead.
func sample(waiters int) snapshot {
	s := snapshot{
		cfg:   Config{Contest: Contest{Kind: Mutex}, Clients: 4, Workers: 3, TTL: 2 * time.Second, WaiterTTL: time.Second},
		where: "Redis in memory", lock: "demo-x", elapsed: 3 * time.Second, seen: int64(1500 * time.Microsecond),
		short: func(name string) string { return strings.TrimSuffix(name, "-x") },
		dead:  map[string]bool{"client-2-x": true},
		state: fairlock.State{
			Held: true, Waiting: waiters, Fence: 1795185103557506,
			Holder: fairlock.Holder{Client: "client-2-x", Fence: 1795185103557506, TTL: 1234 * time.Millisecond},
		},
		grants:  []grant{{client: "client-2-x", fence: 1795185103557506, weight: 1, wait: 81 * time.Millisecond}},
		remarks: []remark{{2 * time.Second, "client-2 dies while it holds the lock"}},
		result:  Result{Grants: 321, ByClient: map[string]int{"client-10-x": 2, "client-2-x": 300}},
	}
	for i := range waiters {
		s.state.Waiters = append(s.state.Waiters, fairlock.Waiter{
			Client: fmt.Sprintf("client-%d-x", i%3+1), Age: time.Duration(70-i) * time.Millisecond, TTL: time.Second,
		})
	}
	return s
}

// shared is sample as a semaphore or a read-write lock: the dead client and four more hold a share.
func shared(c Contest, waiters int) snapshot {
	s := sample(waiters)
	s.cfg.Contest, s.state.Used = c, 6
	s.state.Holder.Weight, s.grants[0].weight = 1, 1
	if c.Kind == Semaphore {
		s.state.Holder.Weight, s.grants[0].weight = 2, 2
	}
	s.state.Holders = []fairlock.Holder{s.state.Holder}
	for i := range 4 {
		s.state.Holders = append(s.state.Holders, fairlock.Holder{Client: fmt.Sprintf("client-%d-x", i+3), Weight: 1})
	}
	for i := range s.state.Waiters {
		s.state.Waiters[i].Weight, s.state.Waiters[i].Writer = 3, c.Kind == RW
	}
	return s
}

// Colours and spaces at the ends of lines are left out of testdata/pictures.txt.
func TestSnapshot_Picture(t *testing.T) {
	writer, idle, away := shared(Contest{Kind: RW}, 0), sample(0), sample(0)
	writer.state.Used, writer.state.Holder.Writer, writer.state.Holders[0].Writer = 1, true, true
	idle.state, away.state, away.fault = fairlock.State{}, fairlock.State{}, errors.New("connection refused")
	var b strings.Builder
	for _, s := range []snapshot{
		sample(3), shared(Contest{Kind: Semaphore, Permits: 7}, 3), shared(Contest{Kind: RW}, 3), writer, idle, away,
		sample(100), shared(Contest{Kind: RW}, 100), // most of these waiters have no room
	} {
		fmt.Fprintf(&b, "%s\n\n", s.draw(80, 24))
	}
	golden.Equal(t, "pictures.txt", regexp.MustCompile(`(?m)\x1b\[[0-9;]*m| +$`).ReplaceAllString(b.String(), ""))
}

func TestSnapshot_PictureFitsTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {40, 12}, {10, 3}, {1, 1}, {0, 0}} {
		width, height := size[0], size[1]
		lines := strings.Split(sample(100).draw(width, height), "\n")
		lines = append(lines, strings.Split(shared(Contest{Semaphore, 9}, 100).draw(width, height), "\n")...)
		require.LessOrEqual(t, len(lines), 2*max(height, 1))
		for _, line := range lines {
			require.LessOrEqual(t, lipgloss.Width(line), max(width, 2), "%dx%d: %q", width, height, line)
		}
	}
}

func TestScreen_FollowsTheTerminalAndTheUser(t *testing.T) {
	quits := 0
	var model tea.Model = screen{source: func() snapshot { return sample(3) }, quit: func() { quits++ }}
	model, _ = model.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	model, cmd := model.Update(tick{})
	require.NotNil(t, cmd, "the next picture")
	view := model.View()
	require.True(t, view.AltScreen)
	require.Contains(t, view.Content, "1795185103557506")
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}, {Code: 'x', Text: "x"}} {
		model, _ = model.Update(key)
	}
	require.Equal(t, 2, quits)
}
