//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/doctor"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

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
	for name, c := range map[string]struct{ env, words string }{
		"in FAIRLOCK_REDIS":                      {envRedis + "=" + whole(plain), ""},
		"in --redis":                             {envRedis + "=unix:///no/such/socket", "--redis " + whole(plain)},
		"in --redis=":                            {"", "--redis=" + whole(plain)},
		"in a variable":                          {"MINE=" + whole(plain), "--redis env:MINE"},
		"in FAIRLOCK_REDIS_PASSWORD":             {envPassword + "=secret", "--redis " + plain},
		"the same, with a user in the URL":       {envPassword + "=secret", "--redis " + strings.Replace(plain, "://", "://default@", 1)},
		"in a file, before the variable":         {envPassword + "=wrong", "--redis " + plain + " --password-file " + files + "/password"},
		"in the URL, before the one in the file": {envRedis + "=" + whole(plain), "--password-file " + files + "/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.in(t).with(c.env).run("x "+c.words+" --kind rw --read", script).wait()
			require.Zero(t, r.code, r.errs)
			assert.Contains(t, r.out, "FAIRLOCK_FENCE=")
			assert.Contains(t, r.out, guardName)
			assert.Contains(t, r.out, "run x")
			for _, secret := range []string{"secret", "FAIRLOCK_REDIS=", "FAIRLOCK_REDIS_PASSWORD=", "MINE="} {
				assert.NotContains(t, r.out, secret)
			}
		})
	}
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
		cleaned, env, found := withoutPassword(append([]string{"fairlock"}, strings.Fields(line)...), []string{"A=1", envRedis + "=old"})
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
	} {
		target, err := (&connection{redis: url}).target()
		require.NoError(t, err)
		require.Equal(t, want, target.plain())
		rdb, err := target.client()
		require.NoError(t, err, url)
		_, cluster := rdb.(*redis.ClusterClient)
		require.Equal(t, strings.Contains(url, "cluster") || strings.Contains(url, "addr"), cluster)
		require.NoError(t, rdb.Close())
	}
}

// rules are those of a line of rights, without the user and its password.
func rules(acl string) string { return strings.Join(strings.Fields(acl)[6:], " ") }

// user gives a user rights on a server, and returns the URL by which it connects.
func user(t *testing.T, s *redistest.Server, name, rules string) (url string) {
	t.Helper()
	args := []any{"acl", "setuser", name, "reset", "on", ">secret"}
	for rule := range strings.FieldsSeq(rules) {
		args = append(args, rule)
	}
	require.NoError(t, s.Client().Do(t.Context(), args...).Err())
	return strings.Replace(s.Network(), "tcp", "redis", 1) + "://" + name + ":secret@" + s.Addr()
}

func TestConnection_RedisIsAwayOrRefuses(t *testing.T) {
	f := newFixture(t)
	plain := guarded(t)
	replica := "unix://" + redistest.Start(t, "--replicaof", "127.0.0.1 1").Addr()
	_, hung := f.linked()
	hung.Hang()
	for name, c := range map[string]struct{ url, why, words string }{
		"no socket":          {"unix:///no/such/socket", "no such file", ""},
		"nobody listens":     {"redis://127.0.0.1:1", "refused", ""},
		"watch":              {"redis://127.0.0.1:1", "refused", "watch"},
		"demo":               {"", "refused", "demo --redis redis://127.0.0.1:1"},
		"it hangs":           {"unix://" + hung.Addr(), "no answer within 5s", ""},
		"no password":        {plain, "NOAUTH", ""},
		"wrong password":     {strings.Replace(plain, "://", "://:secretive@", 1), "WRONGPASS", ""},
		"not a cluster":      {whole(plain) + "?cluster=true", "cluster", ""},
		"no such database":   {whole(plain) + "/99", "DB", ""},
		"a replica":          {replica, "READONLY", ""},
		"no rights to keys":  {user(t, f.server, f.namespace, "~other:* +@all"), "NOPERM", ""},
		"no rights to lists": {user(t, f.server, f.namespace+"-list", "~* +@all -scan"), "'scan'", "list"},
	} {
		t.Run(name, func(t *testing.T) {
			f := f.in(t).at(c.url)
			if c.words == "" {
				c.words = "run x -- true"
			}
			refused(t, f.call(strings.Fields(c.words)...), exitUnreachable, c.why)
		})
	}
}

// All commands work on a cluster as a whole, and say so if they were connected to one of its nodes only.
func TestConnection_Cluster(t *testing.T) {
	f := newFixture(t)
	cluster := redistest.StartCluster(t, 2)
	first, second := cluster.Masters[0], cluster.Masters[1]
	node := "redis://" + first.Addr()
	f = f.at(node + "?cluster=true")
	one := f.at(node)
	const here, there = "b", "a" // their slots are 3300 and 15495

	e := f.examine(0, doctor.Problem)
	require.Len(t, e.Checks, 2*len(doctor.Checks()))
	assert.Equal(t, doctor.ACLLine("fairlock", f.namespace)+" +cluster|slots", e.ACL)
	user(t, first, "somebody", rules(e.ACL))
	user(t, second, "somebody", rules(e.ACL))
	limited := f.at(strings.Replace(f.url, "://", "://somebody:secret@", 1))
	limited.examine(0, doctor.Problem) // the line of rights suffices
	require.Contains(t, one.call("doctor").out, "problem    cluster")

	runs := map[string]*running{
		here:  f.at(node+"?addr="+second.Addr()).run(here, "echo up; cat"),
		there: limited.run(there, "echo up; cat"),
	}
	for _, r := range runs {
		r.expect("up\n")
	}
	listed := decode[[]seen](t, f.done("list", "--json"))
	require.Equal(t, []string{"a", "b"}, []string{listed[0].Name, listed[1].Name})
	require.Contains(t, f.done("status", there), "held")
	require.Contains(t, one.done("status", here), "held")
	const why = "as that of a cluster (see help connection)"
	refused(t, one.call("status", there), exitUsage, why)
	refused(t, one.call("run", there, "--", "true"), exitUsage, why)
	refused(t, one.call("list"), exitUsage, why)
	require.Equal(t, 0, runs[there].wait().code)

	second.Pause() // it is not asked for the locks of the other one
	require.Equal(t, result{}, f.call("run", here, "--kind", "rw", "--", "true"))
	second.Continue()
	second.Kill()
	r := f.call("list")
	require.Equal(t, exitUnreachable, r.code)
	require.Regexp(t, `^fairlock: [^\n]+\n$`, r.errs)
	require.Contains(t, r.out, " "+here+"\n", "what the other one has")
	e = f.examine(exitFailure, doctor.Problem, "reachable")
	require.True(t, slices.ContainsFunc(e.Checks, func(f doctor.Finding) bool {
		return f.Result == doctor.Problem && f.Server == second.Addr()
	}))
	require.Equal(t, 0, runs[here].wait().code)
}
