package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

func options(progress func(server, check string)) Options {
	if progress == nil {
		progress = func(string, string) {}
	}
	return Options{Namespace: "fairlock", Address: "here", Now: time.Now, Progress: progress}
}

// found returns what a check found.
func found(t *testing.T, r Report, check string) Finding {
	t.Helper()
	for _, f := range r.Checks {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no check %q", check)
	return Finding{}
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

func TestAServerInOrderIsOKAndIsLeftAsItWas(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes", "--slowlog-log-slower-than", "-1") // a busy machine makes anything slow
	rdb := s.Client()
	require.NoError(t, rdb.Set(t.Context(), "else", "untouched", 0).Err())
	var seen []string
	r := Run(t.Context(), rdb, options(func(_, check string) { seen = append(seen, check) }))
	for _, f := range r.Checks {
		assert.Equal(t, OK, f.Result, "%s: %s", f.Check, f.Found)
		assert.Equal(t, "here", f.Server)
	}
	assert.Len(t, r.Checks, len(Checks()))
	assert.Subset(t, seen, Checks())
	assert.Zero(t, r.Problems+r.Warnings+r.Unchecked)
	assert.Equal(t, []string{"else"}, rdb.Keys(t.Context(), "*").Val())
	assert.Equal(t, "Redis "+redistest.Info(t, rdb, "server", "redis_version"), found(t, r, "version").Found)

	clock := found(t, r, "clock").Values
	offset, uncertain := clock["offset_us"].(int64), clock["uncertainty_us"].(int64)
	assert.LessOrEqual(t, max(offset, -offset), uncertain+1, "it is the same clock")
	assert.Equal(t, manySamples, found(t, r, "latency").Values["samples"])
}

// The line that is printed suffices, and what it does not allow to look at is no problem.
func TestWithTheLeastRightsThereIsNoProblem(t *testing.T) {
	s := redistest.Start(t)
	blind := func(rules ...string) (checks []string) {
		r := Run(t.Context(), login(t, s, rules...), options(nil))
		assert.Zero(t, r.Problems)
		assert.Equal(t, `user "somebody" may do all that locks need`, found(t, r, "rights").Found)
		for _, f := range r.Checks {
			if f.Result == Unchecked {
				checks = append(checks, f.Check)
			}
		}
		return checks
	}
	assert.Equal(t, []string{"eviction", "memory", "persistence", "replicas", "min-replicas", "slow", "leftovers"}, blind(least()...))
	assert.Equal(t, []string{"slow", "leftovers"}, blind(append(least(), "+info")...), "CONFIG is missed only where INFO is silent")
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// Each right that is missing is found, and named with the rule that gives it.
func TestEachMissingRightIsNamed(t *testing.T) {
	s := redistest.Start(t)
	for i, rule := range least() {
		t.Run(rule, func(t *testing.T) {
			rules := least()
			rules = append(rules[:i], rules[i+1:]...)
			d, err := tryRights(t.Context(), login(t, s, rules...), "fairlock:{x}:rights", "fairlock:wake:x")
			require.NoError(t, err)
			f := d.finding("somebody", "fairlock")
			assert.Equal(t, "ACL SETUSER somebody "+rule, f.Advice)
			want := Problem
			if rule == "+publish" || rule == "+subscribe" || rule == "+type" || strings.HasPrefix(rule, "&") {
				want = Warning
			}
			assert.Equal(t, want, f.Result, f.Found)
		})
	}
	assert.Zero(t, s.Client().DBSize(t.Context()).Val(), "trying changes nothing")
}

// Not even for a moment.
func TestTryingRightsChangesNothing(t *testing.T) {
	rdb := redistest.Start(t).Client()
	_, err := tryRights(t.Context(), rdb, "fairlock:{x}:rights", "fairlock:wake:x")
	require.NoError(t, err)
	assert.Zero(t, rdb.DBSize(t.Context()).Val())
	assert.Equal(t, "0", redistest.Info(t, rdb, "persistence", "rdb_changes_since_last_save"))
}

func TestACommandThatTheServerDoesNotHaveIsAProblem(t *testing.T) {
	s := redistest.Start(t, "--rename-command", "EVALSHA", "", "--rename-command", "CONFIG", "")
	r := Run(t.Context(), s.Client(), options(nil))
	assert.Equal(t, "the server does not know evalsha", found(t, r, "rights").Found)
	assert.Equal(t, Problem, found(t, r, "rights").Result)
	assert.Equal(t, Problem, found(t, r, "locks").Result)
	assert.Equal(t, Unchecked, found(t, r, "wake-ups").Result)
	assert.Equal(t, OK, found(t, r, "eviction").Result, "INFO tells that, too")
}

// Before version 6 there is no HELLO, and a proxy may not have it.
func TestWithoutHELLOTheRestIsChecked(t *testing.T) {
	r := Run(t.Context(), redistest.Start(t, "--rename-command", "HELLO", "").Client(), options(nil))
	assert.Zero(t, r.Problems+r.Unchecked)
	assert.Equal(t, OK, found(t, r, "version").Result)
	assert.Equal(t, OK, found(t, r, "role").Result)
}

func TestWithoutLuaNoLockCanBeHad(t *testing.T) {
	s := redistest.Start(t)
	r := Run(t.Context(), login(t, s, "~*", "&*", "+@all", "-eval", "-evalsha"), options(nil))
	assert.Equal(t, "ACL SETUSER somebody +eval +evalsha", found(t, r, "rights").Advice)
	f := found(t, r, "locks")
	assert.Equal(t, Problem, f.Result)
	assert.Contains(t, f.Found, "NOPERM")
	assert.Equal(t, 2, r.Problems)
}

// Without the channel a waiter is in by a beat, and the report says so.
func TestADeafWaiterIsAWarning(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := Run(t.Context(), login(t, s, "~*", "+@all", "resetchannels"), options(nil))
	f := found(t, r, "wake-ups")
	assert.Equal(t, Warning, f.Result)
	assert.Contains(t, f.Found, "by a beat: NOPERM")
	assert.Equal(t, OK, found(t, r, "locks").Result)
	assert.Equal(t, Warning, found(t, r, "rights").Result)
	assert.Zero(t, r.Problems)
}

// The same if messages get lost on the way.
func TestMessagesThatGetLostAreAWarning(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	link.DropNotifications()
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr()})
	defer func() { _ = rdb.Close() }()
	mutex, permits, err := run(t.Context(), rdb, "fairlock", "x")
	require.NoError(t, err)
	f := wakes(mutex, permits)
	assert.Equal(t, Warning, f.Result)
	assert.Contains(t, f.Found, "by a beat: the subscription did not come up")
}

func TestAReplicaIsAProblem(t *testing.T) {
	t.Parallel()
	primary := redistest.StartTCP(t)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	r := Run(t.Context(), replica.Client(), options(nil))
	assert.Equal(t, "this is a replica: it takes no locks", found(t, r, "role").Found)
	assert.Contains(t, found(t, r, "role").Advice, primary.Addr())
	assert.Contains(t, found(t, r, "locks").Found, "READONLY")
	assert.Equal(t, OK, found(t, r, "rights").Result, "a replica refuses for another reason")
	assert.Equal(t, 2, r.Problems)

	require.Eventually(t, func() bool {
		f := found(t, Run(t.Context(), primary.Client(), options(nil)), "replicas")
		return f.Result == OK && strings.HasPrefix(f.Found, "1, ")
	}, 20*time.Second, 100*time.Millisecond)
	assert.Equal(t, Warning, found(t, Run(t.Context(), primary.Client(), options(nil)), "min-replicas").Result)
	require.NoError(t, primary.Client().ConfigSet(t.Context(), "min-replicas-to-write", "2").Err())
	r = Run(t.Context(), primary.Client(), options(nil))
	assert.Equal(t, Problem, found(t, r, "min-replicas").Result)
	assert.Contains(t, found(t, r, "locks").Found, "NOREPLICAS")
}

// What the server does not answer any more is not asked, and not called well.
func TestAServerThatDiesIsToldOnce(t *testing.T) {
	s := redistest.Start(t)
	o := s.Options()
	o.MaxRetries, o.DialerRetries = -1, 1
	rdb := redis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	r := Run(t.Context(), rdb, options(func(_, check string) {
		if check == "latency" {
			s.Kill()
		}
	}))
	assert.Equal(t, 1, r.Problems)
	assert.Equal(t, Problem, found(t, r, "latency").Result)
	assert.Equal(t, 3, r.Unchecked)
	for _, check := range []string{"clock", "slow", "leftovers"} {
		assert.Equal(t, "the server was not asked any more", found(t, r, check).Found)
	}
}

func TestWhoHasHadEnoughGetsTheRestUnchecked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := redistest.Start(t)
	r := Run(ctx, s.Client(), options(func(_, check string) {
		if check == "locks" {
			cancel()
		}
	}))
	assert.Equal(t, Unchecked, found(t, r, "locks").Result)
	assert.Equal(t, Unchecked, found(t, r, "leftovers").Result)
	assert.Len(t, r.Checks, len(Checks()))
	assert.Zero(t, r.Problems)
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// Also what was taken already is given back.
func TestWhoHasHadEnoughLeavesNoLock(t *testing.T) {
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	link.DropNotifications() // which makes it wait, with the lock in its hands
	rdb, observer := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr()}), s.Client()
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := run(ctx, rdb, "fairlock", "x")
		done <- err
	}()
	require.Eventually(t, func() bool {
		return observer.Exists(t.Context(), lua.MutexKeys("fairlock", "x").Queue).Val() == 1
	}, 20*time.Second, time.Millisecond)
	cancel()
	require.Error(t, <-done)
	assert.Zero(t, observer.DBSize(t.Context()).Val())
}

// Every key that a lock has is known, with its type; so nothing of ours is taken for somebody else's.
func TestLocksInUseAreNoLeftovers(t *testing.T) {
	s := redistest.Start(t)
	client, err := fairlock.New(s.Client(), fairlock.Config{TTL: time.Minute, WaiterTTL: time.Minute})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); client.Close() })
	locks := []func(context.Context) (*fairlock.Lease, error){
		client.Mutex("a{b}%").Lock, client.RWMutex("a").Lock,
		func(ctx context.Context) (*fairlock.Lease, error) { return client.Semaphore("a", 2).Acquire(ctx, 2) },
	}
	for _, lock := range locks {
		_, err := lock(ctx)
		require.NoError(t, err)
		go func() { _, _ = lock(ctx) }() // waits until the test ends
	}
	k := lua.MutexKeys("fairlock", "a{b}%")
	p, q := lua.SemaphoreKeys("fairlock", "a"), lua.RWMutexKeys("fairlock", "a")
	all := []string{
		k.Queue, k.Alive, k.Fence, k.Lock, p.Queue, p.Alive, p.Fence, p.Permits, p.Holders, p.Wants,
		q.Queue, q.Alive, q.Fence, q.Permits, q.Holders, q.Wants,
	}
	rdb := s.Client()
	require.Eventually(t, func() bool { return rdb.Exists(ctx, all...).Val() == int64(len(all)) }, 20*time.Second, time.Millisecond)
	f := found(t, Run(ctx, rdb, options(nil)), "leftovers")
	assert.Equal(t, OK, f.Result, f.Found)
	assert.Equal(t, len(all), f.Values["keys"])
}

func TestLeftoversAreFound(t *testing.T) {
	t.Parallel()
	k := lua.MutexKeys("fairlock", "x")
	p := lua.RWMutexKeys("fairlock", "x")
	soonest := float64(time.Now().Add(time.Minute).UnixMicro())
	for name, c := range map[string]struct {
		leave func(ctx context.Context, rdb *redis.Client)
		want  Result
		says  string
	}{
		"somebody else's list": {func(ctx context.Context, rdb *redis.Client) { rdb.LPush(ctx, k.Queue, 1) }, Problem,
			`"fairlock:{x}:queue" is a list`},
		"somebody else's list beside a queue": {func(ctx context.Context, rdb *redis.Client) {
			rdb.ZAdd(ctx, k.Queue, redis.Z{Score: 1, Member: "a"})
			rdb.LPush(ctx, k.Alive, 1)
		}, Problem, `"fairlock:{x}:alive" is a list`},
		"somebody else's string": {func(ctx context.Context, rdb *redis.Client) { rdb.Set(ctx, p.Holders, 1, 0) }, Problem,
			`"fairlock:{x}:rw:holders" is a string`},
		"a lock for ever": {func(ctx context.Context, rdb *redis.Client) { rdb.Set(ctx, k.Lock, 1, 0) }, Problem, "never expire"},
		"a fence for ever": {func(ctx context.Context, rdb *redis.Client) { rdb.Set(ctx, k.Fence, 1, 0) }, Warning,
			"never expire"},
		"silent waiters": {func(ctx context.Context, rdb *redis.Client) {
			rdb.ZAdd(ctx, k.Queue, redis.Z{Score: 1, Member: "a"})
			rdb.ZAdd(ctx, k.Alive, redis.Z{Score: 5, Member: "a"})
			rdb.Expire(ctx, k.Queue, time.Minute)
			rdb.Expire(ctx, k.Alive, time.Minute)
		}, Warning, `waiters who are gone: "fairlock:{x}:queue"`},
		"one of them alive": {func(ctx context.Context, rdb *redis.Client) {
			rdb.ZAdd(ctx, k.Queue, redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"})
			rdb.ZAdd(ctx, k.Alive, redis.Z{Score: 5, Member: "a"}, redis.Z{Score: soonest, Member: "b"})
			rdb.Expire(ctx, k.Queue, time.Minute)
			rdb.Expire(ctx, k.Alive, time.Minute)
		}, OK, "none, among 2 keys"},
		"silent, and about to go": {func(ctx context.Context, rdb *redis.Client) {
			rdb.ZAdd(ctx, k.Queue, redis.Z{Score: 1, Member: "a"})
			rdb.PExpire(ctx, k.Queue, soon)
		}, OK, "none"},
		"keys that are no keys of ours": {func(ctx context.Context, rdb *redis.Client) {
			rdb.LPush(ctx, "fairlock:queue", 1)
			rdb.LPush(ctx, "fairlock:{x}:something", 1)
			rdb.LPush(ctx, "fairlocks:{x}:queue", 1)
			rdb.LPush(ctx, "fairlock:{x}:sem:lock", 1) // a semaphore has none
		}, OK, "none, among 0 keys"},
		"a name that would draw on a terminal": {func(ctx context.Context, rdb *redis.Client) {
			rdb.LPush(ctx, lua.MutexKeys("fairlock", "\x1b[2J").Lock, 1)
		}, Problem, `\x1b[2J`},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client()
			c.leave(t.Context(), rdb)
			l, err := search(t.Context(), rdb, "fairlock", func(int) {})
			require.NoError(t, err)
			f := l.finding()
			assert.Equal(t, c.want, f.Result, f.Found)
			assert.Contains(t, f.Found, c.says)
		})
	}
}

// It goes through all keys, step by step, and names only the first few.
func TestManyKeysAreAllLookedAt(t *testing.T) {
	rdb := redistest.Start(t).Client()
	const n = 5 * scanStep
	pipe := rdb.Pipeline()
	for i := range n {
		pipe.Set(t.Context(), lua.MutexKeys("fairlock", fmt.Sprint(i)).Fence, 1, time.Hour)
	}
	for i := range 9 {
		pipe.LPush(t.Context(), lua.MutexKeys("fairlock", fmt.Sprint(i)).Queue, 1)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	steps := 0
	l, err := search(t.Context(), rdb, "fairlock", func(int) { steps++ })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, l.seen, n+9)
	assert.GreaterOrEqual(t, steps, n/scanStep/2)
	f := l.finding()
	assert.Contains(t, f.Found, " and 6 more")
	assert.Len(t, f.Values["foreign"], 9)
}

func TestANamespaceIsNoPatternInTheSearch(t *testing.T) {
	rdb := redistest.Start(t).Client()
	require.NoError(t, rdb.LPush(t.Context(), lua.MutexKeys("a1b", "x").Queue, 1).Err())
	l, err := search(t.Context(), rdb, "a[1]*", func(int) {})
	require.NoError(t, err)
	assert.Zero(t, l.seen)
	require.NoError(t, rdb.LPush(t.Context(), lua.MutexKeys("a[1]*", "x").Queue, 1).Err())
	l, err = search(t.Context(), rdb, "a[1]*", func(int) {})
	require.NoError(t, err)
	assert.Len(t, l.foreign, 1)
}

func TestWhyAServerIsOutOfReachIsAdvised(t *testing.T) {
	for text, advice := range map[string]string{
		"WRONGPASS invalid username-password pair or user is disabled.":               "name and password",
		"NOAUTH Authentication required.":                                             "give a user",
		"dial tcp 127.0.0.1:1: connect: connection refused":                           "address and port",
		"tls: first record does not look like a TLS handshake":                        "rediss://",
		"tls: failed to verify certificate: x509: certificate signed by unknown":      "certificate",
		"dial tcp: lookup nowhere: no such host":                                      "host's name",
		"no answer within 5s":                                                         "whether it hangs",
		"EOF":                                                                         "with TLS",
		"ERR This instance has cluster support disabled":                              "no cluster",
		"NOPERM this user has no permissions to run the 'cluster|slots' command":      "+cluster|slots",
		"redis: all sentinels specified in configuration are unreachable: x":          "Sentinels",
		"ERR max number of clients reached":                                           "maxclients",
		"LOADING Redis is loading the dataset in memory":                              "wait",
		"CLUSTERDOWN The cluster is down":                                             "repair",
		"DENIED Redis is running in protected mode because protected mode is enabled": "protected mode",
	} {
		r := Unreachable(options(nil), fmt.Errorf("redis at x: %s", text))
		assert.Equal(t, 1, r.Problems)
		assert.Contains(t, r.Checks[0].Advice, advice, text)
		assert.Contains(t, r.Checks[0].Found, text)
		assert.NotEmpty(t, r.ACL)
	}
}

// A person is told each advice once in a row, and the counts.
func TestTheTextSaysWhatToDo(t *testing.T) {
	r := Report{Namespace: "n", ACL: "ACL SETUSER x"}
	for _, f := range []Finding{ok("fine"), warn("do this", "not so good"), warn("do this", "nor this"), problem("do that", "bad")} {
		f.Check, f.Server = "check", "here"
		r.add(f)
	}
	var b strings.Builder
	require.NoError(t, r.Text(&b, false))
	assert.Equal(t, `here, namespace "n"
  ok         check         fine
  warning    check         not so good
                           -> do this
  warning    check         nor this
  problem    check         bad
                           -> do that

1 problem, 2 warnings, 0 unchecked

The least rights for locks in this namespace, for redis-cli (choose the name and the password):
ACL SETUSER x
`, b.String())
	b.Reset()
	require.NoError(t, r.Text(&b, true))
	assert.Contains(t, b.String(), "\x1b[")
}
