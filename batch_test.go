package fairlock_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

// stall holds up the first two scripts or pipelines of them that a go-redis client sends, and counts.
type stall struct {
	free chan struct{} // closed to let them go

	mu      sync.Mutex
	stuck   int // guarded by mu: held up so far
	deepest int // guarded by mu: the most commands in one pipeline
}

func (s *stall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.pass(cmd)
		return next(ctx, cmd)
	}
}

func (s *stall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.pass(cmds...)
		return next(ctx, cmds)
	}
}

func (s *stall) pass(cmds ...redis.Cmder) {
	if cmds[0].Name() != "evalsha" {
		return
	}
	s.mu.Lock()
	s.deepest = max(s.deepest, len(cmds))
	hold := s.stuck < 2
	if hold {
		s.stuck++
	}
	s.mu.Unlock()
	if hold {
		<-s.free
	}
}

func (s *stall) count() (stuck, deepest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck, s.deepest
}

// Calls that come while others are under way go together. If those others do not come back, the rest does not wait
// for them: here they come back only after all others are done.
func TestCallsGoTogetherAndNotBehindOnesThatHang(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		rdb := b.rdb(t)
		c := newClient(t, rdb, fairlock.Config{})
		unlock(t, lock(t, c.Mutex("warm")))
		s := &stall{free: make(chan struct{})}
		rdb.AddHook(s) // it does not see calls that are alone
		ctx := within(t, 3*soon)
		var name atomic.Int64
		pair := func() {
			lease, err := c.Mutex(strconv.FormatInt(name.Add(1), 10)).Lock(ctx)
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Unlock(context.Background()))
			}
		}
		var held, others sync.WaitGroup
		for stuck := range 2 { // until so many are held up, and with them any number of callers
			for range 20 {
				held.Go(func() {
					for n := stuck; n == stuck && ctx.Err() == nil; n, _ = s.count() {
						pair()
					}
				})
			}
			require.Eventually(t, func() bool { n, _ := s.count(); return n > stuck }, soon, time.Millisecond)
		}
		for range 40 {
			others.Go(pair)
		}
		others.Wait()
		close(s.free)
		held.Wait()
		_, deepest := s.count()
		assert.Greater(t, deepest, 1)
		assert.LessOrEqual(t, deepest, 256)
		left, err := rdb.Keys(context.Background(), "*:lock").Result()
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}
