package fairlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
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
func TestNew_BadInput(t *testing.T) {
	var none *redis.Client
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}})
	defer func() { _ = ring.Close() }()
	rdb := silent{t: t}
	type input struct {
		what string
		rdb  fairlock.Redis
		cfg  fairlock.Config
	}
	cases := []input{
		{"everything", nil, fairlock.Config{Namespace: "a{b}", Name: "a b", TTL: 1, WaiterTTL: -1, MaxWaiters: -1}},
		{"a nil client", none, fairlock.Config{}},
		{"a ring, whose clients may disagree about the shard of a lock", redis.UniversalClient(ring), fairlock.Config{}},
		{"the least", rdb, fairlock.Config{TTL: bounds.MinTTL, WaiterTTL: bounds.MinWaiterTTL, FenceTTL: bounds.MinFenceTTL}},
		{"the most", rdb, fairlock.Config{TTL: bounds.MaxTTL, WaiterTTL: bounds.MaxTTL, FenceTTL: bounds.MaxTTL}},
		{"below the least", rdb, fairlock.Config{TTL: bounds.MinTTL - 1, WaiterTTL: bounds.MinWaiterTTL - 1,
			FenceTTL: bounds.MinFenceTTL - 1, MaxOutage: 3*time.Second - 1}},
		{"above the most", rdb, fairlock.Config{TTL: bounds.MaxTTL + 1, WaiterTTL: bounds.MaxTTL + 1,
			FenceTTL: bounds.MaxTTL + 1, MaxOutage: bounds.MaxTTL + 1}},
		{"negative", rdb, fairlock.Config{TTL: -1, WaiterTTL: -1, FenceTTL: -1, MaxOutage: -1, MaxWaiters: -1}},
		{"the least number", rdb, fairlock.Config{TTL: math.MinInt64, WaiterTTL: math.MinInt64, FenceTTL: math.MinInt64}},
		{"the largest number", rdb, fairlock.Config{TTL: math.MaxInt64, WaiterTTL: math.MaxInt64, FenceTTL: math.MaxInt64}},
		{"a name that is not ASCII", rdb, fairlock.Config{Name: "é"}},
		{"a name of two lines", rdb, fairlock.Config{Name: "a\n"}},
	}
	for _, n := range []string{"{", "}", "n\n", " n", "\ufeffn", "a\tb", "a\u200bb", strings.Repeat("n", 257)} {
		cases = append(cases, input{"a namespace", rdb, fairlock.Config{Namespace: n}})
	}
	var out strings.Builder
	for _, c := range cases {
		_, err := fairlock.New(c.rdb, c.cfg)
		assert.Equal(t, err != nil, errors.Is(err, fairlock.ErrInvalid), c.what)
		fmt.Fprintf(&out, "%s: %v\n", c.what, err)
	}
	golden.Equal(t, "config.txt", out.String())
}

// The last number of a lock is kept for FenceTTL after its lease.
func TestConfig_FenceTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const d = time.Hour
		c := s.Client(fairlock.Config{FenceTTL: d})
		_, err := c.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, ttl+d, c.Redis.PTTL(t.Context(),
			script.KeysOf("mutex", bounds.DefaultNamespace, "x").Part("number")).Val())
	})
}

// callAll calls the methods that get a ctx and return an error, with n for each number, and returns the errors. Without
// a list, it calls all.
func callAll(t *testing.T, lock any, n int, only ...string) map[string]error {
	t.Helper()
	terms := tokens.Terms{TTL: time.Minute, Weight: 1, Permits: 1}
	switch lock.(type) {
	case fairlock.Mutex:
		terms.Permits = 0
	case fairlock.KeyedSemaphore:
		terms.Key, terms.Share = "A", 1
	}
	some, err := token.Parse(tokens.New("c", terms))
	require.NoError(t, err)
	handle := fairlock.Handle(some.Text() + "/1")
	never := func(context.Context) error { t.Error("ran"); return nil }
	errs := map[string]error{}
	for name, call := range methods(lock, n, handle, never) {
		if only == nil || slices.Contains(only, name) {
			errs[name] = call(t.Context())
		}
	}
	require.GreaterOrEqual(t, len(errs), cmp.Or(len(only), 4))
	return errs
}

// Every method refuses bad input with an error that names the field.
//
//fairlock:fault Bad input: ErrInvalid with the field and its bound; nothing is sent
func TestConfig_BadInputSendsNothing(t *testing.T) {
	c, err := fairlock.New(silent{t: t}, fairlock.Config{})
	require.NoError(t, err)
	defer c.Close()
	check := func(field string, lock any, n int, only ...string) {
		t.Helper()
		for method, err := range callAll(t, lock, n, only...) {
			var e *fairlock.FieldError
			require.ErrorAs(t, err, &e, "%T.%s: %s", lock, method, field)
			require.ErrorIs(t, err, fairlock.ErrInvalid)
			assert.Equal(t, field, e.Field)
			var wrapped *fairlock.Error
			require.ErrorAs(t, err, &wrapped)
		}
	}
	for field, bad := range map[string][]fairlock.Option{
		"TTL": {fairlock.WithTTL(0), fairlock.WithTTL(-1), fairlock.WithTTL(bounds.MinTTL - 1),
			fairlock.WithTTL(bounds.MaxTTL + 1)},
		"MaxWait": {fairlock.WithMaxWait(-1), fairlock.WithMaxWait(bounds.MaxTTL + 1)},
		"MaxOutage": {fairlock.WithMaxOutage(-1), fairlock.WithMaxOutage(3*time.Second - 1),
			fairlock.WithMaxOutage(bounds.MaxTTL + 1)},
		"MaxWaiters": {fairlock.WithMaxWaiters(-1)},
		"option":     {nil},
	} {
		for _, option := range bad {
			for _, lock := range []any{c.Mutex("x", option), c.Semaphore("x", 1, option), c.RWMutex("x", option)} {
				check(field, lock, 1)
			}
			check(field, c.KeyedSemaphore("x", 1, option), 1, "Resume")
			check(field, c.KeyedSemaphore("x", 1).Key("A", option), 1)
		}
	}
	for field, bad := range map[string][]fairlock.KeyOption{
		"KeyLimit": {fairlock.WithKeyLimit(-1), fairlock.WithKeyLimit(bounds.MaxPermits + 1)},
		"Share":    {fairlock.WithShare(0), fairlock.WithShare(-1), fairlock.WithShare(bounds.MaxShare + 1)},
	} {
		for _, option := range bad {
			check(field, c.KeyedSemaphore("x", 1, option), 1, "Resume")
			check(field, c.KeyedSemaphore("x", 1).Key("A", option), 1)
		}
	}
	check("Share", c.KeyedSemaphore("x", 1, fairlock.WithShare(1)), 1, "Resume")
	for _, key := range []string{"", strings.Repeat("x", bounds.MaxKey+1)} {
		check("key", c.KeyedSemaphore("x", 1).Key(key), 1)
	}
	for _, option := range []fairlock.HoldOption{fairlock.WithMinHold(-1), fairlock.WithMinHold(bounds.MaxTTL + 1)} {
		for _, lock := range []any{c.Mutex("x", option), c.Semaphore("x", 1, option)} {
			check("MinHold", lock, 1)
		}
	}
	check("option", c.Mutex("x", fairlock.HoldOption(nil)), 1)
	check("lock", fairlock.KeyedSemaphore{}, 1, "Resume")
	for _, lock := range []any{fairlock.Mutex{}, fairlock.Semaphore{}, fairlock.RWMutex{}} {
		check("lock", lock, 1)
	}
	for _, name := range []string{"", strings.Repeat("x", bounds.MaxName+1)} {
		for _, lock := range []any{c.Mutex(name), c.Semaphore(name, 1), c.RWMutex(name),
			c.KeyedSemaphore(name, 1).Key("A")} {
			check("name", lock, 1)
		}
		check("name", c.KeyedSemaphore(name, 1), 1, "Resume")
	}
	for _, permits := range []int{0, -1, math.MinInt, bounds.MaxPermits + 1, math.MaxInt} {
		check("permits", c.Semaphore("x", permits), 1)
		check("permits", c.KeyedSemaphore("x", permits), 1, "Resume")
		_, err := c.Semaphore("x", permits).Acquire(t.Context(), 1)
		assert.NotContains(t, err.Error(), "invalid n", "of a number that is none")
	}
	for _, n := range []int{0, -1, math.MinInt, bounds.MaxPermits + 1, math.MaxInt} {
		check("n", c.Semaphore("x", 5), n, "Acquire", "TryAcquire", "Do", "TryDo")
		check("n", c.KeyedSemaphore("x", 5).Key("A"), n, "Acquire", "TryAcquire", "Do", "TryDo")
	}
	check("n", c.KeyedSemaphore("x", 5).Key("A", fairlock.WithKeyLimit(2)), 3, "Acquire")
	check("n", c.KeyedSemaphore("x", 2).Key("A", fairlock.WithKeyLimit(5)), 3, "Acquire")
	check("n", c.KeyedSemaphore("x", 5, fairlock.WithKeyLimit(2)).Key("A"), 3, "Acquire")
}

func TestError_QuotesNames(t *testing.T) {
	for name, shown := range map[string]string{
		"billing": `"billing"`, "a\r\nb": `"a\r\nb"`, "\xff": `"\xff"`, "a\x00": `"a\x00"`, "日本": `"日本"`,
	} {
		assert.EqualError(t, &fairlock.Error{Op: "lock", Name: name, Err: fairlock.ErrBusy}, "fairlock: lock "+shown+
			": lock is busy")
	}
	long := (&fairlock.Error{Op: "lock", Name: strings.Repeat("x", 1000), Err: fairlock.ErrBusy}).Error()
	assert.Less(t, len(long), 120)
}
