//go:build unix

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/doctor"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// What an operator asks at three in the morning, question by question.

// kindWords are the words of run for each kind of lock.
var kindWords = []string{"x", "x --kind semaphore --permits 2", "x --kind rw --read"}

// A holder that has lost its Redis is seen to have missed renewals, long before its lease ends.
func TestStatus_TellsWhetherTheHolderIsAlive(t *testing.T) {
	f := newFixture(t)
	linked, link := f.linked()
	for _, words := range kindWords {
		linked.run(words+" --ttl 1m --label worker", "echo up; cat").expect("up\n")
	}
	shown := f.done("status", "x")
	require.Equal(t, 3, strings.Count(shown, "ago, every 20s"), shown)
	short := linked.run("y --ttl 8s --label worker", "echo up; cat")
	short.expect("up\n")
	link.Cut()
	f.until("a renewal is missed", func() bool { return strings.Contains(f.done("status", "y"), "s, 1 missed  ") })
	f.until("another one", func() bool { return strings.Contains(f.done("list"), "s, 2 missed  ") })
	type holder struct {
		Missed  int `json:"renewals_missed"`
		Renewed int `json:"renewed_ms"`
		TTL     int `json:"ttl_ms"`
	}
	h := decode[[]struct{ Holders []holder }](t, f.done("status", "y", "--json"))[0].Holders[0]
	assert.GreaterOrEqual(t, h.Missed, 2)
	assert.Equal(t, []any{8000, true}, []any{h.TTL, h.Renewed > 8000/3})
}

// The lock of a fairlock that was killed is not left for the rest of its TTL, an hour: the guard gives it back, once CMD is dead.
// It has the password, which stands neither in its arguments nor in its environment.
func TestRun_GuardGivesTheLockBack(t *testing.T) {
	f := newFixture(t)
	c := f.client("")
	url := login(t, f.server, f.namespace, "~* &* +@all")
	for words, next := range map[string]func(context.Context) (*fairlock.Lease, error){
		kindWords[0]: c.Mutex("x").Lock, kindWords[1]: permits(c.Semaphore("x", 2)), kindWords[2]: c.RWMutex("x").Lock,
	} {
		t.Run(words, func(t *testing.T) {
			f := f.in(t).at(url)
			ps := f.processes()
			r := f.run(words+" --ttl 1h", "exec 3>$D/processes; trap '' TERM; sleep 600 & echo up; wait")
			r.expect("up\n")
			r.signal(syscall.SIGKILL)
			f.hold(next)
			require.False(t, ps.alive(), "CMD is alive when another client has the lock")
		})
	}
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
	for words, want := range map[string]string{
		"x --try": "^fairlock: x is busy, held by " + name + age, "x --wait 200ms": "^fairlock: timed out after 200ms waiting for x, held by " + name + age,
	} {
		require.Regexp(t, want, f.run(words, "true").wait().errs)
	}
	got := f.run("x --verbose --wait 2500ms", "true").wait() // it could say so twice
	require.Regexp(t, `^fairlock: mutex x: waiting for 1s, position 1 of 1, held by `+name+` for \d+(\.\d)?m?s\nfairlock: timed out [^\n]+\n$`, got.errs)
}

func TestRelease_OneHolderOfTheRightKind(t *testing.T) {
	f := newFixture(t)
	c := f.client("api")
	one, two := f.hold(permits(c.Semaphore("x", 4))), f.hold(permits(c.Semaphore("x", 4)))
	refused(t, f.call("release", "x", "--force", "--yes"), exitUsage, "mutex x is not held, semaphore x is: say --kind semaphore")
	refused(t, f.call("release", "x", "--kind", "rw", "--force", "--yes"), exitUsage, "rw x is not held, semaphore x is: say --kind semaphore")
	refused(t, f.call("release", "free", "--force", "--yes", "--fence", "5"), exitFailure, "mutex free has no holder with fence 5")
	refused(t, f.run("x --kind semaphore --permits 4 --try", "true").wait(), exitBusy, " and 1 other\n")
	refused(t, f.run("x --kind semaphore --permits 3", "true").wait(), exitFailure, "x has 4 permits, not 3: --permits must be the same for all who use it")
	require.NoError(t, f.server.Client().Set(t.Context(), f.namespace+":{other}:lock", "x", time.Minute).Err())
	refused(t, f.run("other --try", "true").wait(), exitBusy, "other is busy, held by a key that is not fairlock's\n")
	words := []string{"release", "x", "--kind", "semaphore", "--force", "--yes", "--fence"}
	refused(t, f.call(append(words, "1")...), exitFailure, "semaphore x has no holder with fence 1")
	shown := f.done(append(words, fmt.Sprint(two.Fence()))...)
	require.Contains(t, shown, fmt.Sprintf("was taken from api ×2 (fence %d); now held by api ×2 (fence %d)", two.Fence(), one.Fence()))
	require.NoError(t, one.Renew(t.Context()))
	require.ErrorIs(t, two.Unlock(t.Context()), fairlock.ErrLost)
}

func TestConnection_WrongServer(t *testing.T) {
	f := newFixture(t)
	primary := redistest.StartTCP(t)
	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	p := f
	p.server = primary
	p.hold(p.client("web-1").Mutex("x").Lock)
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	f.until("the replica has the lock", func() bool {
		return strings.Contains(replica.Client().Info(t.Context(), "keyspace").Val(), "db0:")
	})
	on := f.at("unix://" + replica.Addr())
	for _, words := range []string{"status x", "list", "watch x --plain"} {
		refused(t, on.call(strings.Fields(words)...), exitUnreachable, replica.Addr()+" is a replica, and may be behind: name the primary, or say --allow-replica")
	}
	for _, words := range []string{"release x --force --yes", "run x --try -- true", "bench", "demo --redis " + on.url} {
		refused(t, on.call(strings.Fields(words)...), exitUnreachable, replica.Addr()+" is a replica: name the primary\n")
	}
	watch := p.at("redis://" + primary.Addr()).command()
	watch.Path, watch.Args = "/bin/sh", []string{"sh", "-c", "exec " + program + " watch x --plain 2>&1"}
	watched := p.start(watch)
	watched.expect("holders: web-1")
	require.NoError(t, primary.Client().Do(t.Context(), "REPLICAOF", host, fmt.Sprint(redistest.FreePort(t))).Err())
	watched.expect(primary.Addr() + " is a replica, and may be behind")
	for _, words := range []string{"status x", "list"} {
		shown := on.done(append(strings.Fields(words), "--allow-replica")...)
		require.Regexp(t, `^\S+ \(a replica, which may be behind\), namespace `+f.namespace+`, `, shown)
		require.Contains(t, shown, "web-1")
	}

	config, sentinel := filepath.Join(t.TempDir(), "sentinel.conf"), fmt.Sprint(redistest.FreePort(t))
	require.NoError(t, os.WriteFile(config, []byte("port "+sentinel+"\nsentinel monitor main "+host+" "+port+" 1\n"), 0o600))
	server := exec.Command("redis-server", config, "--sentinel")
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	f.until("the Sentinel answers", func() bool {
		conn, err := net.Dial("tcp", "localhost:"+sentinel)
		return err == nil && conn.Close() == nil
	})
	for _, words := range []string{"status x", "run x -- true"} {
		refused(t, f.at("redis://localhost:"+sentinel).call(strings.Fields(words)...), exitUsage, "localhost:"+sentinel+" is a Sentinel")
	}
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	hung := f.at("redis://localhost:" + sentinel + "?master_name=main")
	began := time.Now()
	refused(t, hung.run("x --wait 300ms", "true").wait(), exitTimeout, "timed out after 300ms waiting for x: Redis has not answered")
	assert.Less(t, time.Since(began), 4*time.Second, "closing the client takes 5 s")
	require.Contains(t, f.at("unix://"+f.server.Addr()+"?db=1").done("list"), f.server.Addr()+", database 1, namespace ")

	// A fairlock within CMD does not fall back to localhost.
	inner := []string{"run", "x", "--", program, "run", "y", "--", "echo", "in"}
	refused(t, f.call(inner...), exitUsage, "the fairlock run around this one does not tell its server")
	require.Equal(t, "in\n", f.done(append([]string{"run", "--pass-redis"}, inner[1:]...)...))
	require.Equal(t, "in\n", f.done("run", "x", "--", "sh", "-c", "FAIRLOCK_REDIS="+f.url+" "+program+" run y -- echo in"))
}

func TestConnection_TLS(t *testing.T) {
	f := newFixture(t)
	dir, port := t.TempDir(), fmt.Sprint(redistest.FreePort(t))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, &cert, &cert, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	file := filepath.Join(dir, "both.pem")
	require.NoError(t, os.WriteFile(file, both, 0o600))
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", file, "--tls-key-file", file, "--tls-auth-clients", "no")
	plain := redistest.StartTCP(t)
	require.Equal(t, "in\n", f.at("rediss://localhost:"+port+"?skip_verify=true").done("run", "x", "--", "echo", "in"))
	for url, why := range map[string]string{
		"redis://localhost:" + port: "; that port speaks TLS: begin the URL with rediss://",
		"rediss://" + plain.Addr():  "; that port does not speak TLS: begin the URL with redis://",
	} {
		refused(t, f.at(url).call("list"), exitUnreachable, why)
		assert.Contains(t, f.at(url).call("doctor").out, why)
		if strings.HasPrefix(url, "rediss:") { // no answer; the other closes the connection
			refused(t, f.at(url).run("x --wait 1s", "true").wait(), exitTimeout, "timed out after 1s waiting for x: "+strings.TrimPrefix(why, "; "))
		}
	}
}

// However Redis hangs, --wait is kept: go-redis would wait for an hour.
func TestRun_WaitsNoLongerThanItMay(t *testing.T) {
	f := newFixture(t)
	m := f.client("web-1").Mutex("x")
	f.hold(m.Lock)
	linked, link := f.linked()
	link.Hang()
	linked = linked.at(linked.url + "?read_timeout=1h&dial_timeout=1h")
	refused(t, linked.run("x --wait 300ms", "true").wait(), exitTimeout, "timed out after 300ms waiting for x: Redis has not answered")
	refused(t, linked.run("x --wait 5500ms", "true").wait(), exitTimeout, "timed out after 5.5s waiting for x: Redis has not answered")
	link.Mend()
	r := linked.run("x --wait 3s", "true")
	f.queued(m, 1)
	last := f.state(m).Waiters[0].TTL
	f.until("it knows that it is queued: a heartbeat has come", func() bool {
		was := last
		last = f.state(m).Waiters[0].TTL
		return last > was
	})
	link.Hang()
	refused(t, r.wait(), exitTimeout, "timed out after 3s waiting for x, held by web-1\n")
}

// Each of the three lines makes a user that can do what it says. (A server of version 6.2 has all channels open by default, and
// refuses rules for some of them then.)
func TestDoctor_Rights(t *testing.T) {
	f := newFixture(t)
	f.server = redistest.Start(t, "--acl-pubsub-default", "allchannels")
	f = f.at("unix://" + f.server.Addr())
	c := f.client("web-1")
	rdb := f.server.Client()
	user := map[string]fixture{}
	for _, r := range append(doctor.RightsIn(f.namespace, false), doctor.RightsIn(f.namespace, true)[1]) {
		words := strings.Fields(strings.Replace(r.ACL, "fairlock-look reset", "old-look reset", map[bool]int{true: 1}[strings.Contains(r.ACL, "+evalsha ")]))
		args := make([]any, len(words))
		for i, word := range words {
			args[i] = word
		}
		require.NoError(t, rdb.Do(t.Context(), args...).Err(), r.ACL)
		user[words[2]] = f.at("unix://" + words[2] + ":password@" + f.server.Addr())
	}
	for _, words := range kindWords {
		require.Equal(t, "in\n", user["fairlock"].done(append(append([]string{"run"}, strings.Fields(words)...), "--", "echo", "in")...))
	}
	look := func(u fixture, name, says string) {
		t.Helper()
		require.Contains(t, u.done("status", name), says)
		require.Contains(t, u.done("list", "--prefix", name), says)
		w := u.start(u.command("watch", "--prefix", name, "--interval", "100ms"))
		w.expect(says)
		w.signal(syscall.SIGTERM)
		require.Equal(t, 0, w.wait().code)
	}
	for i, lock := range []func(context.Context) (*fairlock.Lease, error){c.Mutex("a").Lock, permits(c.Semaphore("b", 2)), c.RWMutex("c").Lock} {
		name, kind := string(rune('a'+i)), []string{"mutex", "semaphore", "rw"}[i]
		lease := f.hold(lock)
		next := make(chan error, 1)
		go func() { _, err := lock(t.Context()); next <- err }()
		f.queued([]interface {
			Inspect(context.Context) (fairlock.State, error)
		}{c.Mutex("a"), c.Semaphore("b", 2), c.RWMutex("c")}[i], 1)
		for _, name := range []string{"fairlock-look", "old-look"} {
			look(user[name], string(rune('a'+i)), "web-1")
			r := user[name].call("release", string(rune('a'+i)), "--kind", kind, "--force", "--yes")
			require.Equal(t, exitUnreachable, r.code, "it may only look: %s", r.errs)
			require.Regexp(t, "can't run this command|ACL failure|NOPERM", r.errs)
		}
		require.Contains(t, user["fairlock-operate"].done("release", name, "--kind", kind, "--force", "--yes"), "now held by web-1")
		require.NoError(t, <-next)
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
		look(user["fairlock-operate"], name, "web-1")
		last := decode[[]seen](t, f.done("status", name, "--json"))[0].Holders[0].Fence
		user["fairlock-operate"].done("release", name, "--kind", kind, "--force", "--yes", "--fence", fmt.Sprint(last))
	}
	require.Contains(t, user["fairlock"].done("status", "a"), "free", "who may lock may look")
	e := user["fairlock"].examine(0, doctor.Problem)
	require.Len(t, e.Rights, 3)
	f.hold(permits(c.Semaphore("lost", 2))) // one of its two keys is lost: the other is searched by HSCAN
	require.NoError(t, rdb.Del(t.Context(), lua.SemaphoreKeys(f.namespace, "lost").Permits).Err())
	refused(t, user["fairlock"].run("lost --kind semaphore --permits 2 --wait 300ms", "true").wait(), exitTimeout, "timed out after 300ms waiting for lost, nobody is granted it for ")
	require.Contains(t, user["fairlock-look"].done("status", "lost"), "quarantined")

	// Without SCAN, watch says so once.
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "fairlock-look", "-scan").Err())
	cmd := user["fairlock-look"].command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" watch --interval 100ms 2>&1`, program}
	w := user["fairlock-look"].start(cmd)
	w.expect("\n")
	require.Regexp(t, `^fairlock: NOPERM [^\n]*'scan'[^\n]*; trying on$`, w.expect("\n"))
	f.until("it has searched again", func() bool {
		return strings.Contains(redistest.Info(t, rdb, "commandstats", "cmdstat_scan"), "rejected_calls=3")
	})
	w.signal(syscall.SIGTERM)
	require.Equal(t, result{}, w.wait())
}

func TestList_Suggests(t *testing.T) {
	f := newFixture(t)
	refused(t, f.call("list", "foo"), exitUsage, "did you mean fairlock status foo or fairlock list --prefix foo?")
	require.Contains(t, f.done("help"), "  man ")
}
