//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/bench"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/script"
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

// What can be read is shown, although something else cannot. Neither controls the terminal.
func TestList_ShowsWhatCanBeRead(t *testing.T) {
	f := newFixture(t)
	const evil = "\x1b]0;evil\a\x1b[2J\u009b31m\u202e\xff\n"
	f.hold(f.client("").Mutex(evil).Lock)
	for i := range 120 { // which are read in more than one pipeline
		broken := script.KeysOf("rwmutex", f.namespace, fmt.Sprint("broken", i, evil)).Part("queue")
		require.NoError(t, f.server.Client().LPush(t.Context(), broken, "secret").Err())
	}
	r := f.call("list")
	require.Equal(t, exitUnreachable, r.code)
	require.Contains(t, r.out, strconv.Quote(evil))
	require.Equal(t, 120, strings.Count(r.out, "  rwmutex  unreadable"), "each of them")
	require.Regexp(t,
		`^fairlock: rwmutex "[^\n]+ is not ours: (ERR )?WRONGTYPE[^\n]+ kind of value \(and 119 more errors\)\n$`, r.errs)
	require.NotRegexp(t, `[\x00-\x09\x0b-\x1f\x7f]|\x{9b}|\x{202e}|secret|user_script|[0-9a-f]{40}`, r.out+r.errs)
}

// stamp is when a line of fairlock watch was written.
const stamp = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)  `

func TestWatch_WritesALineForEachChange(t *testing.T) {
	f := newFixture(t)
	m := f.client("web-1").Mutex("x")
	f, link := f.linked()
	cmd := f.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" watch x y --interval 100ms 2>&1`, program}
	lines := f.start(cmd)
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

// watches calls watch until it says that.
func (f fixture) watches(text string, args ...string) {
	f.t.Helper()
	cmd := f.command(args...)
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec "$0" "$@" 2>&1`}, cmd.Args...)
	watch := f.start(cmd)
	watch.expect(text)
	watch.signal(syscall.SIGINT)
	require.Zero(f.t, watch.wait().code)
}

// Watch and doctor say what status and list say of a wrong name, see testdata/sessions.txt.
func TestLook_WrongNames(t *testing.T) {
	f := newFixture(t)
	f.server = redistest.Start(t)
	f = f.at("unix://" + f.server.Addr())
	f.hold(f.client("web-1").Mutex("invoices:export").Lock)
	wrong, elsewhere := "no locks in this namespace; namespaces with locks: "+f.namespace, "--namespace="+f.namespace+"x"
	f.watches("fairlock: "+wrong+"\n", elsewhere, "watch", "--json")
	f.watches("fairlock: no lock in use matches --prefix x; without that, list shows 1\n", "watch", "--plain",
		"--prefix", "x")
	f.watches("fairlock: did you mean mutex invoices:export?\n", "watch", "--json", "invoice:export")
	require.Regexp(t, `\n  warning    keys           `+wrong+`\n +-> if there should be some, `,
		f.call(elsewhere, "doctor").out)
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

// What was recorded until then is checked.
func TestDemo_EndsEarly(t *testing.T) {
	f := sleepingFixture(t)
	s := redistest.Start(t)
	together(f, map[string]func(*running) (int, string){
		// in memory
		"--kind semaphore": func(r *running) (int, string) { r.signal(os.Interrupt); return 0, "ok  strict FIFO" },
		"--redis unix://" + s.Addr(): func(*running) (int, string) {
			s.Kill()
			return exitFailure,
				"UNFINISHED  until then strict FIFO"
		},
	}, func(t *testing.T, f fixture, words string, end func(*running) (int, string)) {
		if !strings.Contains(words, "--redis") { // a server in memory has no TLS
			f = f.with(envTLSCA + "=/no/such/file")
		}
		r := f.start(f.command(strings.Fields("demo --clients 3 --workers 2 --hold 50ms --duration 10m --ttl 3s " +
			words)...))
		r.expect(" waiting; ")
		code, shown := end(r)
		got := r.wait()
		assert.Equal(t, code, got.code, got.errs)
		assert.Contains(t, got.out, "\n"+shown)
	})
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
}

// Text from a file often has a newline at its end. Whatever is not meant to be there is named, and no more of a URL.
func TestConnection_TextFromFiles(t *testing.T) {
	const url = "redis://:secret@h"
	for text, c := range map[string]connection{
		url + "\n":   {redis: url + "\n"},
		url + "\r\n": {redis: url + "\r\n"},
		" " + url:    {redis: " " + url},
		"\ufeff":     {redis: "\ufeff" + url},
		"billing\n":  {redis: url, namespace: "billing\n"},
		" billing":   {redis: url, namespace: " billing"}, //nolint:gocritic // the space is what is wrong
		"a\tb":       {redis: url, namespace: "a\tb"},
	} {
		_, err := c.target()
		want := "redis URL: has a space or a newline at an end"
		if c.namespace != "" {
			want = fmt.Sprintf("namespace: %q has a space at an end", text)
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		require.Equal(t, exitUsage, exitCode(err))
	}
	t.Setenv(envPassword, "secret\n")
	c := connection{redis: "redis://h"}
	_, err := c.target()
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

func TestRun_Label(t *testing.T) {
	f := newFixture(t)
	r := f.run("x --label deploy", "echo up; cat")
	r.expect("up\n")
	f.run("y", "echo up; cat").expect("up\n")
	host, err := os.Hostname()
	require.NoError(t, err)
	name := fmt.Sprintf("deploy-%d@%s", r.cmd.Process.Pid, host)
	require.Contains(t, f.done("status", "x"), name)
	require.Regexp(t, `\n  \w+/sh-\d+@`+host, f.done("status", "y"), "user, command, process, host")
	const age = ` for \d+(\.\d)?m?s\n$`
	require.Regexp(t, "^fairlock: x is busy, held by "+name+age, f.attempt("x --try").errs)
	require.Regexp(t, "^fairlock: timed out after 3s waiting for x, held by "+name+age, f.attempt("x --wait 3s").errs)
	got := f.run("x --verbose --wait 2500ms", "true").wait() // it could say so twice
	require.Regexp(t, `^fairlock: mutex x: waiting for 1s, position 1 of 1, held by `+name+
		` for \d+(\.\d)?m?s\nfairlock: timed out [^\n]+\n$`, got.errs)
}

// A server that becomes a replica, and a Sentinel. A replica is in testdata/sessions.txt.
func TestConnection_WrongServer(t *testing.T) {
	f := newFixture(t)
	primary := redistest.StartTCP(t)
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	p := f
	p.server = primary
	p.hold(p.client("web-1").Mutex("x").Lock)
	watch := p.at("redis://" + primary.Addr()).command()
	watch.Path, watch.Args = "/bin/sh", []string{"sh", "-c", "exec " + program + " watch x --plain 2>&1"}
	watched := p.start(watch)
	watched.expect("holders: web-1")
	require.NoError(t, primary.Client().Do(t.Context(), "REPLICAOF", host, fmt.Sprint(redistest.FreePort(t))).Err())
	watched.expect(primary.Addr() + " is a replica, and may be behind")
	config, sentinel := filepath.Join(t.TempDir(), "sentinel.conf"), fmt.Sprint(redistest.FreePort(t))
	require.NoError(t, os.WriteFile(config, []byte("port "+sentinel+"\nsentinel monitor main "+host+" "+port+" 1\n"),
		0o600))
	server := exec.Command("redis-server", config, "--sentinel")
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	f.until("the Sentinel answers", func() bool {
		conn, err := net.Dial("tcp", "localhost:"+sentinel)
		return err == nil && conn.Close() == nil
	})
	for _, words := range []string{"status x", "run x -- true"} {
		refused(t, f.at("redis://localhost:"+sentinel).call(strings.Fields(words)...), exitUsage, "localhost:"+sentinel+
			" is a Sentinel")
	}
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	hung := f.at("redis://localhost:" + sentinel + "?master_name=main")
	began := time.Now()
	refused(t, hung.attempt("x --wait 300ms"), exitTimeout, "timed out after 300ms waiting for x: Redis has not answered")
	assert.Less(t, time.Since(began), 4*time.Second, "closing the client takes 5 s")
	require.Contains(t, f.at("unix://"+f.server.Addr()+"?db=1").done("list"), f.server.Addr()+", database 1, namespace ")

	// A fairlock within CMD does not fall back to localhost.
	inner := []string{"run", "x", "--", program, "run", "y", "--", "echo", "in"}
	refused(t, f.start(f.command(inner...)).wait(), exitUsage, "the outer fairlock run does not pass on its server")
	require.Equal(t, result{out: "in\n"}, f.start(f.command(append([]string{"run", "--pass-redis"},
		inner[1:]...)...)).wait())
	require.Equal(t, result{out: "in\n"}, f.run("x", "FAIRLOCK_REDIS="+f.url+" "+program+" run y -- echo in").wait())
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

// Each of the three lines makes a user that can do what it says, and no more. (A server of version 6.2 has all channels
// open by default, and refuses rules for some of them then.) Which right each command needs is tested in
// internal/tools/doctor.
func TestDoctor_Rights(t *testing.T) {
	f := newFixture(t)
	f.server = redistest.Start(t, "--acl-pubsub-default", "allchannels")
	f = f.at("unix://" + f.server.Addr())
	rdb := f.server.Client()
	user := map[string]fixture{}
	old := doctor.RightsIn(f.namespace, true)[1]
	old.ACL = strings.Replace(old.ACL, "fairlock-look", "old-look", 1)
	for _, r := range append(doctor.RightsIn(f.namespace, f.server.Before7()), old) {
		words := strings.Fields(r.ACL)
		args := make([]any, len(words))
		for i, word := range words {
			args[i] = word
		}
		require.NoError(t, rdb.Do(t.Context(), args...).Err(), r.ACL)
		user[words[2]] = f.at("unix://" + words[2] + ":password@" + f.server.Addr())
	}
	for name, purpose := range map[string]string{"fairlock": "use", "fairlock-look": "look",
		"fairlock-operate": "operate"} {
		require.Regexp(t, `\n0 problems, .* of 15 unchecked; this user may not read the others, an admin's may\n`,
			user[name].done("doctor", "--for", purpose), "which does not sound as if all were well")
	}
	nobody := f.at(login(t, f.server, "nobody", "resetchannels")).call("doctor")
	require.Equal(t, exitFailure, nobody.code)
	require.Regexp(t, `(?m)^ {31}ACL SETUSER nobody \+eval .*\n {31}ACL SETUSER nobody ~`+f.namespace+
		`:\*\n {31}ACL SETUSER nobody &`, nobody.out)
	require.Equal(t, exitFailure, user["fairlock-look"].call("doctor", "--for", "operate").code)

	c := f.client("web-1")
	lease, kind := f.hold(permits(c.Semaphore("x", 2))), []string{"--kind", "semaphore"}
	for _, name := range []string{"fairlock-look", "old-look", "fairlock-operate", "fairlock"} {
		require.Contains(t, user[name].done("status", "x"), "web-1", "who may lock may look")
		if name != "fairlock" { // which may not search
			require.Contains(t, user[name].done("list", "--prefix", "x"), "web-1")
			user[name].watches("web-1", "watch", "--prefix", "x", "--interval", "100ms")
		}
	}
	for _, words := range []string{"release x --kind semaphore --force", "resize x --permits 3"} {
		r := user["fairlock-look"].call(strings.Fields(words)...)
		require.Equal(t, exitUnreachable, r.code, "it may only look: %s", r.errs)
		require.Regexp(t, "this user lacks .*; fairlock doctor( --for (look|operate))? names all that it lacks", r.errs)
		require.NotEmpty(t, user["fairlock-operate"].done(strings.Fields(words)...))
	}
	user["fairlock-operate"].done("resize", "x", "--reset")
	require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
	f.hold(permits(c.Semaphore("x", 2)))
	last := decode[[]seen](t, f.done("status", "x", "--json"))[0].Holders[0].Fence
	user["fairlock-operate"].done(append(kind, "release", "x", "--force", "--fence", fmt.Sprint(last))...)
	require.Len(t, user["fairlock"].examine(0, doctor.Problem).Rights, 3)
	require.Equal(t, result{out: "in\n"}, user["fairlock"].run("y", "echo in").wait())

	// Without SCAN, watch says so once, and searches again.
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "fairlock-look", "-scan").Err())
	cmd := user["fairlock-look"].command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" watch --interval 100ms 2>&1`, program}
	w := user["fairlock-look"].start(cmd)
	w.expect("\n")
	require.Regexp(t, `^fairlock: this user lacks \+scan; retrying$`, w.expect("\n"))
	searches := func() string { return redistest.Info(t, rdb, "commandstats", "cmdstat_scan") }
	before := searches()
	f.until("it has searched again", func() bool { return searches() != before })
	w.signal(syscall.SIGTERM)
	require.Equal(t, result{}, w.wait())
}
