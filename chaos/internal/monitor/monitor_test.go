package monitor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
	"github.com/fairlock/fairlock-go/chaos/internal/monitor"
	"github.com/fairlock/fairlock-go/chaos/internal/skew"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

const patience = 600 * time.Millisecond

func start(t *testing.T, args ...string) (*redistest.Server, *monitor.Monitor) {
	t.Helper()
	s := redistest.Start(t, args...)
	m, err := monitor.Start(s.Network(), s.Addr(), patience)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return s, m
}

func newClient(t *testing.T, s *redistest.Server, cfg fairlock.Config) *fairlock.Client {
	t.Helper()
	c, err := fairlock.New(once(s.Client()), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// once has a fairlock.Client make no direct calls, which are made a second time when Redis is slow.
func once(rdb *redis.Client) fairlock.Redis { return struct{ *redis.Client }{rdb} }

// sights are what was seen of a token, without what keeps its place.
func sights(seen []monitor.Sighting, token string) (list []history.Sight) {
	for _, s := range seen {
		if s.Token == token && s.Op != history.Heard {
			list = append(list, s.Op)
		}
	}
	return list
}

func TestItSeesTheLifeOfAWaiter(t *testing.T) {
	s, m := start(t)
	tickets := make(chan uint64, 1)
	c := newClient(t, s, fairlock.Config{Trace: &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) { tickets <- i.Ticket },
	}})
	first, err := c.Mutex("x").Lock(t.Context())
	require.NoError(t, err)
	leases := make(chan *fairlock.Lease)
	go func() {
		lease, err := c.Mutex("x").Lock(t.Context())
		assert.NoError(t, err)
		leases <- lease
	}()
	ticket := <-tickets
	require.NoError(t, first.Unlock(t.Context()))
	second := <-leases
	require.NoError(t, second.Unlock(t.Context()))

	record := m.Close()
	seen := record.Seen
	assert.Empty(t, record.Faults)
	assert.Empty(t, sights(seen, ""), "nothing was missed")
	assert.Equal(t, []history.Sight{history.Given}, sights(seen, first.Token().Text()))
	assert.Equal(t, []history.Sight{history.Joins, history.Given}, sights(seen, second.Token().Text()))
	require.Len(t, record.Leases, 2)
	assert.Equal(t, first.Token().Text(), record.Leases[0].Token)
	assert.Equal(t, fairlock.DefaultTTL, record.Leases[0].Lasts)
	assert.Equal(t, second.Token().Text(), record.Leases[1].Token)
	assert.LessOrEqual(t, record.Leases[1].Lasts, fairlock.DefaultWaiterTTL, "no more than it has proved")
	i := slices.IndexFunc(seen, func(s monitor.Sighting) bool { return s.Op == history.Joins })
	assert.Equal(t, "x", seen[i].Lock)
	assert.Equal(t, ticket, seen[i].Ticket)
	assert.Equal(t, history.Heard, seen[i-1].Op)
	assert.Equal(t, second.Token().Text()[len(second.Token().Text())-14:], seen[i-1].Token)
	assert.InDelta(t, seen[i].At+fairlock.DefaultWaiterTTL.Microseconds(), seen[i-1].Until, 1e6)
}

func TestItTellsWhoLeavesFromWhoIsDropped(t *testing.T) {
	s, m := start(t)
	ctx := context.Background()
	rdb := s.Client()
	holder := newClient(t, s, fairlock.Config{WaiterTTL: patience})
	held, err := holder.Mutex("x").Lock(ctx)
	require.NoError(t, err)
	leaver := newClient(t, s, fairlock.Config{WaiterTTL: patience})
	keeper := newClient(t, s, fairlock.Config{WaiterTTL: 30 * time.Second}) // the queue lasts as long as its place
	link := redistest.NewLink(t, s)
	cut := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr()})
	defer func() { _ = cut.Close() }()
	crashed, err := fairlock.New(once(cut), fairlock.Config{WaiterTTL: patience})
	require.NoError(t, err)
	left, stop := context.WithCancel(ctx)
	queued := func(n int64) {
		require.Eventually(t, func() bool {
			return rdb.ZCard(ctx, "fairlock:{x}:queue").Val() == n
		}, 10*time.Second, time.Millisecond)
	}
	waits := func(ctx context.Context, c *fairlock.Client, n int64) {
		go func() { _, _ = c.Mutex("x").Lock(ctx) }()
		queued(n)
	}
	waits(ctx, crashed, 1)
	waits(left, leaver, 2)
	waits(ctx, keeper, 3)
	tokens, err := rdb.ZRange(ctx, "fairlock:{x}:queue", 0, -1).Result()
	require.NoError(t, err)
	link.Cut()
	stop()
	queued(2)
	time.Sleep(patience)                 // so that who crashed is dead
	require.NoError(t, held.Unlock(ctx)) // drops the dead
	require.NoError(t, crashed.Close())

	record := m.Close()
	seen := record.Seen
	assert.Empty(t, record.Faults)
	assert.Equal(t, []history.Sight{history.Joins, history.Dropped}, sights(seen, tokens[0]))
	assert.Equal(t, []history.Sight{history.Joins, history.Leaves}, sights(seen, tokens[1]))
}

func TestItIsBlindWhileTheServerIsAway(t *testing.T) {
	s, m := start(t)
	s.Kill()
	s.Run()
	rdb := s.Client()
	require.Eventually(t, func() bool { // it looks on again
		return strings.Contains(rdb.ClientList(t.Context()).Val(), " flags=O")
	}, 10*time.Second, 2*time.Millisecond)
	give := `return redis.call('SET', KEYS[1], 'b', 'PX', 1)`
	require.NoError(t, rdb.Eval(t.Context(), give, []string{"f:{x}:lock"}, "b").Err())
	var ops []history.Sight
	for _, s := range m.Close().Seen {
		ops = append(ops, s.Op)
	}
	assert.Equal(t, []history.Sight{history.Blind, history.Blind, history.Given}, ops, "from when it went until it was back")
}

func TestItComplainsOfWhatAMutexMustNotDo(t *testing.T) {
	const lock, queue, alive = "f:{x}:lock", "f:{x}:queue", "f:{x}:alive"
	set := `redis.call('SET', KEYS[4], ARGV[1], 'PX', 60000)`
	for name, test := range map[string]struct {
		script string // of b, while a holds the lock
		fault  string
	}{
		"grants":   {set, "b is granted the lock, which a holds"},
		"releases": {`redis.call('DEL', KEYS[4])`, "b releases the lock, which a holds"},
		"renews":   {`redis.call('PEXPIRE', KEYS[4], 70000)`, "b renews the lock, which a holds"},
		"fences":   {`redis.call('SET', KEYS[3], 7) redis.call('SET', KEYS[3], 8)`, "b raises the fence and is not granted"},
		"queues":   {`redis.call('ZADD', KEYS[1], 5, 'a')`, "a holds the lock and is put into the queue"},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := start(t)
			rdb := s.Client()
			keys := []string{queue, alive, "f:{x}:fence", lock}
			require.NoError(t, rdb.Eval(t.Context(), set+" return 1", keys, "a").Err())
			require.NoError(t, rdb.Eval(t.Context(), test.script+" return 1", keys, "b").Err())
			faults := m.Close().Faults
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0], test.fault)
		})
	}
}

func TestItComplainsOfGhosts(t *testing.T) {
	for what, script := range map[string]string{
		"granted the lock":   `redis.call('SET', KEYS[4], 'a', 'PX', 60000)`,
		"put into the queue": `redis.call('ZADD', KEYS[1], 5, 'a')`,
	} {
		t.Run(what, func(t *testing.T) {
			s, m := start(t)
			rdb := s.Client()
			for _, script := range []string{
				`redis.call('SET', KEYS[4], 'a', 'PX', 60000)`, `redis.call('DEL', KEYS[4])`, script,
			} {
				keys := []string{"f:{x}:queue", "f:{x}:alive", "f:{x}:fence", "f:{x}:lock"}
				require.NoError(t, rdb.Eval(t.Context(), script+" return 1", keys, "a").Err())
			}
			faults := m.Close().Faults
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0], "a ")
			assert.Contains(t, faults[0], what)
		})
	}
}

func TestWhatHasEndedDoesNotComeBackWithTheClock(t *testing.T) {
	clock, err := skew.New(t.TempDir())
	require.NoError(t, err)
	defer func() { assert.NoError(t, clock.Close()) }()
	for name, value := range clock.Env() {
		t.Setenv(name, value)
	}
	s, m := start(t)
	rdb := s.Client()
	give := func(token string) {
		keys := []string{"f:{x}:queue", "f:{x}:alive", "f:{x}:fence", "f:{x}:lock"}
		script := `return redis.call('SET', KEYS[4], ARGV[1], 'NX', 'PX', 60000)`
		require.NoError(t, rdb.Eval(t.Context(), script, keys, token).Err())
	}
	give("a")
	require.NoError(t, clock.Step(2*time.Minute))
	require.ErrorIs(t, rdb.Get(t.Context(), "f:{x}:lock").Err(), redis.Nil)
	require.NoError(t, clock.Step(-2*time.Minute))
	give("b")
	faults := m.Close().Faults
	assert.Empty(t, faults)
}

func TestNothingExpiresWhileAScriptRuns(t *testing.T) {
	s, m := start(t)
	options := s.Options()
	options.ReadTimeout = time.Minute // on a busy machine the script takes long
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	keys := []string{"f:{x}:queue", "f:{x}:alive", "f:{x}:fence", "f:{x}:lock"}
	// The loop takes longer than the queue lasts, on any machine.
	script := `redis.call('ZADD', KEYS[2], 1, 'a') redis.call('ZADD', KEYS[1], 1, 'a') redis.call('PEXPIRE', KEYS[1], 50)
		for i = 1, 5e7 do end
		redis.call('ZADD', KEYS[2], 1, 'a') redis.call('PEXPIRE', KEYS[1], 60000) return 1`
	require.NoError(t, rdb.Eval(t.Context(), script, keys, "a").Err())
	require.EqualValues(t, 1, rdb.ZCard(t.Context(), keys[0]).Val())
	// It might have been a step of the clock.
	assert.Equal(t, []history.Sight{history.Blind}, sights(m.Close().Seen, ""), "not wiped")
}

func TestALifeWithoutItsTicketIsAnother(t *testing.T) {
	s, m := start(t)
	rdb := s.Client()
	keys := []string{"f:{x}:queue", "f:{x}:alive", "f:{x}:fence", "f:{x}:lock"}
	join := func(score string, ticket string) {
		script := `redis.call('ZADD', KEYS[2], redis.call('TIME')[1] .. '000000', ARGV[1])
			redis.call('ZADD', KEYS[1], '` + score + `', ARGV[1]) return 1`
		require.NoError(t, rdb.Eval(t.Context(), script, keys, "a", "1000", "1000", "0", ticket).Err())
	}
	drop := func() {
		require.NoError(t, rdb.Eval(t.Context(), `redis.call('ZREM', KEYS[1], 'a') return 1`, keys, "b").Err())
	}
	join("1", "0")
	drop()
	join("2", "0") // it has not heard of its ticket
	drop()
	join("2", "2")
	record := m.Close()
	seen := record.Seen
	assert.Empty(t, record.Faults)
	assert.Equal(t, []history.Sight{history.Joins, history.Dropped}, sights(seen, "an earlier life of a"))
	assert.Equal(t, []history.Sight{history.Joins, history.Dropped, history.Joins}, sights(seen, "a"))
}
