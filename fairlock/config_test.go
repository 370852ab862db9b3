package fairlock_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// silent is a Redis that must receive no request.
type silent struct {
	fairlock.Redis

	t *testing.T
}

func (s silent) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	s.t.Error("a request was sent")
	return redis.NewCmd(ctx)
}

// New reports everything that is wrong, in one error.
//
//fairlock:fault Bad input
func TestNew_ReportsEveryFault(t *testing.T) {
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

// The clients of a *redis.Ring may disagree about the shard of a lock.
//
//fairlock:fault Bad input
func TestNew_RefusesARing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}})
	defer func() { _ = ring.Close() }()
	_, err := fairlock.New(ring, fairlock.Config{})
	require.ErrorIs(t, err, fairlock.ErrInvalid)
	require.ErrorContains(t, err, "invalid rdb: must not be a *redis.Ring")
	var universal redis.UniversalClient = ring
	_, err = fairlock.New(universal, fairlock.Config{})
	require.ErrorIs(t, err, fairlock.ErrInvalid)
}

//fairlock:fault Bad input
func TestConfig_Bounds(t *testing.T) {
	rdb := silent{t: t}
	for _, d := range []time.Duration{10 * time.Millisecond, time.Second, fairlock.MaxTTL} {
		_, err := fairlock.New(rdb, fairlock.Config{TTL: d, WaiterTTL: max(d, fairlock.MinWaiterTTL)})
		require.NoError(t, err)
	}
	for _, d := range []time.Duration{-1, 1, 10*time.Millisecond - 1, fairlock.MaxTTL + 1, math.MinInt64, math.MaxInt64} {
		for field, cfg := range map[string]fairlock.Config{"TTL": {TTL: d}, "WaiterTTL": {WaiterTTL: d}} {
			_, err := fairlock.New(rdb, cfg)
			var e *fairlock.FieldError
			require.ErrorAs(t, err, &e, "%s %v", field, d)
			assert.Equal(t, field, e.Field)
		}
	}
	for _, d := range []time.Duration{fairlock.MinFenceTTL, fairlock.MaxTTL} {
		_, err := fairlock.New(rdb, fairlock.Config{FenceTTL: d})
		require.NoError(t, err)
	}
	for _, cfg := range []fairlock.Config{
		{WaiterTTL: fairlock.MinWaiterTTL - 1}, {FenceTTL: -1}, {FenceTTL: fairlock.MinFenceTTL - 1}, {FenceTTL: fairlock.MaxTTL + 1}, {Namespace: "{"}, {Namespace: "}"}, {Namespace: strings.Repeat("n", 257)}, {Name: "é"}, {Name: "a\n"}, {MaxWaiters: -1},
	} {
		_, err := fairlock.New(rdb, cfg)
		require.ErrorIs(t, err, fairlock.ErrInvalid, "%+v", cfg)
	}
}

// The last number of a lock is kept for FenceTTL after its lease.
func TestConfig_FenceTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const d = time.Hour
		c := s.Client(fairlock.Config{FenceTTL: d})
		_, err := c.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, ttl+d, c.Redis.PTTL(t.Context(), lua.MutexKeys(lua.DefaultNamespace, "x").Number).Val())
	})
}

// inspectable has the methods that all locks have in common.
type inspectable interface {
	Inspect(ctx context.Context) (fairlock.State, error)
	Resume(ctx context.Context, t token.Token) (*fairlock.Lease, error)
	ForceRelease(ctx context.Context) (bool, error)
}

// Every method refuses bad input with an error that names the field.
//
//fairlock:fault Bad input: ErrInvalid with the field and its bound; nothing is sent
func TestConfig_BadInputSendsNothing(t *testing.T) {
	c, err := fairlock.New(silent{t: t}, fairlock.Config{})
	require.NoError(t, err)
	defer c.Close()
	ctx := t.Context()
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
	some, err := token.New("c", time.Minute)
	require.NoError(t, err)
	for name, l := range map[string]struct {
		fairlock.Mutex
		fairlock.Semaphore
		fairlock.RWMutex
	}{
		"lock, the zero value": {},
		"name":                 {c.Mutex(""), c.Semaphore("", 1), c.RWMutex(strings.Repeat("x", fairlock.MaxName+1))},
		"TTL, zero":            {c.Mutex("x").WithTTL(0), c.Semaphore("x", 1).WithTTL(0), c.RWMutex("x").WithTTL(0)},
		"TTL, over a year": {
			c.Mutex("x").WithTTL(9000 * time.Hour), c.Semaphore("x", 1).WithTTL(9000 * time.Hour),
			c.RWMutex("x").WithTTL(9000 * time.Hour),
		},
		"MaxWaiters": {
			c.Mutex("x").WithMaxWaiters(-1), c.Semaphore("x", 1).WithMaxWaiters(-1), c.RWMutex("x").WithMaxWaiters(-1),
		},
	} {
		m, s, rw := l.Mutex, l.Semaphore, l.RWMutex
		for op, a := range map[string]acquire{
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
		for kind, l := range map[string]inspectable{"Mutex": m, "Semaphore": s, "RWMutex": rw} {
			_, err = l.Inspect(ctx)
			check(name, kind+".Inspect", err)
			_, err = l.ForceRelease(ctx)
			check(name, kind+".ForceRelease", err)
			require.NotPanics(t, func() { _, err = l.Resume(ctx, some) }, "%s: %s.Resume", name, kind)
			check(name, kind+".Resume", err)
		}
	}
	for _, permits := range []int{0, -1, math.MinInt, fairlock.MaxPermits + 1, math.MaxInt} {
		_, err := c.Semaphore("x", permits).Acquire(ctx, 1)
		check("permits", "Acquire", err)
		_, err = c.Semaphore("x", permits).Inspect(ctx)
		check("permits", "Inspect", err)
	}
	for _, n := range []int{0, -1, math.MinInt, 6, fairlock.MaxPermits, math.MaxInt} {
		s := c.Semaphore("x", 5)
		_, err := s.Acquire(ctx, n)
		check("n", "Acquire", err)
		_, err = s.TryAcquire(ctx, n)
		check("n", "TryAcquire", err)
		check("n", "Do", s.Do(ctx, n, never))
	}
}

func TestError_QuotesNames(t *testing.T) {
	for name, shown := range map[string]string{
		"billing": `"billing"`, "a\r\nb": `"a\r\nb"`, "\xff": `"\xff"`, "a\x00": `"a\x00"`, "日本": `"日本"`,
	} {
		assert.EqualError(t, &fairlock.Error{Op: "lock", Name: name, Err: fairlock.ErrBusy}, "fairlock: lock "+shown+": lock is busy")
	}
	long := (&fairlock.Error{Op: "lock", Name: strings.Repeat("x", 1000), Err: fairlock.ErrBusy}).Error()
	assert.Less(t, len(long), 120)
}
