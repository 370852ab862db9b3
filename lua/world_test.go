package lua_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// What a test uses unless it says otherwise. The lease is longer than the waiter TTL, so that it shows which of the two
// bounds what a waiter is given.
const (
	ttl       = 60 * time.Second
	waiterTTL = 45 * time.Second
	day       = 24 * time.Hour
	ns        = "ns"
)

// world is one lock on one back end, and what a test does to it.
type world struct {
	t    *testing.T
	rdb  *redis.Client
	lock lua.Lock
	keys lua.Keys
	real *redistest.Server    // nil in memory
	mini *miniredis.Miniredis // nil on a real server
	made int                  // tokens so far
}

// backends are what every promise holds on.
var backends = []struct {
	name  string
	start func(*testing.T) *world
}{
	{"redis", real},
	{"miniredis", memory},
}

func real(t *testing.T) *world {
	t.Helper()
	s := redistest.Start(t)
	return newWorld(t, &world{real: s, rdb: s.Client()})
}

func memory(t *testing.T) *world {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{
		Addr:        "127.0.0.1:6379", // for show
		Dialer:      func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		ReadTimeout: time.Minute, // what a slow machine has not answered yet is not to be asked again
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return newWorld(t, &world{mini: m, rdb: rdb})
}

func newWorld(t *testing.T, w *world) *world {
	t.Helper()
	w.t, w.lock, w.keys = t, lua.Mutex(w.rdb, ns, "name"), lua.MutexKeys(ns, "name")
	return w
}

// everywhere runs a test on every back end.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b.start(t))
		})
	}
}

// numbered returns a token that is the same in every run.
func numbered(client string, n int) token.Token {
	t, err := token.Parse(fmt.Sprintf("%s:%021dA", client, n))
	if err != nil {
		panic(err)
	}
	return t
}

// token returns a new one of the client "c".
func (w *world) token() token.Token {
	w.made++
	return numbered("c", w.made)
}

// ask asks, with the usual durations where a gives none, and with a new token if it gives none.
func (w *world) ask(a lua.Request) (lua.Reply, error) {
	if a.Token.IsZero() {
		a.Token = w.token()
	}
	if a.TTL == 0 {
		a.TTL = ttl
	}
	if a.WaiterTTL == 0 {
		a.WaiterTTL = waiterTTL
	}
	return w.lock.Acquire(context.Background(), a)
}

func (w *world) acquire(a lua.Request) lua.Reply {
	w.t.Helper()
	answer, err := w.ask(a)
	require.NoError(w.t, err)
	return answer
}

// hold takes the lock with a new token.
func (w *world) hold() token.Token {
	w.t.Helper()
	t := w.token()
	require.Equal(w.t, lua.Granted, w.acquire(lua.Request{Token: t}).Outcome)
	return t
}

// join puts n new waiters into the queue.
func (w *world) join(n int) []token.Token {
	w.t.Helper()
	all := make([]token.Token, n)
	for i := range all {
		all[i] = w.token()
		require.Equal(w.t, lua.Queued, w.acquire(lua.Request{Token: all[i]}).Outcome)
	}
	return all
}

func (w *world) release(t token.Token) lua.Handoff {
	w.t.Helper()
	h, err := w.lock.Release(w.t.Context(), t, ttl)
	require.NoError(w.t, err)
	return h
}

func (w *world) leave(t token.Token, bury time.Duration) lua.Handoff {
	w.t.Helper()
	h, err := w.lock.Leave(w.t.Context(), t, ttl, bury)
	require.NoError(w.t, err)
	return h
}

func (w *world) forceRelease() lua.Handoff {
	w.t.Helper()
	h, err := w.lock.ForceRelease(w.t.Context(), ttl, 1<<53)
	require.NoError(w.t, err)
	return h
}

func (w *world) heartbeat(tokens ...token.Token) lua.HeartbeatReply {
	w.t.Helper()
	p, err := w.lock.Heartbeat(w.t.Context(), ttl, waiterTTL, tokens)
	require.NoError(w.t, err)
	return p
}

func (w *world) renew(t token.Token, ttl time.Duration, fence uint64) (uint64, bool) {
	w.t.Helper()
	f, ok, err := w.lock.Renew(w.t.Context(), t, ttl, fence)
	require.NoError(w.t, err)
	return f, ok
}

func (w *world) inspect(limit int) lua.Snapshot {
	w.t.Helper()
	s, err := w.lock.Inspect(w.t.Context(), limit)
	require.NoError(w.t, err)
	return s
}

// grants checks who was granted the lock, in order, and returns the grants.
func (w *world) grants(h lua.Handoff, to ...token.Token) []lua.Grant {
	w.t.Helper()
	var got []token.Token
	for _, g := range h.Grants {
		got = append(got, g.Token)
	}
	require.Equal(w.t, to, got, "granted")
	return h.Grants
}

// do sends a command of the test's own.
func (w *world) do(args ...any) any {
	w.t.Helper()
	reply, err := w.rdb.Do(w.t.Context(), args...).Result()
	if err != redis.Nil { //nolint:errorlint // as go-redis returns it
		require.NoError(w.t, err, "%v", args)
	}
	return reply
}

// expire ends the holder's lease, as its TTL would.
func (w *world) expire() {
	w.t.Helper()
	w.do("DEL", w.keys.Lock)
}

// kill expires waiters, as time would.
func (w *world) kill(waiters ...token.Token) {
	w.t.Helper()
	for _, t := range waiters {
		w.do("ZADD", w.keys.Alive, "XX", w.now().Add(-time.Second).UnixMicro(), short(t))
	}
}

func (w *world) now() time.Time {
	w.t.Helper()
	now, err := w.rdb.Time(w.t.Context()).Result()
	require.NoError(w.t, err)
	return now
}

// freeze stops the clock of a server in memory and returns its time.
func (w *world) freeze() time.Time {
	now := time.UnixMicro(time.Now().UnixMicro())
	w.mini.SetTime(now)
	return now
}
