package fairlock_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// silent is a Redis that must not be asked.
type silent struct {
	fairlock.Redis
	t *testing.T
}

func (s silent) EvalSha(context.Context, string, []string, ...any) *redis.Cmd {
	s.t.Error("something was sent")
	return redis.NewCmd(context.Background())
}

func TestNewReportsEveryFaultAtOnce(t *testing.T) {
	_, err := fairlock.New(nil, fairlock.Config{
		Namespace: "a{b}", Name: "a b", TTL: time.Millisecond, WaiterTTL: -1, MaxWaiters: -1,
	})
	require.ErrorIs(t, err, fairlock.ErrInvalid)
	for _, field := range []string{"rdb", "Namespace", "Name", "TTL", "WaiterTTL", "MaxWaiters"} {
		require.ErrorContains(t, err, "invalid "+field+":")
	}
	require.ErrorContains(t, err, "10ms")
	var none *redis.Client
	_, err = fairlock.New(none, fairlock.Config{})
	require.ErrorIs(t, err, fairlock.ErrInvalid)
}

func TestConfigBounds(t *testing.T) {
	rdb := silent{t: t}
	year := 365 * 24 * time.Hour
	for _, d := range []time.Duration{10 * time.Millisecond, time.Second, year} {
		_, err := fairlock.New(rdb, fairlock.Config{TTL: d, WaiterTTL: d})
		require.NoError(t, err)
	}
	for _, d := range []time.Duration{-1, 1, 10*time.Millisecond - 1, year + 1, math.MinInt64, math.MaxInt64} {
		for field, cfg := range map[string]fairlock.Config{"TTL": {TTL: d}, "WaiterTTL": {WaiterTTL: d}} {
			_, err := fairlock.New(rdb, cfg)
			var e *fairlock.FieldError
			require.ErrorAs(t, err, &e, "%s %v", field, d)
			assert.Equal(t, field, e.Field)
		}
	}
	for _, cfg := range []fairlock.Config{
		{Namespace: "{"}, {Namespace: "}"}, {Namespace: strings.Repeat("n", 257)}, {Name: "é"}, {Name: "a\n"}, {MaxWaiters: -1},
	} {
		_, err := fairlock.New(rdb, cfg)
		require.ErrorIs(t, err, fairlock.ErrInvalid, "%+v", cfg)
	}
}

func TestBadInputIsAnsweredBeforeAnythingIsSent(t *testing.T) {
	c := newClient(t, silent{t: t}, fairlock.Config{})
	ctx := context.Background()
	never := func(context.Context) error { t.Error("ran"); return nil }
	check := func(name, op string, err error) {
		t.Helper()
		field, _, _ := strings.Cut(name, ",")
		var e *fairlock.FieldError
		require.ErrorAs(t, err, &e, "%s: %s", name, op)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		assert.Equal(t, field, e.Field)
		var wrapped *fairlock.Error
		require.ErrorAs(t, err, &wrapped)
	}
	some, err := token.New("c")
	require.NoError(t, err)
	long := strings.Repeat("x", fairlock.MaxName+1)
	for name, l := range map[string]struct {
		fairlock.Mutex
		fairlock.Semaphore
		fairlock.RWMutex
	}{
		"lock, the zero value": {},
		"name":                 {c.Mutex(""), c.Semaphore("", 1), c.RWMutex("")},
		"name, too long":       {c.Mutex(long), c.Semaphore(long, 1), c.RWMutex(long)},
		"TTL, zero":            {c.Mutex("x").WithTTL(0), c.Semaphore("x", 1).WithTTL(0), c.RWMutex("x").WithTTL(0)},
		"TTL, short":           {c.Mutex("x").WithTTL(1), c.Semaphore("x", 1).WithTTL(1), c.RWMutex("x").WithTTL(1)},
		"TTL, negative":        {c.Mutex("x").WithTTL(-1), c.Semaphore("x", 1).WithTTL(-1), c.RWMutex("x").WithTTL(-1)},
		"TTL, over a year": {
			c.Mutex("x").WithTTL(9000 * time.Hour), c.Semaphore("x", 1).WithTTL(9000 * time.Hour),
			c.RWMutex("x").WithTTL(9000 * time.Hour),
		},
		"MaxWaiters": {
			c.Mutex("x").WithMaxWaiters(-1), c.Semaphore("x", 1).WithMaxWaiters(-1), c.RWMutex("x").WithMaxWaiters(-1),
		},
	} {
		m, s, rw := l.Mutex, l.Semaphore, l.RWMutex
		for op, a := range map[string]ask{
			"Mutex.Lock": m.Lock, "Mutex.TryLock": m.TryLock, "RWMutex.Lock": rw.Lock, "RWMutex.TryLock": rw.TryLock,
			"RLock": rw.RLock, "TryRLock": rw.TryRLock,
			"Acquire":    func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, 1) },
			"TryAcquire": func(ctx context.Context) (*fairlock.Lease, error) { return s.TryAcquire(ctx, 1) },
		} {
			_, err := a(ctx)
			check(name, op, err)
		}
		check(name, "Mutex.Do", m.Do(ctx, never))
		check(name, "Semaphore.Do", s.Do(ctx, 1, never))
		check(name, "RWMutex.Do", rw.Do(ctx, never))
		check(name, "RDo", rw.RDo(ctx, never))
		for kind, l := range map[string]shared{"Mutex": m, "Semaphore": s, "RWMutex": rw} {
			_, err = l.Inspect(ctx)
			check(name, kind+".Inspect", err)
			_, err = l.ForceRelease(ctx)
			check(name, kind+".ForceRelease", err)
			require.NotPanics(t, func() { _, err = l.Resume(ctx, some) }, "%s: %s.Resume", name, kind)
			check(name, kind+".Resume", err)
		}
	}
	for _, permits := range []int{0, -1, math.MinInt, fairlock.MaxPermits + 1, math.MaxInt} {
		s := c.Semaphore("x", permits)
		_, err := s.Acquire(ctx, 1)
		check("permits", "Acquire", err)
		_, err = s.Inspect(ctx)
		check("permits", "Inspect", err)
		_, err = s.ForceRelease(ctx)
		check("permits", "ForceRelease", err)
	}
	for _, n := range []int{0, -1, math.MinInt, 6, fairlock.MaxPermits, math.MaxInt} {
		s := c.Semaphore("x", 5)
		_, err := s.Acquire(ctx, n)
		check("n", "Acquire", err)
		_, err = s.TryAcquire(ctx, n)
		check("n", "TryAcquire", err)
		check("n", "Do", s.Do(ctx, n, never))
	}
	for kind, l := range map[string]shared{
		"Mutex": c.Mutex("x"), "Semaphore": c.Semaphore("x", 5), "RWMutex": c.RWMutex("x"),
	} {
		_, err := l.Resume(ctx, token.Token{})
		check("token", kind+".Resume", err)
	}
	dead, cancel := context.WithCancelCause(ctx)
	cancel(fmt.Errorf("because"))
	_, err = c.Mutex("x").Lock(dead)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "because")
}

func TestTheMostPermitsAreAsExactAsFew(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := b.client(t, fairlock.Config{}).Semaphore("x", fairlock.MaxPermits)
		almost, err := s.Acquire(within(t, soon), fairlock.MaxPermits-1)
		require.NoError(t, err)
		_, err = s.TryAcquire(within(t, soon), 2)
		require.ErrorIs(t, err, fairlock.ErrBusy)
		last, err := s.TryAcquire(within(t, soon), 1)
		require.NoError(t, err)
		assert.Equal(t, fairlock.MaxPermits, state(t, s).Used)
		w := join(t, s, func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, fairlock.MaxPermits) })
		unlock(t, almost)
		assert.True(t, w.pending())
		unlock(t, last)
		unlock(t, w.got(t))
	})
}

func TestErrorsShowNamesPlainOrQuoted(t *testing.T) {
	for name, shown := range map[string]string{
		"billing": "billing", "a b": `"a b"`, "a\r\nb": `"a\r\nb"`, "\xff": `"\xff"`, "a\x00": `"a\x00"`, "日本": "日本",
	} {
		assert.Equal(t, "fairlock: lock "+shown+": lock is busy", (&fairlock.Error{Op: "lock", Name: name, Err: fairlock.ErrBusy}).Error())
	}
	long := (&fairlock.Error{Op: "lock", Name: strings.Repeat("x", 1000), Err: fairlock.ErrBusy}).Error()
	assert.Less(t, len(long), 120)
}

func TestAnyNameWorksAndSharesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c, rdb := b.client(t, fairlock.Config{}), b.rdb(t)
		names := []string{
			"x", "x:", ":x", "{x}", "{x", "x}", "{}", "}", "{", "}{", "%", "%7B", "%7Bx%7D", "%25", "a\x00b", "a\x00", "\r\n",
			"a b", "\xff\xfe", "*", "x:queue", "x}:lock", strings.Repeat("n", 1024), "ünïcödé", "'\"\\",
		}
		var leases []*fairlock.Lease
		for _, name := range names {
			lease, err := c.Mutex(name).TryLock(within(t, soon))
			require.NoError(t, err, "%q shares a lock", name)
			assert.Equal(t, name, lease.Name())
			leases = append(leases, lease)
		}
		for i, name := range names {
			w := enqueue(within(t, soon), c.Mutex(name))
			queued(t, c.Mutex(name), 1)
			k := lua.MutexKeys("fairlock", name)
			for _, key := range []string{k.Queue, k.Alive, k.Fence, k.Lock} {
				assert.Equal(t, int64(1), rdb.Exists(context.Background(), key).Val(), "%q", key)
			}
			unlock(t, leases[i])
			unlock(t, w.got(t))
		}
	})
}

func TestAForeignKeyIsNamedAndUntouched(t *testing.T) {
	s := redistest.Start(t)
	rdb, ctx := s.Client(), context.Background()
	for key, foreign := range map[string]func(key string){
		"queue": func(k string) { rdb.Set(ctx, k, "theirs", 0) },
		"alive": func(k string) { rdb.Set(ctx, k, "theirs", 0) },
		"fence": func(k string) { rdb.LPush(ctx, k, "theirs") },
		"lock":  func(k string) { rdb.LPush(ctx, k, "theirs") },
	} {
		t.Run(key, func(t *testing.T) {
			require.NoError(t, rdb.FlushAll(ctx).Err())
			full := "fairlock:{x}:" + key
			foreign(full)
			before := rdb.Dump(ctx, full).Val()
			c := newClient(t, s.Client(), fairlock.Config{})
			lease, err := c.Mutex("x").Lock(within(t, soon))
			if key == "alive" && err == nil { // an idle lock has no use for it; a waiter has
				_, err = c.Mutex("x").Lock(within(t, soon))
				unlock(t, lease)
			}
			require.Error(t, err)
			require.ErrorContains(t, err, full)
			require.ErrorContains(t, err, "WRONGTYPE")
			assert.Equal(t, before, rdb.Dump(ctx, full).Val())
			require.NoError(t, rdb.Del(ctx, full).Err())
			assert.Zero(t, rdb.Exists(ctx, "fairlock:{x}:lock", "fairlock:{x}:queue").Val(), "something is held by nobody")
		})
	}
}

func TestAUserWithoutRightsGetsAnErrorThatNamesWhatIsMissing(t *testing.T) {
	s := redistest.Start(t)
	rdb, ctx := s.Client(), context.Background()
	as := func(rules ...any) *fairlock.Client {
		args := append([]any{"acl", "setuser", "u", "reset", "on", ">p"}, rules...)
		require.NoError(t, rdb.Do(ctx, args...).Err())
		o := s.Options()
		o.Username, o.Password = "u", "p"
		user := redis.NewClient(o)
		t.Cleanup(func() { _ = user.Close() })
		return newClient(t, user, fairlock.Config{WaiterTTL: 600 * time.Millisecond})
	}
	_, err := as("~*", "&*", "+@all", "-evalsha").Mutex("x").Lock(within(t, soon))
	require.ErrorContains(t, err, "evalsha")
	_, err = as("~other:*", "&*", "+@all").Mutex("x").Lock(within(t, soon))
	require.ErrorContains(t, err, "fairlock:{x}:")
	require.ErrorContains(t, err, "NOPERM")
	_, err = as("~*", "&*", "+@all", "-set").Mutex("x").Lock(within(t, soon))
	require.ErrorContains(t, err, "fairlock:{x}:")
	assert.Zero(t, rdb.Exists(ctx, "fairlock:{x}:lock").Val())

	// Without rights to the channel everything works, at the pace of beats.
	c := as("~*", "resetchannels", "+@all")
	lease := lock(t, c.Mutex("x"))
	w := enqueue(within(t, soon), c.Mutex("x"))
	queued(t, newClient(t, rdb, fairlock.Config{}).Mutex("x"), 1)
	unlock(t, lease)
	unlock(t, w.got(t))
}

func TestAFullServerLeavesNoLockHeldByNobody(t *testing.T) {
	s := redistest.Start(t)
	rdb, ctx := s.Client(), context.Background()
	c := newClient(t, s.Client(), fairlock.Config{WaiterTTL: time.Minute, TTL: time.Minute})
	m := c.Mutex("x")
	lease := lock(t, m)
	w := enqueue(within(t, soon), m)
	queued(t, m, 1)
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())

	_, err := m.Lock(within(t, soon))
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, "fairlock:{x}:")
	_, err = c.Mutex("y").Lock(within(t, soon))
	require.ErrorContains(t, err, "OOM")
	assert.Zero(t, rdb.Exists(ctx, "fairlock:{y}:lock", "fairlock:{y}:queue", "fairlock:{y}:fence").Val())

	require.NoError(t, lease.Renew(ctx), "who holds goes on holding")
	unlock(t, lease)
	next := w.got(t)
	unlock(t, next)
	assert.Zero(t, rdb.Exists(ctx, "fairlock:{x}:lock").Val())
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	unlock(t, lock(t, m))
}

func TestAFirstRequestThatCannotConnectIsAnErrorAtOnce(t *testing.T) {
	s := redistest.Start(t)
	c, link := linked(t, s, fairlock.Config{})
	link.Cut()
	_, err := c.Mutex("x").Lock(within(t, soon))
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	link.Mend()
	unlock(t, lock(t, c.Mutex("x")))
}
