//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// asProgram has the test binary be the program.
const asProgram = "FAIRLOCK_EXAMPLE_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// replica is a process of the service.
type replica struct {
	*exec.Cmd
	t    *testing.T
	addr string
	said *strings.Builder // once it has ended
}

func start(t *testing.T, redis string, work time.Duration) replica {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	r := replica{exec.CommandContext(t.Context(), os.Args[0], "-addr", addr, "-work", work.String()), t, addr,
		new(strings.Builder)}
	r.Env, r.Stderr = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS="+redis), r.said
	require.NoError(t, r.Start())
	t.Cleanup(func() { _ = r.Wait() }) // killed by the end of the test's ctx, unless the test has ended it
	return r
}

// call returns the status and the body of an answer; 0 if there is none.
func (r replica) call(method, path string) (status int, body string) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+path, http.NoBody)
	if !assert.NoError(r.t, err) {
		return 0, ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	assert.NoError(r.t, err)
	return resp.StatusCode, string(text)
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(5 * time.Millisecond) { // no event tells
		require.True(t, time.Now().Before(end), what)
	}
}

func (r replica) ready() bool {
	status, _ := r.call(http.MethodGet, "/readyz")
	return status == http.StatusOK
}

func (r replica) leads(addr string) bool {
	_, leader := r.call(http.MethodGet, "/leader")
	return leader == addr+"\n"
}

// On SIGTERM, the replica that leads resigns, requests in the queue are answered at once, one that holds a lock
// finishes, and nothing is left in Redis.
func TestService_InOrder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := "unix://" + server.Addr()
	client, err := fairlock.New(server.Client(), fairlock.Config{})
	require.NoError(t, err)
	defer client.Close()
	operator := admin.New(server.Client(), "")
	state := func() admin.State {
		s, err := operator.Inspect(t.Context(), fairlock.ID{Kind: fairlock.KindMutex, Name: "report:ann"}, 1000, 1000)
		require.NoError(t, err)
		return s
	}

	one := start(t, url, 3*time.Second)
	until(t, "it is ready", one.ready)
	until(t, "it leads", func() bool { return one.leads(one.addr) })
	two := start(t, url, 3*time.Second)
	until(t, "it is ready", two.ready)
	assert.True(t, two.leads(one.addr))

	type answer struct {
		status int
		body   string
	}
	post := func() <-chan answer {
		answers := make(chan answer, 1)
		go func() {
			status, body := one.call(http.MethodPost, "/customers/ann/reports")
			answers <- answer{status, body}
		}()
		return answers
	}
	holds := post()
	until(t, "it holds the lock", func() bool { return len(state().Holders) == 1 })
	queued := post()
	until(t, "it waits", func() bool { return state().Waiting == 1 })
	_, metrics := one.call(http.MethodGet, "/metrics")
	assert.Contains(t, metrics, "fairlock_waiters{")

	require.NoError(t, one.Process.Signal(syscall.SIGTERM))
	select {
	case got := <-queued:
		assert.Equal(t, answer{http.StatusServiceUnavailable, "closed\n"}, got)
	case got := <-holds:
		assert.Fail(t, "the one in the queue is answered first", got)
	}
	until(t, "the other one leads", func() bool { return two.leads(two.addr) })
	assert.Equal(t, answer{http.StatusOK, "written\n"}, <-holds)
	require.NoError(t, one.Wait(), one.said)
	assert.Empty(t, state().Holders)
	require.NoError(t, two.Process.Signal(syscall.SIGTERM))
	require.NoError(t, two.Wait(), two.said)
	assert.Empty(t, server.Client().Keys(t.Context(), "*lock").Val(), "nobody holds a lock")
}

// A service whose user may not lock does not start.
func TestService_IsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.StartTCP(t)
	user := server.User("somebody", "~*", "+@all", "-evalsha", "-eval")
	r := start(t, "redis://somebody:"+user.Password+"@"+server.Addr(), time.Second)
	require.Error(t, r.Wait())
	assert.Contains(t, r.said.String(), "NOPERM")
}
