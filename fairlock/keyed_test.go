package fairlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Case 11: with a minimum hold it is a limit for the rate of all starts, and one for those of each key, in any window
// of a second; all is used while there is demand.
//
//fairlock:promise A rate in two levels: with a minimum hold, no more starts in any window of that length than there are permits, nor of one key than its limit; all is used while there is demand
//fairlock:promise A minimum hold
func TestKeyed_Rate(t *testing.T) {
	bubbles(t, map[string]int{"all keys": 8, "one key": 1},
		func(t *testing.T, s *fairlocktest.Server, _ string, keys int) {
			const permits, limit, seconds = 50, 10, 4
			var mu sync.Mutex
			var calls sync.WaitGroup
			times := map[string][]time.Time{} // of the grants of each key, and of all keys by ""; guarded by mu
			var clients [3]fairlock.KeyedSemaphore
			for i := range clients {
				clients[i] = s.Client(fairlock.Config{}).KeyedSemaphore("api", permits, fairlock.WithMinHold(time.Second),
					fairlock.WithKeyLimit(limit))
			}
			for i := range keys * limit * (seconds + 1) {
				key := fmt.Sprint("k", i%keys)
				calls.Go(func() {
					assert.NoError(t, clients[i%3].Key(key).Do(t.Context(), 1, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						times[key], times[""] = append(times[key], time.Now()), append(times[""], time.Now())
						return nil
					}))
				})
				if i%10 == 0 {
					pass(time.Millisecond)
				}
			}
			begin := time.Now()
			calls.Wait()
			rate := min(permits, keys*limit)
			for key, times := range times {
				most := limit
				if key == "" {
					most = permits
				}
				slices.SortFunc(times, time.Time.Compare)
				for i := most; i < len(times); i++ {
					require.GreaterOrEqual(t, times[i].Sub(times[i-most]), time.Second, "%s %d", key, i)
				}
			}
			took, want := times[""][len(times[""])-1].Sub(begin), time.Duration(len(times[""])/rate)*time.Second
			assert.LessOrEqual(t, took, want+want/10+time.Second/2)
			pass(2 * time.Second)
			s.AssertNothingLeft()
		})
}
