package fairlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// These tests need more than one redis-server, or one that they configure.

// onlyFences fails the test if anything but fences, and clocks of empty queues, is left on a server.
func onlyFences(t *testing.T, rdb *redis.Client) {
	t.Helper()
	all, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range all {
		assert.True(t, strings.HasSuffix(key, ":number") || strings.HasSuffix(key, ":heartbeats"), key)
	}
}

// inOrder has the lock go through the queue.
func inOrder(t *testing.T, held *fairlock.Lease, queue []*acquisition) {
	t.Helper()
	for i, q := range queue {
		for _, waiting := range queue[i:] {
			assert.True(t, waiting.pending())
		}
		unlock(t, held)
		next := q.granted(t)
		assert.Greater(t, next.Fence(), held.Fence())
		held = next
	}
	unlock(t, held)
}

// The locks are on all masters, and every waiter is notified of its grant, whatever master the subscription is on.
//
//fairlock:promise Cluster: locks on all masters are fair, and notifications arrive wherever the subscription is
func TestCluster_WaitersInOrder(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	var clients []*fairlock.Client
	for range 2 {
		c, j := listening(t, cluster.Client(), timeless(t))
		clients = append(clients, c)
		t.Cleanup(func() { j.assertHandoffs(t) })
	}
	for n := range 6 {
		name := fmt.Sprintf("lock %d", n)
		held := hold(t, clients[0].Mutex(name).Lock)
		var queue []*acquisition
		for i := range 4 {
			queue = append(queue, join(t, clients[0].Mutex(name), clients[i%2].Mutex(name).Lock))
		}
		inOrder(t, held, queue)
	}
	for _, m := range cluster.Masters {
		onlyFences(t, m.Client())
	}
}

// The primary becomes a replica, new connections lead to the new primary, and open ones stay. go-redis closes them
// after an error that begins with READONLY, which that of a script of Redis 6.2 and KeyDB does not.
//
//fairlock:fault The primary becomes a replica that keeps its connections: a holder, a waiter and a Ping go on at the new primary within a second, whatever words the server has for that
func TestFailover_ReplicaKeepsConnections(t *testing.T) {
	t.Parallel()
	for version, wrap := range map[string]func(net.Conn) net.Conn{
		"7":             func(c net.Conn) net.Conn { return c },
		"6.2 and KeyDB": func(c net.Conn) net.Conn { return wordsOf62{c} },
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			primary := redistest.StartTCP(t)
			host, port, err := net.SplitHostPort(primary.Addr())
			require.NoError(t, err)
			replica := redistest.Start(t, "--replicaof", host, port)
			var charge atomic.Pointer[redistest.Server] // to which clients connect
			charge.Store(primary)
			rdb := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				s := charge.Load()
				c, err := new(net.Dialer).DialContext(ctx, s.Network(), s.Addr())
				return wrap(c), err
			}})
			t.Cleanup(func() { _ = rdb.Close() })
			c := newClient(t, rdb, fairlock.Config{})
			held := hold(t, c.Mutex("x").Lock)
			next := join(t, c.Mutex("x"), c.Mutex("x").Lock)
			require.NoError(t, c.Ping(t.Context()))
			primary.Replicated(replica)
			require.NoError(t, replica.Client().Do(t.Context(), "replicaof", "no", "one").Err())
			require.NoError(t, primary.Client().Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
			charge.Store(replica)
			began := time.Now()
			require.NoError(t, held.Renew(t.Context()))
			unlock(t, held)
			unlock(t, next.granted(t))
			until(t, func() bool { return c.Ping(t.Context()) == nil })
			assert.Less(t, time.Since(began), time.Second+slack)
		})
	}
}

// wordsOf62 is a connection to a server that says in the words of Redis 6.2 that a command of a script is refused.
type wordsOf62 struct{ net.Conn }

var (
	refusedInScript = regexp.MustCompile(`-(READONLY [^\r]*) script: (\w+), on (@user_script:(\d+))\.`)
	callsProtected  = regexp.MustCompile(`\$(\d+)\r\n(local r = redis\.pcall)`)
)

// pcallOf62 has redis.pcall return the words of Redis 6.2.
const pcallOf62 = `local redis = {error_reply = redis.error_reply, pcall = function(...)
	local r = redis.pcall(...)
	return type(r) == 'table' and {err = '@user_script: 1: -' .. r.err} or r
end} `

func (c wordsOf62) Write(p []byte) (int, error) {
	_, err := c.Conn.Write(callsProtected.ReplaceAllFunc(p, func(b []byte) []byte {
		m := callsProtected.FindSubmatch(b)
		length, _ := strconv.Atoi(string(m[1]))
		return fmt.Appendf(nil, "$%d\r\n%s%s", length+len(pcallOf62), pcallOf62, m[2])
	}))
	return len(p), err
}

func (c wordsOf62) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:len(p)/2])
	return copy(p, refusedInScript.ReplaceAll(p[:n],
		[]byte("-ERR Error running script (call to f_$2): $3: @user_script: $4: -$1"))), err
}

// After a restart with its data, the queue goes on.
//
//fairlock:fault CLIENT KILL, SCRIPT FLUSH, a pause, a restart with or without persistence
func TestServer_RestartWithPersistence(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	m := newClient(t, s.Client(), lasting).Mutex("x")
	held := hold(t, m.Lock)
	queue := []*acquisition{join(t, m, m.Lock), join(t, m, m.Lock), join(t, m, m.Lock)}
	s.Shutdown()
	s.Run()
	inOrder(t, held, queue)
}

// as returns a redis-server of its own, on which the clients of the test have these rights.
func as(t *testing.T, rules []string) *server {
	t.Helper()
	own := redistest.Start(t)
	user := own.User("billing", rules...)
	return &server{t: t, namespace: "fairlock", root: own.Client(), rdb: func() *redis.Client {
		rdb := redis.NewClient(user)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}}
}

// aclLine returns the rules of the ACL line in docs/operating.md, which a test of package doctor compares with this.
func aclLine() []string { return strings.Fields(doctor.RightsIn("fairlock", false)[0].ACL)[7:] }

// With the rights of the ACL line everything works, notifications included.
//
//fairlock:fault The user lacks rights
func TestACLLine_Suffices(t *testing.T) {
	t.Parallel()
	s := as(t, aclLine())
	for _, c := range scenarios(t) {
		c.play(t, s)
	}
}

// Ping fails on a primary that has become a replica, on a full server, on one that lacks a command, and for a user who
// lacks rights; it names the command that is refused. With the rights of the ACL line it succeeds.
//
//fairlock:promise Ping
func TestClient_PingIsRefused(t *testing.T) {
	t.Parallel()
	s := as(t, aclLine())
	c := s.client(fairlock.Config{})
	do := func(args ...any) { require.NoError(t, s.root.Do(t.Context(), args...).Err()) }
	require.NoError(t, c.Ping(t.Context()))
	for _, r := range []struct {
		begin, end []any
		refused    bool
		text       string
	}{
		{[]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}, false,
			`SET "fairlock:{ping}:absent": READONLY`},
		{[]any{"config", "set", "maxmemory", 1}, []any{"config", "set", "maxmemory", 0}, true,
			`SET "fairlock:{ping}:absent": OOM`},
		{[]any{"acl", "setuser", "billing", "resetkeys"}, []any{"acl", "setuser", "billing", "~fairlock:*"}, true,
			`key "fairlock:{ping}:absent": NOPERM`},
	} {
		do(r.begin...)
		err := c.Ping(t.Context())
		require.ErrorContains(t, err, r.text)
		assert.Equal(t, r.refused, errors.Is(err, fairlock.ErrRefused), err)
		do(r.end...)
		require.NoError(t, c.Ping(t.Context()))
	}
	for _, command := range []string{"evalsha", "del", "set", "zadd", "zcard", "pexpire", "hlen", "unlink"} {
		do("acl", "setuser", "billing", "-"+command)
		err := c.Ping(t.Context())
		require.ErrorIs(t, err, fairlock.ErrRefused)
		require.Regexp(t, "(?i)"+command+`[' ]`, err.Error())
		do("acl", "setuser", "billing", "+"+command)
	}
	require.NoError(t, c.Ping(t.Context()))
	lacking := redistest.Start(t, "--rename-command", "ZADD", "")
	require.ErrorContains(t, newClient(t, lacking.Client(), fairlock.Config{}).Ping(t.Context()), `ZADD "`)
}

// A server that has as many clients as it may refuses the connections of a first Lock, which waits until there is room.
// go-redis does not report what the server says then: it takes that for a server without HELLO, goes on, and finds the
// connection closed.
//
//fairlock:fault The server has as many clients as it may (maxclients): Lock waits, and goes on when there is room
func TestServer_MaxClients(t *testing.T) {
	t.Parallel()
	const most = 3
	s := redistest.Start(t, "--maxclients", fmt.Sprint(most))
	var others []*redis.Conn
	for range most {
		others = append(others, s.Client().Conn())
		require.NoError(t, others[len(others)-1].Ping(t.Context()).Err())
	}
	m := newClient(t, s.Client(), fairlock.Config{}).Mutex("x")
	first := begin(t, m.Lock)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := m.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "tried for 1")
	assert.True(t, first.pending())
	require.NoError(t, others[0].ConfigSet(t.Context(), "maxclients", "100").Err())
	unlock(t, first.granted(t))
}

// A connection that cannot be made: all that speaks of it names the cause, though go-redis 9.23 dials five times before
// it does.
//
//fairlock:fault No connection can be made (connection refused, no such host, too many open files): the error of Ping and of Lock and the line of the outage name the cause
func TestOutage_NamesWhyThereIsNoConnection(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		&net.DNSError{Err: "no such host", Name: "redis.internl", IsNotFound: true},
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.EMFILE},
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			rdb := redis.NewClient(&redis.Options{
				ContextTimeoutEnabled: true,
				Dialer:                func(context.Context, string, string) (net.Conn, error) { return nil, cause },
			})
			t.Cleanup(func() { _ = rdb.Close() })
			var log bytes.Buffer
			c := newClient(t, rdb, fairlock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorContains(t, c.Ping(ctx), cause.Error())
			ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := c.Mutex("x").Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, cause.Error())
			begin(t, c.Mutex("x").Lock)
			until(t, func() bool { return !c.Stats().OutageSince.IsZero() })
			require.NoError(t, c.Close()) // nobody writes to log any more
			assert.Regexp(t, "outage begins.*"+regexp.QuoteMeta(cause.Error()), log.String())
		})
	}
}
