//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/bench"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// seen is a lock as a script reads it; all its fields are in internal/view.
type seen struct {
	Kind, Name    string
	Namespace     string // of --all-namespaces
	Held          bool
	Used, Waiting int
	Permits       *int
	Fence         *uint64
	Holders       []struct {
		Client string
		Fence  uint64
	}
	Waiters []struct{ Client string }
}

// What a server says before it closes the connection is the error, and there is advice for that.
func TestConnection_Said(t *testing.T) {
	f := newFixture(t)
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	go func() { // until it is closed
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			_, _ = fmt.Fprint(conn, "-DENIED Redis is running in protected mode\r\n")
			_ = conn.Close()
		}
	}()
	on := f.at("redis://" + listener.Addr().String())
	refused(t, on.call("list"), exitUnreachable, "DENIED Redis is running in protected mode")
	require.Contains(t, on.call("doctor").out, "end its protected mode")
}

// stamp is when a line of fairlock watch was written.
const stamp = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)  `

// watch starts fairlock watch. Its errors stand among its lines.
func (f fixture) watch(args ...string) *running {
	f.t.Helper()
	cmd := f.command()
	cmd.Path, cmd.Args = "/bin/sh", slices.Concat([]string{"sh", "-c", `exec "$0" watch "$@" 2>&1`, program}, args)
	return f.start(cmd)
}

func TestWatch_WritesALineForEachChange(t *testing.T) {
	f := newFixture(t)
	m := f.client("web-1").Mutex("x")
	f, link := f.linked()
	lines := f.watch("x", "y", "--interval", "100ms")
	line := func() (text string) { // the next that does not say that Redis has yet to answer
		for text = lines.expect("\n"); text == "fairlock: no answer yet; retrying"; text = lines.expect("\n") {
		}
		return text
	}
	require.Contains(t, line(), link.Addr()+", namespace "+f.namespace)
	require.Regexp(t, stamp+"x: free, not used lately$", line())
	require.Regexp(t, stamp+"y: free, not used lately$", line())
	objects := f.start(f.command("watch", "--interval", "100ms", "--json", "--kind", "mutex"))
	object := func() seen { return decode[seen](t, objects.expect("\n")) }
	lease := f.hold(m.Lock)
	require.Regexp(t, fmt.Sprintf(`%smutex x: held, no waiters; holders: web-1 \(fence %d\)$`, stamp, lease.Fence()),
		line())
	l := object()
	require.Equal(t, []any{"x", true, 0}, []any{l.Name, l.Held, l.Waiting})
	f.wait(m, 1)
	require.Regexp(t, `, 1 waiting; .*; waiters: web-1:....…$`, line())
	require.Equal(t, 1, object().Waiting)

	link.Cut()
	require.Regexp(t, `^fairlock: [^\n]+$`, lines.expect("; retrying\n"))
	time.Sleep(time.Second / 2) // it looks again, and does not repeat that line
	require.NoError(t, lease.Unlock(t.Context()))
	link.Mend()
	require.Regexp(t, `mutex x: held, no waiters; holders: web-1 \(fence \d+\)$`, line())
	require.Greater(t, *object().Fence, lease.Fence())
	lines.signal(syscall.SIGINT)
	require.Zero(t, lines.wait().code)
	objects.signal(syscall.SIGTERM)
	require.Zero(t, objects.wait().code)
}

// examine calls fairlock doctor, and expects an exit code and checks with that result.
func (f fixture) examine(code int, result doctor.Result, checks ...string) doctor.Report {
	f.t.Helper()
	r := f.call("doctor", "--json")
	require.Equal(f.t, code, r.code, "%s%s", r.out, r.errs)
	report := decode[doctor.Report](f.t, r.out)
	var have []string
	for _, c := range report.Checks {
		busy := c.Check == "latency" && c.Result == doctor.Warning // this machine may be: that counts as OK
		if !busy && c.Result == result || busy && result == doctor.OK {
			have = append(have, c.Check)
		}
	}
	require.Equal(f.t, checks, have)
	return report
}

func TestDoctor_ExitCodes(t *testing.T) {
	f := newFixture(t)
	start := func(args ...string) fixture { return f.at("unix://" + redistest.Start(t, args...).Addr()) }
	well := start("--appendonly", "yes", "--slowlog-log-slower-than", "-1", "--lazyfree-lazy-expire", "yes")
	e := well.examine(0, doctor.OK, doctor.Checks()...)
	acl := doctor.RightsIn(f.namespace, f.server.Before7())
	assert.Equal(t, []any{f.namespace, acl, well.url}, []any{e.Namespace, e.Rights, "unix://" + e.Checks[0].Server})
	shown := well.done("doctor")
	slow := inspect.Count(strings.Count(shown, "\n  warning    latency "), "warning")
	assert.Contains(t, shown, "\n0 problems, "+slow+", 0 of 15 unchecked\n")
	assert.Regexp(t, `\n  ok {24}reachable, version \([^)]+\), role, .*, layout\n`, shown, "what is well is one line")
	assert.NotContains(t, shown, "ACL SETUSER", "the user lacks none")
	assert.Contains(t, well.done("doctor", "--rights"), "\n"+acl[2].ACL+"\n")
	assert.NotContains(t, shown, "\x1b")
	assert.Equal(t, "[]\n", well.call("list", "--json").out, "nothing is left")

	look := f.at(login(t, f.server, f.namespace, rules(acl[1])))
	assert.Regexp(t, `\n0 problems, .* of 15 unchecked; this user may not read the others, an admin's may\n`,
		look.done("doctor", "--for", "look"), "which does not sound as if all were well")

	full := start("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	full.examine(exitFailure, doctor.Problem, "eviction")
	shown = full.call("doctor").out
	assert.Regexp(t,
		`^[^\n]+\n  problem    eviction  [^\n]+\n +-> [^\n]+\n +CONFIG SET maxmemory-policy noeviction\n  warning    persistence `, shown)

	away := f.at("unix:///no/such/socket")
	away.examine(exitUnreachable, doctor.Problem, "reachable")
	r := away.call("doctor")
	assert.Contains(t, r.out, "problem    reachable")
	assert.Equal(t, 1, strings.Count(r.out+r.errs, "no such file"), "once")
}

// A user with the least rights may measure.
func TestBench_Measures(t *testing.T) {
	f := newFixture(t)
	f = f.at(login(t, f.server, f.namespace, rules(doctor.RightsIn(f.namespace, false)[0])))
	words := "bench --kind semaphore --permits 3 --contenders 4 --clients 2 --duration 1s --json"
	// not in this process, which others need
	r := decode[bench.Result](t, f.start(f.command(strings.Fields(words)...)).wait().out)
	assert.Equal(t, []any{fairlock.KindSemaphore, 3, 4, 2, 5, false},
		[]any{r.Kind, r.Permits, r.Contenders, r.Clients, r.Rounds, r.Interrupted})
	assert.Positive(t, r.Workloads[0].Fairlock.Ops)
	assert.Empty(t, f.server.Client().Keys(t.Context(), f.namespace+":*").Val(), "nothing is left")
	shown := f.start(f.command("bench", "--contenders", "2", "--clients", "2", "--duration", "100ms")).wait().out
	assert.Contains(t, shown, "handoffs of one lock among 2")
}

// On a cluster, and two demos at once on a server. A TTL and a WaiterTTL of seconds outlast pauses of the machine: a
// client that pauses for longer is passed by others, rightly, and the checker cannot know why.
func TestDemo(t *testing.T) {
	f := sleepingFixture(t)
	cluster := "--redis redis://" + redistest.StartCluster(t, 2).Masters[0].Addr() + "?cluster=true"
	together(f, map[string]string{"mutex": "--redis " + f.url, "rwmutex": "--redis " + f.url,
		"semaphore --permits 2": cluster}, func(t *testing.T, f fixture, kind, words string) {
		words += " --clients 3 --workers 2 --duration 300ms --hold 50ms --ttl 3s --waiter-ttl 3s --kind " + kind
		r := f.start(f.command(append([]string{"demo"}, strings.Fields(words)...)...)).wait()
		require.Equal(t, result{out: r.out}, r)
		shown := r.out
		require.Contains(t, shown, "\nok  strict FIFO")
		assert.Regexp(t, `(?m)^ +[0-9.]+s  \w+ demo-\w+: .*; holders: client-\d\.\d .*; waiters: client-\d`, shown)
		assert.Regexp(t, `(?m)^ +[0-9.]+s  client-\d was killed while it held the lock$`, shown)
		assert.Regexp(t, `(?m)^  client-\d  killed while 2 of its workers waited; no grant for [0-9.]+m?s then$`, shown)
		if kind == "mutex" { // others may have had something free at each request
			assert.Regexp(t, `(?m)^  handoff   p50 [0-9.]+[µm]?s  p99 `, shown)
		}
		lock := regexp.MustCompile(`demo-\w+`).FindString(shown)
		assert.Empty(t, f.server.Client().Keys(t.Context(), "*"+lock+"*").Val(), "nothing is left")
	})
}

// What was recorded until then is checked. How a user ends a demo is tested in TestTerminal_Demo.
func TestDemo_RedisIsKilled(t *testing.T) {
	f := newFixture(t)
	s := redistest.Start(t)
	r := f.start(f.command(strings.Fields("demo --clients 3 --workers 2 --hold 50ms --duration 10m --ttl 3s --redis " +
		"unix://" + s.Addr())...))
	r.expect(" waiting; ")
	s.Kill()
	got := r.wait()
	assert.Equal(t, exitFailure, got.code, got.errs)
	assert.Contains(t, got.out, "\nUNFINISHED  until then strict FIFO")
}

// guarded is a server with the password secret.
func guarded(t *testing.T) (url string) {
	t.Helper()
	s := redistest.StartTCP(t)
	require.NoError(t, s.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	return "redis://" + s.Addr()
}

// whole is a URL with a password in it.
func whole(url string) string { return strings.Replace(url, "://", "://:secret@", 1) }

// A password is found where the help says, and no process that run starts has it: not in its arguments, not in its
// environment.
func TestConnection_PasswordIsFoundAndHidden(t *testing.T) {
	f := newFixture(t).at("")
	plain := guarded(t)
	const script = `env; ps -A -ww -o ppid= -o pid= -o args= | while read parent pid args; do
		if [ $parent = $PPID ]; then echo "$args"; cat /proc/$pid/environ 2>&-; elif [ $pid = $PPID ]; then echo "$args"; fi
	done`
	type place struct{ env, words string }
	together(f, map[string]place{
		"in FAIRLOCK_REDIS":          {envRedis + "=" + whole(plain), ""},
		"in --redis":                 {envRedis + "=unix:///no/such/socket", "--redis " + whole(plain)},
		"in a variable":              {"MINE=" + whole(plain), "--redis=env:MINE"},
		"in FAIRLOCK_REDIS_PASSWORD": {envPassword + "=secret", "--redis " + plain},
		"in a file":                  {"", "--redis " + plain + " --password-file " + files + "/password"},
	}, func(t *testing.T, f fixture, _ string, c place) {
		r := f.with(c.env).run("x "+c.words+" --kind rwmutex --read", script).wait()
		require.Zero(t, r.code, r.errs)
		assert.Contains(t, r.out, "FAIRLOCK_FENCE=")
		assert.Contains(t, r.out, guardName)
		assert.Contains(t, r.out, "run x")
		for _, secret := range []string{"secret", "FAIRLOCK_REDIS=", "FAIRLOCK_REDIS_PASSWORD=", "MINE="} {
			assert.NotContains(t, r.out, secret)
		}
	})
	r := f.with("URL="+whole(plain)).run("x --namespace other --pass-redis --redis env:URL", "env").wait()
	assert.Contains(t, r.out, "FAIRLOCK_REDIS="+whole(plain)+"\n")
	assert.Contains(t, r.out, "FAIRLOCK_NAMESPACE=other\n")
}

func TestConnection_PasswordLeavesTheCommandLine(t *testing.T) {
	const safe = "env:" + envRedis
	for line, want := range map[string]string{
		"run x --redis=redis://u:p@h -- a":     "run x --redis=" + safe + " -- a",
		"--redis redis://h?password=p&x=1 run": "--redis " + safe + " run",
		"--redis redis://u:12/p@h run":         "--redis " + safe + " run",
		"run x --redis redis://u@h":            "",
		"run x --redis env:URL":                "",
		"run x -- a --redis redis://:p@h":      "",
	} {
		cleaned, env, found := withoutPassword(append([]string{"fairlock"}, strings.Fields(line)...),
			[]string{"A=1", envRedis + "=old"})
		require.Equal(t, want != "", found, line)
		if found {
			require.Equal(t, "fairlock "+want, strings.Join(cleaned, " "))
			require.Len(t, env, 2)
			require.NotContains(t, env, envRedis+"=old")
		}
	}
}

// Those that are wrong are in testdata/usage.txt.
func TestConnection_URLs(t *testing.T) {
	t.Setenv(envPassword, "se/cret")
	for url, want := range map[string]string{
		"redis://u@h?master_name=m":            "redis://u@h?master_name=m&password=se%2Fcret", // u is the Sentinel's user
		"redis://h?master_name=m&password=own": "redis://h?master_name=m&password=own",
		"redis://h?cluster=true":               "redis://:se%2Fcret@h",
		"redis://u@h?addr=h2:6379":             "redis://u:se%2Fcret@h?addr=h2:6379",
		"rediss://u:own@h/1":                   "rediss://u:own@h/1",
		"redis://h FILE":                       "redis://:secret@h", // which counts before the variable
		"redis://u:own@h FILE":                 "redis://u:own@h",
		"REDISS://u:own@h":                     "rediss://u:own@h", // a scheme has no case
		"Unix://u:own@/s":                      "unix://u:own@/s",
	} {
		url, file, _ := strings.Cut(url, " ")
		c := connection{redis: url, passwordFile: strings.Replace(file, "FILE", files+"/password", 1)}
		target, err := c.target()
		require.NoError(t, err)
		require.Equal(t, want, target.plain())
		rdb, err := target.client()
		require.NoError(t, err, url)
		plain, single := rdb.(*redis.Client)
		require.Equal(t, strings.Contains(url, "cluster") || strings.Contains(url, "addr"), !single)
		require.True(t, !single || plain.Options().ContextTimeoutEnabled)
		require.NoError(t, rdb.Close())
	}
	t.Setenv(envPassword, "secret\n")
	_, err := (&connection{redis: "redis://h"}).target()
	require.EqualError(t, err, envPassword+": has control characters, such as a newline at its end")
}

// rules are those of a line of rights, without the user and its password.
func rules(r doctor.Rights) string { return strings.Join(strings.Fields(r.ACL)[7:], " ") }

// login gives a user rights on a server, and returns the URL by which it connects.
func login(t *testing.T, s *redistest.Server, name, rules string) (url string) {
	t.Helper()
	user := s.User(name, append([]string{"resetchannels"}, strings.Fields(rules)...)...)
	return strings.Replace(s.Network(), "tcp", "redis", 1) + "://" + name + ":" + user.Password + "@" + s.Addr()
}

// What else is said of a Redis that is away or refuses is in testdata/sessions.txt.
func TestConnection_RedisIsAwayOrRefuses(t *testing.T) {
	f := newFixture(t)
	plain := guarded(t)
	_, hung := f.linked()
	hung.Hang()
	together(f, map[string]string{
		"unix://" + hung.Addr(): "no answer within 5s", plain: "NOAUTH", whole(plain) + "?cluster=true": "cluster",
		strings.Replace(plain, "://", "://:secretive@", 1): "WRONGPASS", whole(plain) + "/99": "DB",
	}, func(t *testing.T, f fixture, url, why string) {
		refused(t, f.at(url).attempt("x"), exitUnreachable, why)
	})
}

// All commands work on a cluster as a whole, and say so if they were connected to one of its nodes only.
func TestConnection_Cluster(t *testing.T) {
	f := newFixture(t)
	cluster := redistest.StartCluster(t, 2)
	first, second := cluster.Masters[0], cluster.Masters[1]
	node := "redis://" + first.Addr()
	f, one := f.at(node+"?cluster=true"), f.at(node)
	const here, there = "b", "a" // their slots are 3300 and 15495
	e := f.examine(0, doctor.Problem)
	require.Len(t, e.Checks, 2*len(doctor.Checks()))
	login(t, first, "somebody", rules(e.Rights[0]))
	login(t, second, "somebody", rules(e.Rights[0]))
	limited := f.at(strings.Replace(f.url, "://", "://somebody:secret@", 1))
	limited.examine(0, doctor.Problem) // the line of rights suffices
	require.Contains(t, one.call("doctor").out, "problem    cluster")

	onFirst, onSecond := f.at(node+"?addr="+second.Addr()).run(here, "echo up; cat"), limited.run(there, "echo up; cat")
	onFirst.expect("up\n")
	onSecond.expect("up\n")
	listed := decode[[]seen](t, f.done("list", "--json"))
	require.Equal(t, []string{"a", "b"}, []string{listed[0].Name, listed[1].Name})
	require.Contains(t, f.done("status", there), "held")
	const why = "the URL of the cluster (see help connection)"
	refused(t, one.call("status", here), exitUsage, why)
	refused(t, one.call("run", there, "--", "true"), exitUsage, why)
	refused(t, one.call("list"), exitUsage, why)
	require.Equal(t, 0, onSecond.wait().code)

	second.Pause() // it is not asked for the locks of the other one
	require.Equal(t, result{}, f.run(here+" --kind rwmutex", "true").wait())
	second.Kill()
	r := f.call("list")
	require.Equal(t, exitUnreachable, r.code)
	require.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	require.Contains(t, r.out, "\n"+here+" ", "what the other one has")
	e = f.examine(exitFailure, doctor.Problem, "reachable")
	require.True(t, slices.ContainsFunc(e.Checks, func(f doctor.Finding) bool {
		return f.Result == doctor.Problem &&
			f.Server == second.Addr()
	}))
	require.Equal(t, 0, onFirst.wait().code)
}

// The lock of a fairlock that was killed is not left for the rest of its TTL, an hour: the guard gives it back, once
// CMD is dead. It has the password, which stands neither in its arguments nor in its environment.
func TestRun_GuardGivesTheLockBack(t *testing.T) {
	f := newFixture(t)
	c := f.client("")
	url := login(t, f.server, f.namespace, "~* &* +@all")
	type lock = func(context.Context) (*fairlock.Lease, error)
	together(f.at(url), map[string]lock{
		"x": c.Mutex("x").Lock, "x --kind semaphore --permits 2": permits(c.Semaphore("x", 2)),
		"x --kind rwmutex --read": c.RWMutex("x").Lock,
	}, func(t *testing.T, f fixture, words string, next lock) {
		ps := f.processes()
		r := f.run(words+" --ttl 1h", "exec 3>$D/processes; trap '' TERM; sleep 600 & echo up; wait")
		r.expect("up\n")
		r.signal(syscall.SIGKILL)
		f.hold(next)
		require.False(t, ps.alive(), "CMD is alive when another client has the lock")
	})
}

// A server that becomes a replica, and a Sentinel. A replica is in testdata/sessions.txt.
func TestConnection_WrongServer(t *testing.T) {
	f := newFixture(t)
	sentinels := redistest.StartSentinels(t, 0)
	sentinel := sentinels.Options().SentinelAddrs[0]
	for _, words := range []string{"status x", "run x -- true"} {
		refused(t, f.at("redis://"+sentinel).call(strings.Fields(words)...), exitUsage, sentinel+" is a Sentinel")
	}
	silent, err := net.Listen("tcp", "localhost:0") // a Sentinel that hangs
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	began := time.Now()
	refused(t, f.at("redis://"+silent.Addr().String()+"?master_name=main").attempt("x --wait 300ms"), exitTimeout,
		"timed out after 300ms waiting for x: Redis has not answered")
	assert.Less(t, time.Since(began), 4*time.Second, "closing the client takes 5 s")

	f.server = sentinels.Servers[0]
	f.hold(f.client("web-1").Mutex("x").Lock)
	watched := f.at("redis://"+f.server.Addr()).watch("x", "--plain")
	watched.expect("holders: web-1")
	require.NoError(t, f.server.Client().Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	watched.expect(f.server.Addr() + " is a replica, and may be behind")
}

// However Redis hangs, --wait is kept: go-redis would wait for an hour.
func TestRun_WaitsNoLongerThanItMay(t *testing.T) {
	f := sleepingFixture(t)
	m := f.client("web-1").Mutex("x")
	f.hold(m.Lock)
	together(f, map[string]bool{"300ms": false, "5.5s": false, "6s": true},
		func(t *testing.T, f fixture, wait string, queued bool) {
			f, link := f.linked()
			f = f.at(f.url + "?read_timeout=1h&dial_timeout=1h")
			if !queued {
				link.Hang()
				refused(t, f.attempt("x --wait "+wait), exitTimeout, "timed out after "+wait+
					" waiting for x: Redis has not answered")
				return
			}
			r := f.run("x --wait "+wait, "true")
			f.queued(m, 1)
			last := f.state(m).Waiters[0].TTL
			f.until("it knows that it is queued: a heartbeat has come", func() bool {
				was := last
				last = f.state(m).Waiters[0].TTL
				return last > was
			})
			link.Hang()
			refused(t, r.wait(), exitTimeout, "timed out after "+wait+" waiting for x, held by web-1")
		})
}
