package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/doctor"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// examined is a report as a script reads it.
type examined struct {
	t         *testing.T
	Namespace string
	ACL       string
	Checks    []struct {
		Check, Server, Result, Found, Advice string
		Values                               map[string]any
	}
	Problems, Warnings, Unchecked int
}

// examine runs doctor --json on a server and expects an exit code.
func examine(t *testing.T, code int, url string, args ...string) examined {
	t.Helper()
	r := call(t, url, append([]string{"doctor", "--json"}, args...)...)
	require.Equal(t, code, r.code, "%s%s", r.out, r.errs)
	if code == exitUnreachable {
		require.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	} else {
		require.Empty(t, r.errs)
	}
	e := examined{t: t}
	d := json.NewDecoder(strings.NewReader(r.out))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&e))
	return e
}

// result is that of a check, and what was found.
func (e examined) result(check string) (string, string) {
	e.t.Helper()
	for _, c := range e.Checks {
		if c.Check == check {
			return c.Result, c.Found
		}
	}
	e.t.Fatalf("no check %q", check)
	return "", ""
}

// of returns the checks with that result.
func (e examined) of(result doctor.Result) (checks []string) {
	for _, c := range e.Checks {
		if c.Result == string(result) {
			checks = append(checks, c.Check)
		}
	}
	return checks
}

// acl gives a user rights, and returns the URL by which it comes.
func acl(t *testing.T, s *redistest.Server, rules string) string {
	t.Helper()
	args := []any{"acl", "setuser", "somebody", "reset", "on", ">secret"}
	for rule := range strings.FieldsSeq(rules) {
		args = append(args, rule)
	}
	require.NoError(t, s.Client().Do(t.Context(), args...).Err())
	return strings.Replace(serverURL(s), "://", "://somebody:secret@", 1)
}

func TestDoctorOnAServerInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--slowlog-log-slower-than", "-1") // a busy machine makes anything slow
	e := examine(t, 0, serverURL(s))
	assert.Equal(t, doctor.Checks(), e.of(doctor.OK))
	assert.Equal(t, "fairlock", e.Namespace)
	assert.Equal(t, doctor.ACLLine("fairlock", "fairlock"), e.ACL)
	assert.Equal(t, s.Addr(), e.Checks[0].Server)
	assert.Zero(t, e.Problems+e.Warnings+e.Unchecked)
	assert.Zero(t, s.Client().DBSize(t.Context()).Val(), "nothing is left")

	e = examine(t, 0, serverURL(s), "--namespace", "billing")
	assert.Equal(t, doctor.ACLLine("fairlock", "billing"), e.ACL)

	r := call(t, serverURL(s), "doctor")
	assert.Zero(t, r.code)
	assert.Empty(t, r.errs)
	assert.Contains(t, r.out, "\n0 problems, 0 warnings, 0 unchecked\n")
	assert.Contains(t, r.out, "\n"+doctor.ACLLine("fairlock", "fairlock")+"\n")
	assert.NotContains(t, r.out, "\x1b")
}

func TestDoctorExitsWith1IfThereIsAProblem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		problems []string
		says     string
		server   func(t *testing.T) (url string)
	}{
		"no rights to Lua": {[]string{"rights", "locks"}, "may not use: eval, evalsha", func(t *testing.T) string {
			return acl(t, redistest.Start(t), "~* &* +@all -eval -evalsha")
		}},
		"no rights to the keys": {[]string{"rights", "locks"}, `may not use: keys "fairlock:*"`, func(t *testing.T) string {
			return acl(t, redistest.Start(t), "~other:* &* +@all")
		}},
		"a replica": {[]string{"role", "locks"}, "this is a replica", func(t *testing.T) string {
			host, port, _ := strings.Cut(redistest.StartTCP(t).Addr(), ":")
			return serverURL(redistest.Start(t, "--replicaof", host, port))
		}},
		"keys are evicted": {[]string{"eviction"}, "allkeys-lru", func(t *testing.T) string {
			return serverURL(redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
		}},
		"a full server": {[]string{"locks", "memory"}, "OOM", func(t *testing.T) string {
			return serverURL(redistest.Start(t, "--maxmemory", "1kb", "--maxmemory-policy", "noeviction"))
		}},
		"somebody else's key": {[]string{"leftovers"}, `"fairlock:{x}:lock" is a list`, func(t *testing.T) string {
			s := redistest.Start(t)
			require.NoError(t, s.Client().LPush(t.Context(), lua.MutexKeys("fairlock", "x").Lock, 1).Err())
			return serverURL(s)
		}},
		"an old server": {[]string{"version", "rights", "locks"}, "Redis 6.0.16; SET … GET", old},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := examine(t, 1, c.server(t))
			assert.Equal(t, c.problems, e.of(doctor.Problem))
			assert.Equal(t, len(c.problems), e.Problems)
			var all []string
			for _, check := range e.Checks {
				all = append(all, check.Found)
				if check.Result == string(doctor.Problem) {
					assert.NotEmpty(t, check.Advice)
				}
			}
			assert.Contains(t, strings.Join(all, "\n"), c.says)
		})
	}
}

// The old server's clock is years behind, which is no problem of locks.
func TestDoctorReadsTheServersClock(t *testing.T) {
	t.Parallel()
	e := examine(t, 1, old(t))
	result, found := e.result("clock")
	assert.Equal(t, "warning", result)
	assert.Regexp(t, `^the server's clock is \d+ s behind this machine's, ± .*; locks do not mind$`, found)
}

// What a service forbids to look at is no problem.
func TestDoctorWithoutCONFIGAndINFO(t *testing.T) {
	t.Parallel()
	blind := []string{"eviction", "memory", "persistence", "replicas", "min-replicas"}
	forbidden := redistest.Start(t)
	e := examine(t, 0, acl(t, forbidden, "~* &* +@all -config -info"))
	assert.Equal(t, blind, e.of(doctor.Unchecked))
	_, found := e.result("eviction")
	assert.Equal(t, "maxmemory-policy: CONFIG and INFO are refused (NOPERM)", found)

	renamed := redistest.Start(t, "--rename-command", "CONFIG", "", "--rename-command", "INFO", "hidden")
	e = examine(t, 0, serverURL(renamed))
	assert.Equal(t, blind, e.of(doctor.Unchecked))
	result, found := e.result("version")
	assert.Equal(t, "ok", result, "HELLO tells that")
	assert.Regexp(t, `^Redis \d`, found)
}

func TestDoctorOutOfReachExitsWith69(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	wrong := strings.Replace(acl(t, s, "+@all"), "secret", "mistaken", 1)
	for _, c := range []struct{ url, says, advice string }{
		{wrong, "WRONGPASS", "password"},
		{"unix:///nowhere/redis.sock", "no such file", "address"},
	} {
		e := examine(t, exitUnreachable, c.url)
		require.Equal(t, []string{"reachable"}, e.of(doctor.Problem))
		assert.Contains(t, e.Checks[0].Found, c.says)
		assert.Contains(t, e.Checks[0].Advice, c.advice)
	}
	r := call(t, wrong, "doctor")
	assert.Equal(t, exitUnreachable, r.code)
	assert.Contains(t, r.out, "problem    reachable")
	assert.NotContains(t, r.out+r.errs, "mistaken")
}

func TestDoctorCalledWrongly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for why, args := range map[string][]string{
		"extra":     {"extra"},
		"--jsno":    {"--jsno"},
		"URL":       {"--redis", "http://localhost"},
		"Namespace": {"--namespace", "a{b"},
	} {
		refused(t, call(t, serverURL(s), append([]string{"doctor"}, args...)...), exitUsage, why)
	}
}

// Each master of a cluster is checked, with locks that live on it; and the line of rights has what a cluster needs more.
func TestDoctorOnACluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 2).Masters
	url := serverURL(nodes[0]) + "?cluster=true"
	e := examine(t, 0, url)
	assert.Len(t, e.Checks, 2*len(doctor.Checks()))
	servers := map[string]bool{}
	for _, c := range e.Checks {
		servers[c.Server] = true
		if c.Check == "locks" || c.Check == "cluster" {
			assert.Equal(t, "ok", c.Result, c.Found)
		}
	}
	assert.Equal(t, map[string]bool{nodes[0].Addr(): true, nodes[1].Addr(): true}, servers)
	for _, n := range nodes {
		assert.Zero(t, n.Client().DBSize(t.Context()).Val())
		assert.Positive(t, calls(t, n.Client(), "evalsha"), "it had a lock to keep")
	}

	assert.Equal(t, doctor.ACLLine("fairlock", "fairlock")+" +cluster|slots", e.ACL)
	rules := strings.Join(strings.Fields(e.ACL)[6:], " ")
	for _, n := range nodes {
		acl(t, n, rules)
	}
	e = examine(t, 0, strings.Replace(url, "://", "://somebody:secret@", 1))
	assert.Zero(t, e.Problems)

	e = examine(t, 1, serverURL(nodes[0]))
	_, found := e.result("cluster")
	assert.Contains(t, found, "node of a cluster")

	nodes[1].Kill()
	e = examine(t, 1, url)
	assert.Len(t, e.Checks, 2*len(doctor.Checks()))
	for _, c := range e.Checks {
		assert.Equal(t, c.Server == nodes[1].Addr() && c.Check == "reachable", c.Result == string(doctor.Problem), c.Found)
	}
}

func TestDoctorByASentinel(t *testing.T) {
	t.Parallel()
	primary := redistest.StartTCP(t)
	sentinel := "redis://" + sentinelOf(t, primary)
	e := examine(t, 0, sentinel+"?master_name=main")
	assert.Zero(t, e.Problems)
	result, _ := e.result("locks")
	assert.Equal(t, "ok", result)
	assert.Zero(t, primary.Client().DBSize(t.Context()).Val())

	e = examine(t, 1, sentinel)
	_, found := e.result("role")
	assert.Contains(t, found, "Sentinel")
}

// calls is how often the server has run a command.
func calls(t *testing.T, rdb *redis.Client, command string) int {
	t.Helper()
	text, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, rest, _ := strings.Cut(text, "cmdstat_"+command+":calls=")
	number, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(number)
	return n
}

// old is a server that says it is Redis 6.0.16, and can do next to nothing else.
func old(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return "redis://" + l.Addr().String()
}

// answer answers requests until the connection is closed.
func answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		args, err := request(r)
		if err != nil {
			return
		}
		reply := "-ERR unknown command '" + args[0] + "'\r\n"
		switch strings.ToLower(args[0]) {
		case "hello":
			reply = "*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.0.16\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
		case "ping":
			reply = "+PONG\r\n"
		case "time":
			reply = "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// request reads one array of strings.
func request(r *bufio.Reader) ([]string, error) {
	length := func(kind byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != kind {
			return 0, fmt.Errorf("want %c: %q", kind, line)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := length('*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := length('$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	return args, nil
}

func TestProgressIsShownOnATerminalAfterASecond(t *testing.T) {
	var b strings.Builder
	p := &progress{out: &b, on: true, width: func() int { return 12 }, from: time.Now().Add(time.Minute)}
	p.show("too soon")
	assert.Empty(t, b.String())
	p.from = time.Now()
	p.show("checking x")
	p.show("checking the next one")
	p.clear()
	p.show("too late")
	p.clear()
	assert.Equal(t, "\r\x1b[Kchecking x\r\x1b[Kchecking t…\r\x1b[K", b.String())
	b.Reset()
	newProgress(&b).clear()
	(&progress{out: &b}).show("not a terminal")
	assert.Empty(t, b.String())
}
