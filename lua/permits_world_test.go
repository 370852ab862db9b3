package lua_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// permitWorld is one semaphore or read-write lock on one back end.
type permitWorld struct {
	*world
	keys lua.PermitKeys
}

// The weights under a read-write lock.
const (
	reader = 1
	writer = lua.WriterWeight
)

// asSemaphore makes the world's lock a semaphore.
func (w *world) asSemaphore(capacity int) *permitWorld {
	k := lua.SemaphoreKeys(ns, "name")
	w.lock = lua.Semaphore(w.rdb, ns, "name", capacity)
	w.keys = lua.Keys{Queue: k.Queue, Alive: k.Alive, Fence: k.Fence}
	return &permitWorld{world: w, keys: k}
}

// asRWMutex makes the world's lock a read-write lock.
func (w *world) asRWMutex() *permitWorld {
	k := lua.RWMutexKeys(ns, "name")
	w.lock = lua.RWMutex(w.rdb, ns, "name")
	w.keys = lua.Keys{Queue: k.Queue, Alive: k.Alive, Fence: k.Fence}
	return &permitWorld{world: w, keys: k}
}

// semaphores runs a test with a semaphore on every back end.
func semaphores(t *testing.T, capacity int, test func(t *testing.T, w *permitWorld)) {
	t.Helper()
	everywhere(t, func(t *testing.T, w *world) { test(t, w.asSemaphore(capacity)) })
}

// rwMutexes runs a test with a read-write lock on every back end.
func rwMutexes(t *testing.T, test func(t *testing.T, w *permitWorld)) {
	t.Helper()
	everywhere(t, func(t *testing.T, w *world) { test(t, w.asRWMutex()) })
}

// ask asks for one permit unless a says how many.
func (w *permitWorld) ask(a lua.Request) (lua.Reply, error) {
	if a.Weight == 0 {
		a.Weight = 1
	}
	return w.world.ask(a)
}

func (w *permitWorld) acquire(a lua.Request) lua.Reply {
	w.t.Helper()
	answer, err := w.ask(a)
	require.NoError(w.t, err)
	return answer
}

// with asks for one of so many permits, that is, with another capacity than the rest of the test.
func (w *permitWorld) with(capacity int, a lua.Request) lua.Reply {
	w.t.Helper()
	usual := w.lock
	defer func() { w.lock = usual }()
	w.lock = lua.Semaphore(w.rdb, ns, "name", capacity)
	return w.acquire(a)
}

// enter has new tokens ask for so many permits each, and checks what they are told.
func (w *permitWorld) enter(want lua.Outcome, weights ...int) []token.Token {
	w.t.Helper()
	all := make([]token.Token, len(weights))
	for i, weight := range weights {
		all[i] = w.token()
		require.Equal(w.t, want, w.acquire(lua.Request{Token: all[i], Weight: weight}).Outcome, "number %d", i+1)
	}
	return all
}

func (w *permitWorld) hold(weights ...int) []token.Token {
	w.t.Helper()
	return w.enter(lua.Granted, weights...)
}

func (w *permitWorld) join(weights ...int) []token.Token {
	w.t.Helper()
	return w.enter(lua.Queued, weights...)
}

func ones(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = 1
	}
	return all
}

// expire ends leases, as time would.
func (w *permitWorld) expire(holders ...token.Token) {
	w.t.Helper()
	for _, t := range holders {
		w.do("ZADD", w.keys.Permits, "XX", w.now().Add(-time.Second).UnixMicro(), t.Text())
	}
}

// holders returns who holds how many permits, by what Redis has.
func (w *permitWorld) holders() map[string]int {
	w.t.Helper()
	ctx := w.t.Context()
	found, err := w.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: w.keys.Permits, ByScore: true, Start: "(" + strconv.FormatInt(w.now().UnixMicro(), 10), Stop: "+inf",
	}).Result()
	require.NoError(w.t, err)
	all := map[string]int{}
	for _, t := range found {
		weight, _, _ := strings.Cut(w.rdb.HGet(ctx, w.keys.Holders, t).Val(), " ")
		all[t], _ = strconv.Atoi(weight)
	}
	return all
}

// holdings says who holds how many permits.
type holdings map[token.Token]int

// each is holdings of as many permits each.
func each(weight int, tokens ...token.Token) holdings {
	all := holdings{}
	for _, t := range tokens {
		all[t] = weight
	}
	return all
}

// held checks who holds the permits, each so many.
func (w *permitWorld) held(want holdings, about ...any) {
	w.t.Helper()
	texts := map[string]int{}
	for t, n := range want {
		texts[t.Text()] = n
	}
	require.Equal(w.t, texts, w.holders(), about...)
}

// try tries with a new token, and checks what it is told.
func (w *permitWorld) try(want lua.Outcome, weight int) {
	w.t.Helper()
	require.Equal(w.t, want, w.acquire(lua.Request{Weight: weight, Try: true}).Outcome)
}

// remembered is the fence that is kept with a holding.
func (w *permitWorld) remembered(t token.Token) uint64 {
	w.t.Helper()
	_, text, _ := strings.Cut(w.rdb.HGet(w.t.Context(), w.keys.Holders, t.Text()).Val(), " ")
	fence, _ := strconv.ParseUint(text, 10, 64)
	return fence
}

// permitState is all that permits have in Redis but for the expiry of keys and waiters. A real
// server's clock does not stand still: there the leases' ends are left out, only who has one is compared.
type permitState struct {
	Fence   string
	Queue   []redis.Z
	Alive   []string
	Permits map[string]float64
	Holders map[string]string
	Wants   map[string]string
}

func (w *permitWorld) state() permitState {
	w.t.Helper()
	ctx := w.t.Context()
	s := permitState{Permits: map[string]float64{}}
	var err error
	s.Fence, _ = w.do("GET", w.keys.Fence).(string)
	s.Queue, err = w.rdb.ZRangeWithScores(ctx, w.keys.Queue, 0, -1).Result()
	require.NoError(w.t, err)
	s.Alive, err = w.rdb.ZRange(ctx, w.keys.Alive, 0, -1).Result()
	require.NoError(w.t, err)
	permits, err := w.rdb.ZRangeWithScores(ctx, w.keys.Permits, 0, -1).Result()
	require.NoError(w.t, err)
	for _, z := range permits {
		if w.real != nil {
			z.Score = 0
		}
		s.Permits[z.Member.(string)] = z.Score
	}
	s.Holders, err = w.rdb.HGetAll(ctx, w.keys.Holders).Result()
	require.NoError(w.t, err)
	s.Wants, err = w.rdb.HGetAll(ctx, w.keys.Wants).Result()
	require.NoError(w.t, err)
	return s
}

// left returns the keys there are, without the names that all have in common.
func (w *permitWorld) left() []string {
	w.t.Helper()
	all := w.rdb.Keys(w.t.Context(), "*").Val()
	for i, key := range all {
		all[i] = key[strings.LastIndexByte(key, ':')+1:]
	}
	return all
}

// unchanged checks that something leaves everything as it was.
func (w *permitWorld) unchanged(do func(), about string) {
	w.t.Helper()
	before := w.state()
	do()
	assert.Equal(w.t, before, w.state(), about)
}

func digits(n int) string { return strconv.Itoa(n) }
