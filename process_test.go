package fairlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// One test has processes of the operating system that are killed and stopped. Package chaos does it at random.

// childEnv makes the test binary a process that locks x: it holds the socket of the redis-server, the namespace, TTL
// and WaiterTTL.
const childEnv = "FAIRLOCK_TEST_CHILD"

// runChild reports whether this process is a child, after it has done its work: it prints "locked" once it has the
// lock, and for each line that it reads, the error of its lease, and that of Unlock.
func runChild() bool {
	args := strings.Fields(os.Getenv(childEnv))
	if len(args) != 4 {
		return false
	}
	ttl, _ := time.ParseDuration(args[2])
	waiterTTL, _ := time.ParseDuration(args[3])
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: args[0]})
	client, err := fairlock.New(rdb, fairlock.Config{
		Namespace: args[1], TTL: ttl, WaiterTTL: waiterTTL, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	lease, err := client.Mutex("x").Lock(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("locked")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(errors.Is(lease.Err(), fairlock.ErrLost), errors.Is(lease.Unlock(context.Background()), fairlock.ErrLost))
	}
	return true
}

// child is a process of this test.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func startChild(t *testing.T, s *redistest.Server, namespace string, ttl, waiterTTL time.Duration) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) // killed when the test ends
	cmd.Env = append(os.Environ(), fmt.Sprint(childEnv, "=", s.Addr(), " ", namespace, " ", ttl, " ", waiterTTL))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // if the tests are killed, the system ends a stopped child, too
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	return &child{t, cmd, in, bufio.NewScanner(out)}
}

// line is the next line that it prints.
func (c *child) line() string {
	c.t.Helper()
	require.True(c.t, c.out.Scan(), "the process has ended")
	return c.out.Text()
}

func (c *child) signal(sig os.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(sig))
}

// A process that is killed (kill -9) keeps the lock for the rest of its TTL, or its ticket for the rest of its WaiterTTL.
// Then the next waiter has the lock, and nothing is left of the processes.
//
//fairlock:fault A holder crashes
//fairlock:fault Waiters crash, a hundred in a row
func TestProcess_Killed(t *testing.T) {
	t.Parallel()
	s := &server{t: t, namespace: "killed", rdb: redistest.Shared(t).Client}
	m, rdb := s.client(fairlock.Config{}).Mutex("x"), s.rdb()
	holder := startChild(t, redistest.Shared(t), s.namespace, 3*time.Second, fairlock.MinWaiterTTL)
	require.Equal(t, "locked", holder.line())
	waiter := startChild(t, redistest.Shared(t), s.namespace, 5*time.Second, 4*time.Second)
	queued(t, m, 1)
	survivor := join(t, m, m.Lock)
	holder.signal(syscall.SIGKILL)
	waiter.signal(syscall.SIGKILL)
	before := state(t, m) // they send nothing more, but for what is on its way
	lease := survivor.granted(t)
	granted, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, granted.Sub(before.At), max(before.Holder.TTL, before.Waiters[0].TTL), "it is in early")
	assert.Greater(t, lease.Fence(), before.Fence)
	unlock(t, lease)
	unlock(t, hold(t, m.Lock))
	assert.Equal(t, []string{"killed:{x}:number"}, s.keys(rdb))
}

// A holder that is stopped (SIGSTOP) for longer than its lease finds it over when it goes on, and its Unlock does not
// touch the next owner.
//
//fairlock:fault A holder is stopped (SIGSTOP) beyond its lease
func TestProcess_Stopped(t *testing.T) {
	t.Parallel()
	s := &server{t: t, namespace: "stopped", rdb: redistest.Shared(t).Client}
	m := s.client(fairlock.Config{}).Mutex("x")
	holder := startChild(t, redistest.Shared(t), s.namespace, 500*time.Millisecond, fairlock.MinWaiterTTL)
	require.Equal(t, "locked", holder.line())
	holder.signal(syscall.SIGSTOP)
	next := hold(t, m.Lock)
	_, err := io.WriteString(holder.in, "\n")
	require.NoError(t, err)
	holder.signal(syscall.SIGCONT)
	assert.Equal(t, "true true", holder.line())
	require.NoError(t, next.Renew(t.Context()))
	unlock(t, next)
}
