package states_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/lab/states"
)

// frozen are changes of what is in Redis, or of what all clients have to do alike: another release cannot make them
// without a new layout (docs/operating.md, Upgrading).
var frozen = []struct {
	name     string
	old, new string
	kind     string
}{
	{"the next number", "last = math.max(now, last + 1)", "last = math.max(now, last + 2)", "mutex"},
	{"text of the number", "text_of(last) .. ' ' .. text_of(clock)", "text_of(clock) .. ' ' .. text_of(last)", "mutex"},
	{"text of the lock", "call('SET', lock, token .. ' ' .. given,", "call('SET', lock, given .. ' ' .. token,", "mutex"},
	{"notification", "text = fence .. ' ' .. ms", "text = ms .. ' ' .. fence", "mutex"},
	{"the second of the queue's clock", "math.max(now - at, 0), 1000000)", "math.max(now - at, 0), 2000000)", "mutex"},
	{"when a waiter is dropped", "text_of(clock + 999), 'LIMIT'", "text_of(clock + 60000000), 'LIMIT'", "mutex"},
	{"tombstones", "call('ZSCORE', tombstones, token)", "call('ZSCORE', tombstones, string.sub(token, -14))", "mutex"},
	{"life of the queue", "KEPT = 660000", "KEPT = 360000", "mutex"},
	{"records of holders", "token, given, granted(", "token, '1 ' .. given, granted(", "semaphore"},
	{"loss of permits", "(used > 0) == (call('ZCARD', permits) > 0)", "used >= 0", "semaphore"},
}

// A change of what is frozen is found when two releases of the scripts share a lock.
//
//fairlock:promise Two versions share a lock: a change of what an earlier version relies on is found by a test
func TestLayout_ChangeIsFound(t *testing.T) {
	servers := []*redis.Client{redistest.Start(t).Client()}
	for _, change := range frozen {
		k := *states.Kinds()[slices.IndexFunc(states.Kinds(), func(k *states.Kind) bool { return k.Name == change.kind })]
		k.Other = func(text string) string { return strings.ReplaceAll(text, change.old, change.new) }
		r, err := states.Explore(&k, 4, math.MaxInt, servers, func(states.Result) {})
		require.NoError(t, err)
		assert.NotEmpty(t, r.Wrong, change.name)
	}
}
