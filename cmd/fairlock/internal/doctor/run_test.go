package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// examine runs all checks, and calls progress before each.
func examine(ctx context.Context, rdb redis.UniversalClient, progress func(check string)) Report {
	return Run(ctx, rdb, Options{
		Namespace: "fairlock", Address: "here", Now: time.Now, Progress: func(_, check string) { progress(check) },
	})
}

func quiet(string) {}

// found is what a check has found.
func found(r Report, check string) Finding {
	return r.Checks[slices.IndexFunc(r.Checks, func(f Finding) bool { return f.Check == check })]
}

// with are the checks with that result.
func with(r Report, result Result) (checks []string) {
	for _, f := range r.Checks {
		if f.Result == result {
			checks = append(checks, f.Check)
		}
	}
	return checks
}

// login makes a user with these rules, and returns a client of it.
func login(t *testing.T, s *redistest.Server, rules ...string) *redis.Client {
	t.Helper()
	args := []any{"acl", "setuser", "somebody", "reset", "on", ">password"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, s.Client().Do(t.Context(), args...).Err())
	o := s.Options()
	o.Username, o.Password = "somebody", "password"
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// least are the rules of the line that is printed.
func least() []string { return strings.Fields(ACLLine("x", "fairlock"))[6:] }

// The line that is printed suffices. What it does not allow to look at is no problem.
func TestRun_WithTheLeastRights(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, c := range []struct{ rules, unchecked string }{
		{"", "eviction memory persistence replicas min-replicas slow leftovers"},
		{"+info", "slow leftovers"}, // CONFIG is missed only where INFO is silent
	} {
		r := examine(t.Context(), login(t, s, append(least(), strings.Fields(c.rules)...)...), quiet)
		assert.Zero(t, r.Problems)
		assert.Equal(t, `user "somebody" may do all that locks need`, found(r, "rights").Found)
		assert.Equal(t, strings.Fields(c.unchecked), with(r, Unchecked))
	}
	// Each right that is missing is named, with the rule that gives it, and trying changes nothing.
	for i, rule := range least() {
		rules := least()
		rules = append(rules[:i], rules[i+1:]...)
		d, err := tryRights(t.Context(), login(t, s, rules...), "fairlock:{x}:rights", "fairlock:wake:x")
		require.NoError(t, err)
		f := d.finding("somebody", "fairlock")
		assert.Equal(t, "ACL SETUSER somebody "+rule, f.Advice)
		spare := rule == "+publish" || rule == "+subscribe" || rule == "+type" || strings.HasPrefix(rule, "&")
		assert.Equal(t, map[bool]Result{true: Warning, false: Problem}[spare], f.Result, f.Found)
	}
	r := examine(t.Context(), login(t, s, "~*", "&*", "+@all", "-eval", "-evalsha"), quiet)
	assert.Equal(t, "ACL SETUSER somebody +eval +evalsha", found(r, "rights").Advice)
	assert.Contains(t, found(r, "locks").Found, "NOPERM")
	assert.Equal(t, []string{"rights", "locks"}, with(r, Problem))
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

func TestRun_Refusals(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--rename-command", "EVALSHA", "", "--rename-command", "CONFIG", "", "--rename-command", "HELLO", "")
	rdb := s.Client()
	r := examine(t.Context(), rdb, quiet)
	assert.Equal(t, "the server does not know evalsha", found(r, "rights").Found)
	assert.Equal(t, []string{"rights", "locks"}, with(r, Problem))
	assert.Equal(t, []string{"wake-ups"}, with(r, Unchecked), "INFO tells the rest")
	assert.Equal(t, "0", redistest.Info(t, rdb, "persistence", "rdb_changes_since_last_save"), "nothing was written, not even for a moment")

	r = examine(t.Context(), redistest.Start(t, "--replicaof", "127.0.0.1 1").Client(), quiet)
	assert.Equal(t, []string{"role", "locks"}, with(r, Problem), "and not rights: a replica refuses for another reason")
	assert.Contains(t, found(r, "role").Advice, "127.0.0.1:1")
	assert.Contains(t, found(r, "locks").Found, "READONLY")
}

// A server that does not answer any more is not asked, and what was not checked is not called well.
func TestRun_Ends(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	r := examine(t.Context(), rdb, func(check string) {
		if check == "latency" {
			link.Cut()
		}
	})
	assert.Equal(t, []string{"latency"}, with(r, Problem))
	assert.Equal(t, []string{"clock", "slow", "leftovers"}, with(r, Unchecked))
	assert.Equal(t, "the server was not asked any more", found(r, "clock").Found)

	ctx, cancel := context.WithCancel(t.Context())
	r = examine(ctx, s.Client(), func(check string) {
		if check == "locks" {
			cancel()
		}
	})
	assert.Zero(t, r.Problems)
	assert.Equal(t, Checks()[5:], with(r, Unchecked))
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// Without notifications a waiter gets the lock by a heartbeat, and the report says so.
func TestExercise_WithoutNotifications(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		link := s.Link()
		link.DropNotifications()
		mutex, permits, err := run(t.Context(), link.Redis(), "fairlock", "x")
		require.NoError(t, err)
		f := wakes(mutex, permits)
		assert.Equal(t, Warning, f.Result)
		assert.Equal(t, "no message came, and a waiter was in only after 1.01 s, by a beat: the subscription did not come up", f.Found)
		assert.Empty(t, s.Miniredis.Keys())

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel) // while it holds the lock and waits for the subscription
		_, _, err = run(ctx, link.Redis(), "fairlock", "x")
		require.Error(t, err)
		assert.Empty(t, s.Miniredis.Keys(), "what was taken is given back")
	})
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	left := func(namespace string) Finding {
		l, err := search(ctx, rdb, namespace, func(int) {})
		require.NoError(t, err)
		return l.finding()
	}
	const expires = "; pexpire n:{x}:queue 3600000; pexpire n:{x}:alive 3600000"
	later := fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())
	for _, c := range []struct {
		namespace string
		commands  string // n is the namespace
		want      Result
		says      string
	}{
		{"list", "lpush n:{x}:queue 1", Problem, `"list:{x}:queue" is a list`},
		{"beside", "zadd n:{x}:queue 0 0; lpush n:{x}:alive 1" + expires, Problem, `"beside:{x}:alive" is a list`},
		{"rw", "set n:{x}:rw:holders 1", Problem, `"rw:{x}:rw:holders" is a string`},
		{"\x1b[2J", "lpush n:{x}:lock 1", Problem, `\x1b[2J`},
		{"a[1]*", "lpush n:{x}:lock 1; lpush a1b:{y}:lock 1", Problem, `"a[1]*:{x}:lock" is a list`},
		{"lock", "set n:{x}:lock 1", Problem, "never expire"},
		{"fence", "set n:{x}:fence 1", Warning, "never expire"},
		{"expired", "zadd n:{x}:queue 0 0 1 1; zadd n:{x}:alive 5 0 6 1" + expires, Warning, `waiters who are gone: "expired:{x}:queue"`},
		{"one", "zadd n:{x}:queue 0 0 1 1; zadd n:{x}:alive 5 0 " + later + " 1" + expires, OK, "none, among 2 keys"},
		{"soon", fmt.Sprint("zadd n:{x}:queue 0 0; zadd n:{x}:alive 5 0", expires, "; pexpire n:{x}:queue ", soon.Milliseconds()),
			OK, "none, among 2 keys"},
		{"strange", "lpush n:queue 1; lpush n:{x}:something 1; lpush ns:{x}:queue 1; lpush n:{x}:sem:lock 1", OK, "none, among 0 keys"},
	} {
		for command := range strings.SplitSeq(c.commands, "; ") {
			var args []any
			for word := range strings.FieldsSeq(command) {
				if key, ours := strings.CutPrefix(word, "n"); ours {
					word = c.namespace + key
				}
				args = append(args, word)
			}
			require.NoError(t, rdb.Do(ctx, args...).Err(), command)
		}
		f := left(c.namespace)
		assert.Equal(t, c.want, f.Result, "%s: %s", c.namespace, f.Found)
		assert.Contains(t, f.Found, c.says)
	}

	// Every key that a lock in use has is known, with its type.
	client, err := fairlock.New(rdb, fairlock.Config{TTL: time.Hour, WaiterTTL: time.Hour})
	require.NoError(t, err)
	locks := []func(context.Context) (*fairlock.Lease, error){
		client.Mutex("a{b}%").Lock, client.RWMutex("a").Lock,
		func(ctx context.Context) (*fairlock.Lease, error) { return client.Semaphore("a", 2).Acquire(ctx, 2) },
	}
	for _, lock := range locks {
		_, err := lock(ctx)
		require.NoError(t, err)
		go func() { _, _ = lock(ctx) }() // waits until the client is closed
	}
	require.Eventually(t, func() bool { return left("fairlock").Values["keys"] == 16 }, time.Minute, time.Millisecond)
	assert.Equal(t, OK, left("fairlock").Result)
	client.Close()
}
