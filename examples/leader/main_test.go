package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/examples/internal/soon"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// asProgram has the test binary be the program.
const asProgram = "FAIRLOCK_EXAMPLE_LEADER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is one worker.
type process struct {
	*exec.Cmd

	name  string
	lines chan string
}

func start(t *testing.T, s *redistest.Server, name string, ttl time.Duration) *process {
	t.Helper()
	p := &process{
		Cmd:  exec.CommandContext(t.Context(), os.Args[0], "-name", name, "-ttl", ttl.String(), "-step", "100ms"),
		name: name, lines: make(chan string, 10_000),
	}
	p.Env = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS=unix://"+s.Addr())
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	return p
}

// until reads what the worker says until it says that, and returns the fence.
func (p *process) until(t *testing.T, says string) (fence uint64) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-p.lines:
			require.True(t, ok, "%s has ended", p.name)
			if text, found := strings.CutPrefix(line, p.name+" "+says); found {
				_, _ = fmt.Sscan(text, &fence)
				return fence
			}
		case <-late:
			require.Fail(t, p.name+" never "+says)
		}
	}
}

func TestTheOneThatWaitedLongestTakesOverFromAKilledLeader(t *testing.T) {
	server := redistest.Start(t)
	one := start(t, server, "one", 3*time.Second)
	first := one.until(t, "leads")
	two := start(t, server, "two", 3*time.Second)
	two.until(t, "waits")
	three := start(t, server, "three", 3*time.Second)
	three.until(t, "waits")

	require.NoError(t, one.Process.Kill())
	second := two.until(t, "leads")
	assert.Greater(t, second, first)
	require.NoError(t, two.Process.Kill())
	assert.Greater(t, three.until(t, "leads"), second)
}

func TestALeaderThatWasStoppedFindsItselfDeposed(t *testing.T) {
	server := redistest.Start(t)
	one := start(t, server, "one", time.Second)
	first := one.until(t, "step")
	require.NoError(t, one.Process.Signal(syscall.SIGSTOP))
	two := start(t, server, "two", time.Second)
	second := two.until(t, "leads") // when the rest of the TTL has passed
	assert.Greater(t, second, first)

	said := len(one.lines) // before it was stopped
	require.NoError(t, one.Process.Signal(syscall.SIGCONT))
	for range said {
		soon.Receive(t, one.lines)
	}
	assert.Equal(t, fmt.Sprint("one leads no more ", first), soon.Receive(t, one.lines))
	one.until(t, "waits") // for its next turn
}

func TestALeaderThatIsAskedToStopHandsOver(t *testing.T) {
	server := redistest.Start(t)
	one := start(t, server, "one", time.Hour) // for which nobody need wait
	one.until(t, "leads")
	two := start(t, server, "two", time.Hour)
	two.until(t, "waits")
	require.NoError(t, one.Process.Signal(syscall.SIGTERM))
	two.until(t, "leads")
	one.until(t, "leads no more")
	require.NoError(t, one.Wait())
}
