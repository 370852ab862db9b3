package fairlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Several machines whose clocks differ try to do a job each ten seconds, for twenty minutes. It is done once in each,
// though some of them are killed while they do it.
//
//fairlock:promise At most once in d: of replicas that do TryDo with a minimum hold, one does the job each time, though their clocks differ; a crash costs at most one time
func TestMinHold_OncePerPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const hold, period, periods = 9 * time.Second, 10 * time.Second, 120
		begin := time.Now()
		done := make([]int, periods+1)
		var mu sync.Mutex
		var wait sync.WaitGroup
		for i, skew := range []time.Duration{-3 * time.Second, 0, 3 * time.Second} {
			wait.Go(func() {
				client := s.Client(fairlock.Config{TTL: hold})
				for n := 1; n <= periods; n++ {
					time.Sleep(time.Until(begin.Add(time.Duration(n)*period + skew)))
					killed := n%(7+i) == 0
					err := client.Mutex("job", fairlock.WithMinHold(hold)).TryDo(t.Context(), func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						done[n]++
						time.Sleep(time.Millisecond)
						if killed {
							client.Crash()
						}
						return nil
					})
					if killed { // perhaps it has crashed, and another process takes its place
						client.Crash()
						client = s.Client(fairlock.Config{TTL: hold})
					} else if !errors.Is(err, fairlock.ErrBusy) {
						assert.NoError(t, err)
					}
				}
			})
		}
		wait.Wait()
		for n := 1; n <= periods; n++ {
			assert.LessOrEqual(t, done[n], 1, "period %d", n)
			assert.True(t, done[n] > 0 || done[n-1] > 0, "period %d, and the one before it was missed, too", n)
		}
	})
}
