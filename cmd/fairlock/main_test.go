//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// limit bounds every wait, so that a test that fails ends. No test passes because something took less.
const limit = time.Minute

var (
	program    string // the command: a copy of the test binary, which is the command when it bears its name
	files      string // a directory with the program and the files below
	namespaces atomic.Int32
)

// contents of files that are written before any test forks: it would keep a program busy that is being written. They
// may be executed, but for the first.
var contents = map[string]string{
	"plain": "no program", "binary": "no program", "script": "#!/no/such/interpreter\n", "empty": "\n",
	"password": "secret\r\nmore",
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "fairlock" {
		main()
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) { // by nohup, for example; processes do not inherit that from one that catches the signal
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	if os.Getenv("GORACE") == "" { // with -race, a program sleeps a second before it exits
		_ = os.Setenv("GORACE", "atexit_sleep_ms=10")
	}
	logging.Disable()
	time.Local = time.UTC
	for _, v := range os.Environ() { // the tester's settings
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FAIRLOCK_") || name == "NO_COLOR" {
			_ = os.Unsetenv(name)
		}
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var err error
	files, err = os.MkdirTemp("", "fairlock")
	must(err)
	defer func() { must(os.RemoveAll(files)) }()
	for name, content := range contents {
		must(os.WriteFile(filepath.Join(files, name), []byte(content), 0o700))
	}
	must(os.Chmod(filepath.Join(files, "plain"), 0o600))
	tests, err := os.Executable()
	must(err)
	program = filepath.Join(files, "fairlock")
	must(exec.Command("cp", tests, program).Run())
	os.Args[0] = program                   // what the code under test starts here, too
	must(flag.Set("test.parallel", "100")) // places bounds them
	return redistest.Main(m)
}

// fixture is what a test works with: a namespace of its own, and how its commands reach the server.
type fixture struct {
	t         *testing.T
	server    *redistest.Server // shared by the tests
	namespace string
	url       string   // in FAIRLOCK_REDIS, unless it is empty
	env       []string // further variables
	dir       string   // $D of scripts
}

// places has one for each test that may run at once beside those that sleep.
var places = make(chan struct{}, 5)

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := sleepingFixture(t)
	places <- struct{}{}
	t.Cleanup(func() { <-places })
	return f
}

// sleepingFixture is the fixture of a test that sleeps most of the time, until a lease ends. It begins at once: begun
// as the last one, it would sleep alone.
func sleepingFixture(t *testing.T) fixture {
	t.Helper()
	t.Parallel()
	s := redistest.Shared(t)
	return fixture{t: t, server: s, url: "unix://" + s.Addr(), dir: t.TempDir()}.apart()
}

// apart is the fixture for commands in another namespace.
func (f fixture) apart() fixture { f.namespace = fmt.Sprint("test-", namespaces.Add(1)); return f }

// at is the fixture for commands that name their server so.
func (f fixture) at(url string) fixture { f.url = url; return f }

// with is the fixture for commands with further variables in their environment.
func (f fixture) with(vars ...string) fixture { f.env = slices.Concat(f.env, vars); return f }

// together runs a subtest for each case, all at once. (With t.Parallel, they would run after all other tests, and most
// of them wait for leases to end.)
func together[K comparable, C any](f fixture, cases map[K]C, test func(t *testing.T, f fixture, name K, c C)) {
	f.t.Helper()
	var all sync.WaitGroup
	for name, c := range cases {
		all.Go(func() {
			f.t.Run(fmt.Sprint(name), func(t *testing.T) {
				f := f
				f.t, f.dir = t, t.TempDir()
				test(t, f, name, c)
			})
		})
	}
	all.Wait()
}

// linked is the fixture for commands that reach the server over a link that can fail.
func (f fixture) linked() (fixture, *redistest.Link) {
	link := redistest.NewLink(f.t, f.server)
	return f.at("unix://" + link.Addr()), link
}

// client is a client of the library, of that name.
func (f fixture) client(name string) *fairlock.Client {
	f.t.Helper()
	c, err := fairlock.New(f.server.Client(), fairlock.Config{
		Namespace: f.namespace, Name: name, TTL: time.Hour, WaiterTTL: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// hold takes a lock.
func (f fixture) hold(lock func(context.Context) (*fairlock.Lease, error)) *fairlock.Lease {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	lease, err := lock(ctx)
	require.NoError(f.t, err)
	return lease
}

// permits acquires two permits of a semaphore.
func permits(s fairlock.Semaphore) func(context.Context) (*fairlock.Lease, error) {
	return func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, 2) }
}

// wait has a client wait for a mutex until the test ends, and returns once it is at that position.
func (f fixture) wait(m fairlock.Mutex, position int) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var task sync.WaitGroup
	task.Go(func() { _, _ = m.Lock(ctx) })
	f.t.Cleanup(func() { cancel(); task.Wait() })
	f.queued(m, position)
}

// lock is a Mutex, a Semaphore, a KeyedSemaphore or an RWMutex.
type lock any

func (f fixture) state(l lock) admin.State {
	f.t.Helper()
	v := reflect.ValueOf(l).FieldByName("lock").Elem() // which has no method that says which lock it is
	id := fairlock.ID{Kind: fairlock.Kind(v.FieldByName("kind").String()), Name: v.FieldByName("name").String()}
	s, err := admin.New(f.server.Client(), f.namespace).Inspect(f.t.Context(), id, 1000, 1000)
	require.NoError(f.t, err)
	return s
}

// queued waits until so many wait for a lock.
func (f fixture) queued(l lock, n int) {
	f.t.Helper()
	f.until("the queue is that long", func() bool { return f.state(l).Waiting == n })
}

// until waits for what no event tells.
func (f fixture) until(what string, cond func() bool) {
	f.t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(10 * time.Millisecond) {
		require.True(f.t, time.Now().Before(end), what)
	}
}

// command is the command with these arguments, without the tester's terminal.
func (f fixture) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "D="+f.dir, envNamespace+"="+f.namespace)
	if f.url != "" {
		cmd.Env = append(cmd.Env, envRedis+"="+f.url)
	}
	cmd.Env = append(cmd.Env, f.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// call runs the command to its end, in this process: with -race, to start another takes far longer than what it does.
// The variables of the fixture's environment, and CMD's input and output, need another, as start has it.
func (f fixture) call(args ...string) result {
	f.t.Helper()
	require.Empty(f.t, f.env)
	var out, errs strings.Builder
	ours := []string{"--redis=" + f.url, "--namespace=" + f.namespace} // what args say comes later, and counts
	code := run(slices.Concat(ours, args), strings.NewReader(""), &out, &errs)
	return result{code, out.String(), errs.String()}
}

// attempt runs fairlock run with these words, which is not granted the lock, or not the server, and so starts no CMD.
func (f fixture) attempt(words string) result {
	f.t.Helper()
	return f.call(slices.Concat([]string{"run"}, strings.Fields(words), []string{"--", "true"})...)
}

// run starts fairlock run with these words and a shell script as CMD.
func (f fixture) run(words, script string) *running {
	f.t.Helper()
	return f.start(f.command(slices.Concat([]string{"run"}, strings.Fields(words), []string{"--", "sh", "-c", script})...))
}

// decode reads JSON.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// done is what a command writes that succeeds.
func (f fixture) done(args ...string) string {
	f.t.Helper()
	r := f.call(args...)
	require.Equal(f.t, result{out: r.out}, r)
	return r.out
}

// refused asserts that a command has failed with that code and one line that says why, without a password.
func refused(t *testing.T, r result, code int, why string) {
	t.Helper()
	assert.Equal(t, code, r.code, r.errs)
	assert.Empty(t, r.out)
	assert.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	assert.Contains(t, r.errs, why)
	assert.NotContains(t, r.errs, "secret")
}

// result is what is seen of a command that has ended.
type result struct {
	code      int    // negative: it died of a signal
	out, errs string // out: what the test has not read before
}

// running is a command that has been started. It is killed when the test ends, and the guard then kills its CMD.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Closer // nil: the test has no hand in its input
	out  *os.File  // what it writes
	errs bytes.Buffer
}

func (f fixture) start(cmd *exec.Cmd) *running {
	f.t.Helper()
	r := &running{t: f.t, cmd: cmd}
	out, w, err := os.Pipe()
	require.NoError(f.t, err)
	r.out = out
	if cmd.Stdin == nil {
		r.in, err = cmd.StdinPipe()
		require.NoError(f.t, err)
	}
	if cmd.Stdout == nil {
		cmd.Stdout = w
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.errs
	}
	cmd.WaitDelay = limit // if something that is left of CMD has stderr open, Wait would not return
	require.NoError(f.t, cmd.Start())
	_ = w.Close()
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
	return r
}

// expect reads what the command writes up to a text, and returns what came before it.
func (r *running) expect(text string) string {
	r.t.Helper()
	require.NoError(r.t, r.out.SetReadDeadline(time.Now().Add(limit)))
	var got []byte
	for b := make([]byte, 1); !bytes.HasSuffix(got, []byte(text)); got = append(got, b...) {
		_, err := r.out.Read(b)
		require.NoError(r.t, err, "want %q, got %q", text, got)
	}
	return string(got[:len(got)-len(text)])
}

// wait closes the command's input, reads the rest of what it writes, and returns how it ended.
func (r *running) wait() result {
	r.t.Helper()
	if r.in != nil {
		_ = r.in.Close()
	}
	require.NoError(r.t, r.out.SetReadDeadline(time.Now().Add(limit)))
	out, err := io.ReadAll(r.out)
	require.NotErrorIs(r.t, err, os.ErrDeadlineExceeded, "it does not end: %v", r.cmd.Args[1:])
	require.NotErrorIs(r.t, r.cmd.Wait(), exec.ErrWaitDelay)
	return result{r.cmd.ProcessState.ExitCode(), string(out), r.errs.String()}
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(s))
}

func TestHelp(t *testing.T) {
	f := newFixture(t)
	all := f.done()
	require.Equal(t, all, f.done("--help"))
	for _, cmd := range root(new(bool)).Commands() {
		help := f.done("help", cmd.Name())
		assert.Contains(t, help, strings.TrimSpace(cmd.Long))
		for line := range strings.Lines(help) {
			assert.LessOrEqual(t, len([]rune(line)), 160, "wider than a wide terminal: %s", line)
		}
		switch {
		case cmd.Hidden:
			assert.NotContains(t, all, cmd.Name()+" ")
		case !cmd.IsAdditionalHelpTopicCommand() && cmd.Name() != "help":
			assert.Contains(t, help, "Examples:\n  fairlock "+cmd.Name())
			assert.Equal(t, help, f.done(cmd.Name(), "--help"))
			assert.Contains(t, all, cmd.Short)
		}
	}
	codes := f.done("help", "exit-codes")
	for _, code := range []int{0, exitFailure, exitUsage, exitUnreachable, exitBusy, exitLost, exitTimeout, exitCannotRun,
		exitNotFound} {
		assert.Regexp(t, fmt.Sprintf(`(?m)^    %d  +\w`, code), codes)
	}
	variables := f.done("help", "environment")
	for _, name := range []string{envRedis, envPassword, envNamespace, envTLSCA, envTLSCert, envTLSKey, envName, envFence,
		envHandle} {
		assert.Contains(t, variables, "    "+name+" ")
	}
}

func TestVersion(t *testing.T) {
	f := newFixture(t)
	text := f.done("version")
	assert.Contains(t, text, "\nbuilt by  "+runtime.Version()+" for ")
	assert.Contains(t, text, "\nlayout    "+tokens.Layout+"\n")
	assert.Equal(t, text, f.done("--version"))
	built := debug.BuildInfo{
		GoVersion: "go1.2.3", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision",
			Value: "abc"}},
	}
	assert.Regexp(t, `^fairlock  v1\.2\.3\nrevision  abc\nbuilt by  go1\.2\.3 for `, versionOf(&built))
	built.Settings = append(built.Settings, debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	assert.Contains(t, versionOf(&built), "\nrevision  abc, with uncommitted changes\n")
	assert.Regexp(t, `^fairlock  \(devel\)\nrevision  unknown\n`, versionOf(&debug.BuildInfo{}))
}

func TestHelp_ManualPages(t *testing.T) {
	f := newFixture(t).with("SOURCE_DATE_EPOCH=86400")
	require.Equal(t, result{}, f.start(f.command("man", f.dir)).wait())
	for _, cmd := range append(root(new(bool)).Commands(), root(new(bool))) {
		if !cmd.Hidden && cmd.Name() != "help" {
			page, err := os.ReadFile(filepath.Join(f.dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
			require.NoError(t, err)
			assert.Contains(t, string(page), cmd.Short)
			assert.Contains(t, string(page), "Jan 1970")
			for _, word := range regexp.MustCompile(`<[\w-]+>`).FindAllString(cmd.Long+cmd.Flags().FlagUsages(), -1) {
				assert.Contains(t, string(page), word, "what stands in angle brackets stays")
			}
			assert.Equal(t, cmd.Name() == "exit-codes", strings.Contains(string(page), ".EX\n0        done\n"),
				"a table stays one")
		}
	}
	refused(t, f.start(f.with("SOURCE_DATE_EPOCH=x").command("man", f.dir)).wait(), exitFailure, "SOURCE_DATE_EPOCH")
	f.env = nil
	refused(t, f.call("man", "/no/such/dir"), exitFailure, "no such file")
}

func TestHelp_Completion(t *testing.T) {
	f := newFixture(t)
	require.Contains(t, f.done("completion", "bash"), "fairlock")
	for typed, want := range map[string]string{
		"st": "status", "run --kind ": "semaphore", "release x --kind ": "rwmutex", "help completion z": "zsh",
		"run x --pass": "--pass-redis", "status --password-f": "--password-file", "completion ": "fish",
	} {
		have := f.call(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(typed, " ")...)...).out
		require.Contains(t, strings.Fields(have), want, typed)
	}
}

// A mistake is one line and exit code 2, and nothing is sent to Redis. testdata/usage.txt has the commands and what
// they say; it is written anew with -update. Control characters stand there as ␛, ␍, ␊ and ␉, and a space in a word as
// ␣.
func TestUsage(t *testing.T) {
	t.Setenv(envRedis, "unix:///no/such/socket")
	t.Setenv(envPassword, "")
	t.Setenv(envNamespace, "")
	text, err := os.ReadFile("testdata/usage.txt")
	require.NoError(t, err)
	var said strings.Builder
	for line := range strings.Lines(string(text)) {
		words, found := strings.CutPrefix(line, "$ fairlock ")
		if !found {
			continue
		}
		var out, errs strings.Builder
		args := strings.Fields(words)
		for i, arg := range args {
			args[i] = strings.NewReplacer("''", "", "$LONG", strings.Repeat("n", 1025), "$FILES", files, "$BOM", "\ufeff",
				"␣", " ", "␛", "\x1b", "␍", "\r", "␊", "\n", "␉", "\t").Replace(arg)
		}
		code := run(args, strings.NewReader("y\n"), &out, &errs)
		refused(t, result{code, out.String(), errs.String()}, exitUsage, "")
		said.WriteString(line + strings.ReplaceAll(errs.String(), files, "$FILES"))
	}
	golden.Equal(t, "usage.txt", said.String())
}

func TestUsage_OfTheProgram(t *testing.T) {
	f := newFixture(t)
	for _, inner := range []string{"demo-client", guardName, cmdName} {
		r := f.start(f.command(inner)).wait()
		require.Equal(t, exitFailure, r.code)
		require.Regexp(t, `^fairlock: .*started by [^\n]+\n$`, r.errs)
	}
}
