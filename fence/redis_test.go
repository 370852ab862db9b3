package fence_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fence"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

func TestMain(m *testing.M) {
	redistest.Silence()
	os.Exit(redistest.Main(m))
}

// names returns a key for the fence and one beside it, that no other test uses.
func names(t *testing.T) (number, value string) {
	t.Helper()
	tag := "{" + t.Name() + "}"
	return tag + ":fence", tag + ":value"
}

// A lower fence is refused, and no command is run. An equal one passes.
//
//fairlock:promise The fence at Redis: commands are run unless a higher fence was shown, with nothing in between
func TestRedis_Rules(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	key, value := names(t)
	ctx := t.Context()

	replies, err := fence.Redis(ctx, rdb, key, 5, []any{"SET", value, "five"}, []any{"GET", value},
		[]any{"GET", key + ":none"})
	require.NoError(t, err)
	assert.Equal(t, []any{"OK", "five", nil}, replies)
	replies, err = fence.Redis(ctx, rdb, key, 5, []any{"INCRBY", value + ":n", 2}, []any{"MGET", value, value + ":n"})
	require.NoError(t, err)
	assert.Equal(t, []any{int64(2), []any{"five", "2"}}, replies)
	_, err = fence.Redis(ctx, rdb, key, 4, []any{"SET", value, "four"})
	require.ErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, "five", rdb.Get(ctx, value).Val())

	const highest = 1<<53 - 1                          // each of its digits counts
	replies, err = fence.Redis(ctx, rdb, key, highest) // shows it before it reads
	require.NoError(t, err)
	assert.Empty(t, replies)
	_, err = fence.Redis(ctx, rdb, key, highest-1)
	require.ErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, "9007199254740991", rdb.Get(ctx, key).Val())
	assert.InDelta(t, fence.RedisTTL, rdb.PTTL(ctx, key).Val(), float64(time.Minute))
}

// What cannot be right is refused before anything is sent.
func TestRedis_Invalid(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	key, value := names(t)
	for _, number := range []uint64{0, 1 << 53} {
		_, err := fence.Redis(t.Context(), rdb, key, number)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
	}
	for _, command := range [][]any{{}, {"PING"}, {"SET", 7, 8}, make([]any, 5000)} {
		_, err := fence.Redis(t.Context(), rdb, key, 1, []any{"SET", value, 1}, command)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
	}
	long := []any{"RPUSH", value + ":list"}
	for range 4094 {
		long = append(long, "x")
	}
	replies, err := fence.Redis(t.Context(), rdb, key, 1, long)
	require.NoError(t, err)
	assert.Equal(t, []any{int64(4094)}, replies)

	require.NoError(t, rdb.Set(t.Context(), key, "my value", 0).Err())
	_, err = fence.Redis(t.Context(), rdb, key, 1, []any{"SET", value, 1})
	require.ErrorContains(t, err, "the key of the fence holds something else")
	assert.Zero(t, rdb.Exists(t.Context(), value).Val())
}

// A command that fails ends the script, and what was done before stays: that is what the doc comment says.
func TestRedis_NothingIsUndone(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	key, value := names(t)
	_, err := fence.Redis(t.Context(), rdb, key, 1, []any{"SET", value, "a"}, []any{"INCR", value},
		[]any{"SET", value, "b"})
	require.ErrorContains(t, err, "not an integer")
	require.NotErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, []any{"a", "1"}, rdb.MGet(t.Context(), value, key).Val())
}

// Of many holders at once, none writes after one of a higher fence.
//
//fairlock:promise The fence at Redis
func TestRedis_Concurrent(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client()
	key, value := names(t)
	var last, done atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				number := last.Add(1)
				_, err := fence.Redis(t.Context(), rdb, key, uint64(number), []any{"RPUSH", value, number})
				if err == nil {
					done.Add(1)
				} else {
					assert.ErrorIs(t, err, fence.ErrStale)
				}
			}
		})
	}
	all.Wait()
	var written []int
	require.NoError(t, rdb.LRange(t.Context(), value, 0, -1).ScanSlice(&written))
	assert.Len(t, written, int(done.Load()))
	assert.IsIncreasing(t, written)
}

// On a Cluster, the keys of the commands are declared: those of another slot are refused, and nothing is written.
func TestRedis_Cluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 3).Client()
	key, value := names(t)
	replies, err := fence.Redis(t.Context(), rdb, key, 1, []any{"SET", value, "one"}, []any{"GET", value})
	require.NoError(t, err)
	assert.Equal(t, []any{"OK", "one"}, replies)
	var reply redis.Error
	_, err = fence.Redis(t.Context(), rdb, key, 2, []any{"SET", value, "two"}, []any{"SET", "{elsewhere}", "two"})
	require.ErrorAs(t, err, &reply)
	assert.Equal(t, "one", rdb.Get(t.Context(), value).Val())
}
