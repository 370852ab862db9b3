package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// queued has somebody wait for a mutex until the test ends, and returns once it does.
func queued(t *testing.T, m fairlock.Mutex) {
	t.Helper()
	n := state(t, m).Waiting
	ctx, cancel := context.WithCancel(context.Background())
	var task sync.WaitGroup
	task.Go(func() { _, _ = m.Lock(ctx) })
	t.Cleanup(task.Wait)
	t.Cleanup(cancel)
	waiting(t, m, n+1)
}

// seen is a lock as scripts read it.
type seen struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	At      time.Time `json:"at"`
	Held    bool      `json:"held"`
	Used    int       `json:"used"`
	Permits *int      `json:"permits"`
	Fence   *uint64   `json:"fence"`
	Holders []struct {
		Client string    `json:"client"`
		ID     string    `json:"id"`
		Fence  uint64    `json:"fence"`
		Since  time.Time `json:"since"`
		Held   int64     `json:"held_ms"`
		Left   int64     `json:"lease_left_ms"`
		Writer bool      `json:"writer"`
	} `json:"holders"`
	Waiting int `json:"waiting"`
	Waiters []struct {
		Client   string `json:"client"`
		Waits    int64  `json:"waiting_ms"`
		Alive    bool   `json:"alive"`
		Patience int64  `json:"patience_ms"`
	} `json:"waiters"`
}

// done is what a command that succeeds writes to stdout.
func done(t *testing.T, url string, args ...string) string {
	t.Helper()
	r := call(t, url, args...)
	require.Zero(t, r.code, r.errs)
	require.Empty(t, r.errs)
	return r.out
}

func seenBy(t *testing.T, text string) []seen {
	t.Helper()
	var locks []seen
	require.NoError(t, json.Unmarshal([]byte(text), &locks), text)
	return locks
}

func TestStatusTellsWhoHoldsAndWhoWaits(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	url := serverURL(s)
	a, b := onLock(t, s, fairlock.Config{Name: "web-1"}), onLock(t, s, fairlock.Config{Name: "web-2"})

	require.Equal(t, "billing:42: free, not used for a day\n", done(t, url, "status", "billing:42"))
	require.Equal(t, "rw x: free, not used for a day\n", done(t, url, "status", "x", "--kind", "rw"))
	require.Equal(t, "[]\n", done(t, url, "status", "billing:42", "--json"))

	began := time.Now()
	lease := locked(t, a.Mutex("billing:42"))
	queued(t, b.Mutex("billing:42"))
	share, err := a.Semaphore("billing:42", 5).Acquire(t.Context(), 2)
	require.NoError(t, err)

	text := done(t, url, "status", "billing:42")
	require.Regexp(t, `(?s)^mutex billing:42: held, 1 waiting\n  HOLDER .*\n  web-1:....…  .*\n  #  WAITER .*\n`+
		`  1  web-2:....…  .* alive, keeps its place for \d\.\ds\n\n`+
		`semaphore billing:42: 2 of 5 permits held, nobody waits\n.*$`, text)
	require.Contains(t, text, fmt.Sprint(lease.Fence()))
	require.NotContains(t, text, "\x1b", "no colours in a pipe")
	only := done(t, url, "status", "billing:42", "--kind", "semaphore")
	require.True(t, strings.HasPrefix(only, "semaphore billing:42: "), only)
	require.NotContains(t, only, "mutex")

	text = done(t, url, "status", "billing:42", "--json")
	locks := seenBy(t, text)
	require.Len(t, locks, 2)
	m, sem := locks[0], locks[1]
	require.Equal(t, []string{"mutex", "semaphore"}, []string{m.Kind, sem.Kind})
	require.Equal(t, "billing:42", m.Name)
	require.True(t, m.Held)
	require.Equal(t, "web-1", m.Holders[0].Client)
	require.Equal(t, lease.Fence(), m.Holders[0].Fence)
	require.WithinRange(t, m.Holders[0].Since, began.Truncate(time.Microsecond), time.Now())
	require.InDelta(t, m.At.Sub(m.Holders[0].Since).Milliseconds(), m.Holders[0].Held, 1)
	require.LessOrEqual(t, m.Holders[0].Left, fairlock.DefaultTTL.Milliseconds())
	require.Equal(t, 1, m.Waiting)
	require.Equal(t, "web-2", m.Waiters[0].Client)
	require.True(t, m.Waiters[0].Alive)
	require.Equal(t, []int{2, 5}, []int{sem.Used, *sem.Permits})
	require.Contains(t, text, `"waiters":[]`)
	for _, secret := range []string{lease.Token().Text(), share.Token().Text()} {
		random := secret[len(secret)-22:]
		require.NotContains(t, text, random[:8])
		require.Contains(t, text, random[:4]+"…")
	}

	require.NoError(t, share.Unlock(t.Context()))
	require.Regexp(t, `^semaphore billing:42: free, last granted \d.* ago \(fence \d+\)\n$`,
		done(t, url, "status", "billing:42", "--kind", "semaphore"))
	require.Len(t, seenBy(t, done(t, url, "status", "billing:42", "--json")), 1, "those in use")
	free := seenBy(t, done(t, url, "status", "billing:42", "--kind", "semaphore", "--json"))
	require.Len(t, free, 1, "the one that was asked for")
	require.False(t, free[0].Held)
	require.Equal(t, share.Fence(), *free[0].Fence)
}

func TestStatusAndListGoByTheNamespace(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locked(t, onLock(t, s, fairlock.Config{Namespace: "prod"}).Mutex("x"))
	require.Contains(t, done(t, serverURL(s), "status", "x"), "free")
	require.Contains(t, done(t, serverURL(s), "status", "x", "--namespace", "prod"), "held")
	require.Empty(t, done(t, serverURL(s), "list"))
	require.Contains(t, done(t, serverURL(s), "list", "--namespace", "prod"), " x\n")
	cmd := command(t, serverURL(s), "list")
	cmd.Env = append(cmd.Env, envNamespace+"=prod")
	require.Contains(t, begin(t, cmd).wait().out, " x\n")
}

func TestListTellsAllLocksInUse(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	url := serverURL(s)
	require.Empty(t, done(t, url, "list"))
	require.Equal(t, "[]\n", done(t, url, "list", "--json"))

	c := onLock(t, s, fairlock.Config{Name: "web-1"})
	for _, name := range []string{"b*", "b", "a"} {
		locked(t, c.Mutex(name))
	}
	queued(t, c.Mutex("a"))
	_, err := c.RWMutex("b*").RLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, locked(t, c.Mutex("gone")).Unlock(t.Context()))

	require.Regexp(t, `^KIND   IN USE    HOLDER  HELD FOR  LEASE LEFT  WAITING  NAME
mutex  held      web-1   \S+ +\S+ +1        a
mutex  held      web-1   \S+ +\S+ +0        b
mutex  held      web-1   \S+ +\S+ +0        b\*
rw     1 reader  web-1   \S+ +\S+ +0        b\*
$`, done(t, url, "list"))
	require.Len(t, strings.Split(done(t, url, "list", "--prefix", "b*"), "\n"), 4, "a head, two locks and nothing")
	text := done(t, url, "list", "--json", "--prefix", "b", "--kind", "mutex")
	require.NotContains(t, text, "waiters")
	locks := seenBy(t, text)
	require.Equal(t, []string{"b", "b*"}, []string{locks[0].Name, locks[1].Name})
	require.Len(t, locks, 2)
}

// What somebody calls a lock, or writes into its keys, must not control the terminal of who looks.
func TestNoControlCharacterIsShown(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := onLock(t, s, fairlock.Config{})
	const evil = "\x1b]0;evil\a\x1b[2J\u009b31m\u202e\xff\n"
	locked(t, c.Mutex(evil))
	rdb := s.Client()
	foreign := lua.MutexKeys("fairlock", "foreign"+evil)
	require.NoError(t, rdb.Set(t.Context(), foreign.Lock, evil+"secret", 0).Err())
	require.NoError(t, rdb.ZAdd(t.Context(), foreign.Queue, redis.Z{Score: 1, Member: evil + "secret"}).Err())
	require.NoError(t, rdb.LPush(t.Context(), lua.RWMutexKeys("fairlock", "broken"+evil).Queue, "secret").Err())

	odd := regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f]|\x{9b}|\x{202e}`)
	for _, args := range [][]string{
		{"list"}, {"list", "--json"}, {"status", evil}, {"status", evil, "--json"}, {"status", "foreign" + evil},
		{"status", "foreign" + evil, "--json"}, {"status", "broken" + evil}, {"status", "--kind", evil, "x"},
	} {
		r := call(t, serverURL(s), args...)
		require.NotEmpty(t, r.out+r.errs)
		require.False(t, odd.MatchString(r.out), "%q", r.out)
		require.False(t, odd.MatchString(r.errs), "%q", r.errs)
		require.LessOrEqual(t, strings.Count(r.errs, "\n"), 1)
		require.NotContains(t, r.out+r.errs, "secret")
	}
	refused(t, call(t, serverURL(s), "status", "broken"+evil, "--json"), exitUnreachable, "is not ours: WRONGTYPE")
	// What can be read is shown, although something else cannot.
	r := call(t, serverURL(s), "list")
	require.Equal(t, exitUnreachable, r.code)
	require.Contains(t, r.errs, "is not ours: WRONGTYPE")
	require.Equal(t, 3, strings.Count(r.out, "\n"), r.out)
}

func TestMistakesInLookingAreOneLineAndExitWith2(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for args, why := range map[string]string{
		"status":                                       "NAME",
		"status x y":                                   "NAME",
		"status x --kind spinlock":                     "spinlock",
		"status x --colour":                            "--colour",
		"status x --namespace {":                       "--namespace",
		"list x":                                       "unknown command",
		"list --kind spinlock":                         "spinlock",
		"list --json=perhaps":                          "--json",
		"watch --interval 1ms":                         "at least 100ms",
		"watch --interval soon":                        "--interval",
		"watch x --prefix y":                           "--prefix",
		"watch --kind spinlock":                        "spinlock",
		"watch --redis http://h":                       "redis://",
		"status x --redis redis://h/no":                "redis URL",
		"status " + strings.Repeat("n", 1025):          "1 to 1024 bytes",
		"watch x " + strings.Repeat("n", 1025):         "1 to 1024 bytes",
		"list --namespace " + strings.Repeat("n", 257): "256 bytes",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			refused(t, call(t, serverURL(s), strings.Fields(args)...), exitUsage, why)
		})
	}
	refused(t, call(t, serverURL(s), "status", ""), exitUsage, "1 to 1024 bytes")
}

func TestLookingAtAServerThatIsAwayExitsWith69(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status", "x"}, {"list", "--json"}, {"watch"}, {"watch", "x"}} {
		refused(t, call(t, "unix:///nowhere/redis.sock", args...), exitUnreachable, "/nowhere/redis.sock")
	}
}

func TestAUserWithoutRightsIsToldWhichAreMissing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client()
	// The rights that locks need suffice for status and watch NAME; list needs one more.
	const rights = "+eval +evalsha +time +exists +get +pttl +zrange +zscore +zcard +zcount +zrangebyscore +hget +hmget +hexists"
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "looker", "on", ">secret", "~fairlock:*").Err())
	for right := range strings.FieldsSeq(rights) {
		require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "looker", right).Err())
	}
	locked(t, onLock(t, s, fairlock.Config{}).Mutex("x"))
	url := "unix://looker:secret@" + s.Addr()
	require.Contains(t, done(t, url, "status", "x"), "held")
	refused(t, call(t, url, "list"), exitUnreachable, "'scan'")
	require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "looker", "+scan").Err())
	require.Contains(t, done(t, url, "list"), " x\n")
}

func TestAClusterIsLookedAtAsAWhole(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	c, err := fairlock.New(cluster.Client(), fairlock.Config{TTL: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("job:%02d", i))
		locked(t, c.Mutex(names[i]))
	}
	node := "redis://" + cluster.Masters[0].Addr()
	var listed []string
	for _, l := range seenBy(t, done(t, node+"?cluster=true", "list", "--json")) {
		listed = append(listed, l.Name)
	}
	require.Equal(t, names, listed)
	elsewhere := 0
	for _, name := range names {
		require.Contains(t, done(t, node+"?cluster=true", "status", name), "held")
		if r := call(t, node, "status", name); r.code != 0 {
			elsewhere++
			refused(t, r, exitUsage, "help connection")
		}
	}
	require.Positive(t, elsewhere)
	refused(t, call(t, node, "list"), exitUsage, "help connection")

	cluster.Masters[2].Kill()
	r := call(t, node+"?cluster=true", "list")
	require.Equal(t, exitUnreachable, r.code)
	require.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	require.Contains(t, r.out, "job:", "what the others have")
}

// following is a command whose lines are read as they come.
func following(t *testing.T, cmd *exec.Cmd) (*running, func() string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	r := begin(t, cmd)
	lines := bufio.NewReader(out)
	return r, func() string {
		t.Helper()
		late := time.AfterFunc(soon, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		line, err := lines.ReadString('\n')
		require.NoError(t, err) // what it writes on stderr may be read when it has ended, and no sooner
		return strings.TrimSuffix(line, "\n")
	}
}

const stamp = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)  `

func TestWatchWritesALineForEachChange(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{Name: "web-1"}).Mutex("x")
	r, line := following(t, command(t, serverURL(s), "watch", "x", "y", "--interval", "100ms"))
	require.Regexp(t, stamp+"x: free$", line())
	require.Regexp(t, stamp+"y: free$", line())
	lease := locked(t, m)
	require.Regexp(t, fmt.Sprintf(`%smutex x: held by web-1:....…, fence %d$`, stamp, lease.Fence()), line())
	queued(t, m)
	require.Regexp(t, `, 1 waiting: web-1:....…$`, line())
	require.NoError(t, lease.Unlock(t.Context()))
	require.Regexp(t, `mutex x: held by web-1:....…, fence \d+$`, line())
	r.signal(syscall.SIGINT)
	require.Equal(t, 0, r.wait().code)
	require.Empty(t, r.errs.String())
}

func TestWatchWritesJSONForScripts(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := onLock(t, s, fairlock.Config{Name: "web-1"})
	first := locked(t, c.Mutex("a"))
	args := []string{"watch", "--json", "--interval", "100ms", "--prefix", "a", "--kind", "mutex"}
	r, line := following(t, command(t, serverURL(s), args...))
	next := func() (l seen) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(line()), &l))
		return l
	}
	l := next()
	require.Equal(t, []any{"mutex", "a", true}, []any{l.Kind, l.Name, l.Held})
	locked(t, c.Mutex("b"))
	_, err := c.Semaphore("a", 1).Acquire(t.Context(), 1)
	require.NoError(t, err)
	locked(t, c.Mutex("ab"))
	l = next()
	require.Equal(t, []any{"mutex", "ab", true}, []any{l.Kind, l.Name, l.Held})
	require.NoError(t, first.Unlock(t.Context()))
	l = next()
	require.Equal(t, []any{"mutex", "a", false}, []any{l.Kind, l.Name, l.Held})
	r.signal(syscall.SIGTERM)
	require.Equal(t, 0, r.wait().code)
}

func TestWatchGoesOnWhenTheServerComesBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r, line := following(t, command(t, serverURL(s), "watch", "x", "--interval", "100ms"))
	require.Regexp(t, "x: free$", line())
	s.Kill()
	s.Run()
	lease := locked(t, onLock(t, s, fairlock.Config{Name: "web-1"}).Mutex("x"))
	require.Contains(t, line(), fmt.Sprint(lease.Fence()))
	r.signal(syscall.SIGINT)
	require.Equal(t, 0, r.wait().code)
}

func TestWatchSaysThatTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	cmd := command(t, serverURL(s), "watch", "x", "--interval", "100ms")
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	r, line := following(t, cmd)
	require.Regexp(t, "x: free$", line())
	s.Kill()
	late := time.AfterFunc(soon, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	said, err := bufio.NewReader(errs).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^fairlock: [^\n]+; trying on\n$`, said)
	r.signal(syscall.SIGINT)
	require.Equal(t, 0, r.wait().code)
}
