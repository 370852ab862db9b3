package fairlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

func TestReadersGoTogetherAWriterAloneAndNobodyPassesAnybody(t *testing.T) {
	for name, steps := range map[string][]step{
		"a reader does not pass a writer": {
			{"+r", "ar |"}, {"+r", "ar br |"}, {"+w", "ar br | cw"}, {"+r", "ar br | cw dr"}, {"?r", "ar br | cw dr"},
			{"-b", "ar | cw dr"}, {"+r", "ar | cw dr er"}, {"-a", "cw | dr er"}, {"?r", "cw | dr er"}, {"-c", "dr er |"},
			{"?w", "dr er |"}, {"+r", "dr er fr |"},
		},
		"readers that stand together get in together": {
			{"+w", "aw |"}, {"+r", "aw | br"}, {"+r", "aw | br cr"}, {"+w", "aw | br cr dw"}, {"+w", "aw | br cr dw ew"},
			{"+r", "aw | br cr dw ew fr"}, {"-a", "br cr | dw ew fr"}, {"-c", "br | dw ew fr"}, {"-b", "dw | ew fr"},
			{"-d", "ew | fr"}, {"-e", "fr |"},
		},
		"a writer that gives up lets in the readers behind it": {
			{"+r", "ar |"}, {"+w", "ar | bw"}, {"+r", "ar | bw cr"}, {"+r", "ar | bw cr dr"}, {"+w", "ar | bw cr dr ew"},
			{"+r", "ar | bw cr dr ew fr"}, {"!b", "ar cr dr | ew fr"}, {"!e", "ar cr dr fr |"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b backend) { play(t, b, readWrite, steps) })
		})
	}
}

// crowd has so many readers wait, each with its place, over four clients whose scripts are counted.
func crowd(t *testing.T, b backend, readers int, scripts *counter) (all []*waiting, journals []*journal) {
	t.Helper()
	var locks []fairlock.RWMutex
	for range 4 {
		rdb := b.rdb(t)
		rdb.AddHook(scripts)
		c, j := attentive(t, rdb, lasting)
		locks, journals = append(locks, c.RWMutex("x")), append(journals, j)
	}
	for i := range readers {
		all = append(all, begin(within(t, 3*soon), locks[i%4].RLock))
	}
	standing(t, locks[0], readers)
	// Until each has heard that it waits.
	require.Eventually(t, func() bool {
		n := 0
		for _, j := range journals {
			j.mu.Lock()
			n += len(j.queued) - 1 // one was attentive's
			j.mu.Unlock()
		}
		return n == readers
	}, soon, time.Millisecond)
	return all, journals
}

func TestAReaderThatIsHandedItsShareSendsNothingMore(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const readers = 300
		var scripts counter
		m := b.client(t, lasting).RWMutex("x")
		writer := hold(t, m.Lock)
		all, journals := crowd(t, b, readers, &scripts)
		late := join(t, m, m.Lock)
		before := scripts.scripts.Load()
		unlock(t, writer)
		for _, w := range all {
			require.NoError(t, w.got(t).Err())
		}
		assert.Equal(t, before, scripts.scripts.Load(), "a reader has asked")
		for _, j := range journals {
			for _, g := range j.granted() {
				assert.True(t, g.Handoff)
			}
		}
		assert.Equal(t, readers, state(t, m).Used)
		assert.True(t, late.pending())
		for _, w := range all {
			unlock(t, w.lease)
		}
		unlock(t, late.got(t))
	})
}

func TestACrowdOfReadersGetsInAtACrashedWritersEnd(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		const readers = 300 // more than one script admits
		c := b.client(t, fairlock.Config{TTL: 3 * time.Second})
		_, err := c.RWMutex("x").Lock(within(t, soon))
		require.NoError(t, err)
		all, _ := crowd(t, b, readers, &counter{})
		require.NoError(t, c.Close())
		for _, w := range all {
			require.NoError(t, w.got(t).Err())
		}
		for _, w := range all {
			unlock(t, w.lease)
		}
	})
}

func TestWritersAreAloneReadersAreNotAndNobodyIsPassed(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var readers, writers, most atomic.Int64
		hammer(t, b, 5, func(c *fairlock.Client, i int) {
			m, write := c.RWMutex("x"), i%4 == 0
			take, mine, others := m.RLock, &readers, &writers
			if write {
				take, mine, others = m.Lock, &writers, &readers
			}
			lease, err := take(within(t, 3*soon))
			if err != nil {
				t.Error(err)
				return
			}
			now := mine.Add(1)
			assert.Zero(t, others.Load(), "a reader and a writer are inside")
			assert.True(t, !write || now == 1, "two writers are inside")
			for m := most.Load(); !write && now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			time.Sleep(time.Millisecond) // is what it does in there
			assert.Zero(t, others.Load(), "a reader and a writer are inside")
			mine.Add(-1)
			assert.NoError(t, lease.Unlock(context.Background()))
		})
		assert.Greater(t, most.Load(), int64(1), "readers were never together")
		assert.Zero(t, state(t, readWrite(b.client(t, fairlock.Config{}))).Used)
	})
}

// The leases of a crowd have ended and nobody waits: who tries takes back more of them than one call may.
func TestTryLockGetsInAfterACrowdThatCrashed(t *testing.T) {
	const crowd, ttl = 2500, time.Minute
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	began := time.Now()
	m.SetTime(began)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	for range crowd {
		reader, err := token.New("crashed")
		require.NoError(t, err)
		answer, err := lua.RWMutex(rdb, "fairlock", "x").Acquire(t.Context(), lua.Request{Token: reader, TTL: ttl, Weight: 1, Try: true})
		require.NoError(t, err)
		require.Equal(t, lua.Granted, answer.Outcome)
	}
	m.SetTime(began.Add(ttl + time.Millisecond))
	require.True(t, m.Exists("fairlock:{x}:rw:permits"))
	lease, err := newClient(t, rdb, fairlock.Config{}).RWMutex("x").TryLock(within(t, soon))
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(context.Background()))
}
