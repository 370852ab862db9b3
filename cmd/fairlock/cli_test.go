package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// program is the command, built once, with -race if the tests are.
var program string

// writerEnv makes the test binary a CMD: it writes a line to that file every 10 ms, and says so if it is continued.
const writerEnv = "FAIRLOCK_TEST_WRITER"

func write(path string) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, syscall.SIGCONT)
	for tick := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-tick:
			_, _ = fmt.Fprintln(file, "at work")
		case <-woken:
			_, _ = fmt.Println("woken")
		}
	}
}

func TestMain(m *testing.M) {
	becomeCMD()
	if path := os.Getenv(writerEnv); path != "" {
		write(path)
	}
	if os.Getenv("GORACE") == "" { // a program that is built with -race sleeps a second before it exits
		_ = os.Setenv("GORACE", "atexit_sleep_ms=10")
	}
	dir, err := os.MkdirTemp("", "fairlock")
	if err == nil {
		program = filepath.Join(dir, "fairlock")
		args := []string{"build", "-buildvcs=false", "-o", program}
		if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
			args = append(args, "-race")
		}
		build := exec.Command("go", append(args, ".")...)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "cannot build the command:", err)
		os.Exit(1)
	}
	logging.Disable()
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// soon is how long the tests wait for what should happen at once: long, for a machine that does other things, too.
const soon = 20 * time.Second

// serverURL is how the command names a test's server.
func serverURL(s *redistest.Server) string {
	if s.Network() == "unix" {
		return "unix://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// command is the command with these arguments, its server in FAIRLOCK_REDIS, and none of the tester's own settings. It is
// killed when the test ends.
func command(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "FAIRLOCK_") || strings.HasPrefix(v, "NO_COLOR=")
	})
	if url != "" {
		cmd.Env = append(cmd.Env, envRedis+"="+url)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without the tester's terminal
	cmd.WaitDelay = soon
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// result is what is seen of a command that has ended.
type result struct {
	code      int // negative: it died of a signal
	out, errs string
}

// running is a command that has been started.
type running struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, errs bytes.Buffer // to be read after wait
}

// begin starts a command whose input is empty unless it was set.
func begin(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, cmd: cmd}
	if cmd.Stdout == nil {
		cmd.Stdout = &r.out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.errs
	}
	require.NoError(t, cmd.Start())
	return r
}

// wait returns how it ended.
func (r *running) wait() result {
	r.t.Helper()
	late := time.AfterFunc(soon, func() {
		_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		_ = r.cmd.Process.Kill()
		r.t.Errorf("%v does not end", r.cmd.Args[1:])
	})
	defer late.Stop()
	_ = r.cmd.Wait()
	return result{r.cmd.ProcessState.ExitCode(), r.out.String(), r.errs.String()}
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(s))
}

// call runs the command on that server, to its end.
func call(t *testing.T, url string, args ...string) result {
	t.Helper()
	return begin(t, command(t, url, args...)).wait()
}

// refused asserts that a call failed with that code and one line that says why, without a password.
func refused(t *testing.T, r result, code int, why string) {
	t.Helper()
	assert.Equal(t, code, r.code, r.errs)
	assert.Empty(t, r.out)
	assert.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	assert.Contains(t, r.errs, why)
	assert.NotContains(t, r.errs, "secret")
}

// onLock returns a client of the library, to hold and look at locks from outside the command.
func onLock(t *testing.T, s *redistest.Server, cfg fairlock.Config) *fairlock.Client {
	t.Helper()
	c, err := fairlock.New(s.Client(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// locked takes a mutex.
func locked(t *testing.T, m fairlock.Mutex) *fairlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	lease, err := m.Lock(ctx)
	require.NoError(t, err)
	return lease
}

// state looks at a mutex.
func state(t *testing.T, m fairlock.Mutex) fairlock.State {
	t.Helper()
	s, err := m.Inspect(t.Context())
	require.NoError(t, err)
	return s
}

// waiting waits until so many wait for a mutex.
func waiting(t *testing.T, m fairlock.Mutex, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return state(t, m).Waiting == n }, soon, 5*time.Millisecond)
}

// left waits until nobody waits for a mutex, less long than a silent waiter keeps its place.
func left(t *testing.T, m fairlock.Mutex) {
	t.Helper()
	require.Eventually(t, func() bool { return state(t, m).Waiting == 0 }, fairlock.DefaultWaiterTTL*2/3, 5*time.Millisecond)
}

// appears waits until a file has some content, and returns it.
func appears(t *testing.T, path string) string {
	t.Helper()
	var content []byte
	require.Eventually(t, func() bool {
		content, _ = os.ReadFile(path)
		return len(content) > 0
	}, soon, 5*time.Millisecond, path)
	return string(content)
}

// onlyFences asserts that nothing but fences is left on a server, and for some seconds the tokens of those who went while
// a question of theirs was on its way (docs/protocol.md: buried).
func onlyFences(t *testing.T, rdb *redis.Client) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if strings.HasSuffix(key, ":alive") {
			assert.Zero(t, rdb.ZCount(t.Context(), key, "0", "+inf").Val(), key)
			assert.NotEqual(t, time.Duration(-1), rdb.PTTL(t.Context(), key).Val(), key)
			continue
		}
		assert.True(t, strings.HasSuffix(key, ":fence"), key)
	}
}

func TestMistakesAreOneLineAndExitWith2(t *testing.T) {
	s := redistest.Start(t)
	for args, why := range map[string]string{
		"dmeo":                                     `unknown command "dmeo"; did you mean demo?`,
		"help dmeo":                                "no help",
		"connection dmeo":                          `unknown command "dmeo"`,
		"completion bsh":                           `unknown command "bsh"; did you mean bash`,
		"--redis redis://h completion bsh":         `"bsh"`,
		"completion --colour":                      "--colour",
		"--colour":                                 "--colour",
		"run":                                      "no CMD",
		"run x":                                    "no CMD",
		"run x true":                               "no CMD",
		"run x --":                                 "no CMD",
		"run -- true":                              "want the NAME",
		"run x y -- true":                          "want the NAME",
		"run x --colour -- true":                   "--colour",
		"run x --ttl soon -- true":                 "--ttl",
		"run x --ttl 10ms -- true":                 "--ttl",
		"run x --ttl 9999h -- true":                "--ttl",
		"run x --wait 0 -- true":                   "--wait",
		"run x --wait -1s -- true":                 "--wait",
		"run x --try --wait 1s -- true":            "--wait",
		"run x --grace -1s -- true":                "--grace",
		"run x --grace 6s -- true":                 "half of --ttl, 5s",
		"run x --kind spinlock -- true":            "spinlock",
		"run x --permits 3 -- true":                "--kind semaphore",
		"run x --take 3 -- true":                   "--kind semaphore",
		"run x --kind semaphore -- true":           "--permits",
		"run x --kind semaphore --permits 0 -- a":  "--permits",
		"run x --kind semaphore --permits -1 -- a": "--permits",
		"run x --kind semaphore --permits 2 --take 3 -- true": "--take",
		"run x --kind semaphore --permits 2 --take 0 -- true": "--take",
		"run x --read -- true":                                "--kind rw",
		"run " + strings.Repeat("n", 1025) + " -- true":       "1 to 1024 bytes",
		"release x":                               "--force",
		"release x --force":                       "--yes",
		"release --force --yes":                   "NAME",
		"release x y --force --yes":               "NAME",
		"release x --force --yes --kind spinlock": "spinlock",
		"release " + strings.Repeat("n", 1025) + " --force --yes": "1 to 1024 bytes",
		"man":                                 "arg",
		"demo extra":                          "extra",
		"demo --clients 2":                    "clients",
		"demo --permits 5":                    "--kind semaphore",
		"demo --workers 0":                    "workers",
		"demo --clients n":                    "--clients",
		"demo --ttl 1ms":                      "ttl",
		"demo --hold -1s":                     "hold",
		"demo --duration 0":                   "duration",
		"demo --namespace other":              "--namespace",
		"demo --redis redis://h?cluster=true": "single server",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			refused(t, call(t, serverURL(s), strings.Fields(args)...), exitUsage, why)
		})
	}
	t.Run("control characters", func(t *testing.T) {
		r := call(t, serverURL(s), "--\x1b[31mcolour")
		refused(t, r, exitUsage, `\x1b[31mcolour`)
		assert.NotContains(t, r.errs, "\x1b")
	})
	t.Run("empty name", func(t *testing.T) {
		refused(t, call(t, serverURL(s), "run", "", "--", "true"), exitUsage, "1 to 1024 bytes")
	})
	t.Cleanup(func() { // after the parallel ones
		keys, err := redis.NewClient(s.Options()).Keys(context.Background(), "*").Result()
		assert.NoError(t, err)
		assert.Empty(t, keys)
	})
}
