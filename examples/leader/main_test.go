//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
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

// worker is a process.
type worker struct {
	*exec.Cmd
	t     *testing.T
	name  string
	lines *bufio.Scanner
}

func start(t *testing.T, s *redistest.Server, name string) worker {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-name", name, "-ttl", "2s", "-step", "50ms")
	cmd.Env = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS=unix://"+s.Addr())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return worker{cmd, t, name, bufio.NewScanner(out)}
}

// until reads what the worker says until it says that, and returns the fence.
func (p worker) until(says string) (fence uint64) {
	p.t.Helper()
	for p.lines.Scan() {
		if text, found := strings.CutPrefix(p.lines.Text(), p.name+" "+says); found {
			_, _ = fmt.Sscan(text, &fence)
			return fence
		}
	}
	require.Fail(p.t, p.name+" has ended")
	return 0
}

// The worker that has waited longest takes over when the leader is stopped, killed, or told to go.
func TestRun(t *testing.T) {
	server := redistest.Start(t)
	one := start(t, server, "one")
	first := one.until("step ")
	two := start(t, server, "two")
	two.until("waits")
	three := start(t, server, "three")
	three.until("waits")

	require.NoError(t, one.Process.Signal(syscall.SIGSTOP))
	second := two.until("leads ") // when the rest of the TTL has passed
	assert.Greater(t, second, first)
	require.NoError(t, one.Process.Signal(syscall.SIGCONT))
	assert.Equal(t, first, one.until("leads no more "), "it finds itself deposed")
	one.until("waits")

	require.NoError(t, two.Process.Signal(syscall.SIGKILL))
	third := three.until("leads ")
	assert.Greater(t, third, second)
	three.until("step ") // told to go before, it would not have begun
	require.NoError(t, three.Process.Signal(syscall.SIGTERM))
	assert.Greater(t, one.until("leads "), third) // at once
	three.until("leads no more ")
	require.NoError(t, three.Wait())
}
