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
	c, err := fairlock.New(silent{t: t}, fairlock.Config{})
	require.NoError(t, err)
	ctx := context.Background()
	for name, m := range map[string]fairlock.Mutex{
		"name": c.Mutex(""), "name, too long": c.Mutex(strings.Repeat("x", 1025)),
		"TTL, zero": c.Mutex("x").WithTTL(0), "TTL, short": c.Mutex("x").WithTTL(time.Millisecond),
		"TTL, negative": c.Mutex("x").WithTTL(-time.Second), "TTL, over a year": c.Mutex("x").WithTTL(9000 * time.Hour),
		"MaxWaiters": c.Mutex("x").WithMaxWaiters(-1),
	} {
		field, _, _ := strings.Cut(name, ",")
		check := func(op string, err error) {
			var e *fairlock.FieldError
			require.ErrorAs(t, err, &e, "%s: %s", name, op)
			require.ErrorIs(t, err, fairlock.ErrInvalid)
			assert.Equal(t, field, e.Field)
			var wrapped *fairlock.Error
			require.ErrorAs(t, err, &wrapped)
		}
		_, err := m.Lock(ctx)
		check("Lock", err)
		_, err = m.TryLock(ctx)
		check("TryLock", err)
		check("Do", m.Do(ctx, func(context.Context) error { t.Error("ran"); return nil }))
		_, err = m.Inspect(ctx)
		check("Inspect", err)
		_, err = m.ForceRelease(ctx)
		check("ForceRelease", err)
	}
	dead, cancel := context.WithCancelCause(ctx)
	cancel(fmt.Errorf("because"))
	_, err = c.Mutex("x").Lock(dead)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "because")
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
