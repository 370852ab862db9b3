package fairlocktest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

func TestServer_LeaseLostAfterAnHourOfRenewals(t *testing.T) {
	job := func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration)) {
		client := server.Client(fairlock.Config{})
		begun, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- client.Mutex("billing").Do(t.Context(), func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-begun
		pass(time.Hour)
		server.Mutex("billing").AssertHeldBy("client-1")
		client.Link.Cut()
		pass(fairlock.DefaultTTL)
		require.ErrorIs(t, <-ended, fairlock.ErrLost)
		server.Mutex("billing").AssertFree()
	}
	t.Run("in a bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			job(t, fairlocktest.NewServer(t), time.Sleep)
		})
	})
	t.Run("by a clock", func(t *testing.T) {
		clock := fairlocktest.NewClock(t)
		job(t, fairlocktest.NewServerWithClock(t, clock), clock.Advance)
	})
}

func TestServer_WaitersInOrder(t *testing.T) {
	work := func(t *testing.T, server *fairlocktest.Server, pass func(time.Duration)) {
		lock := server.Mutex("x")
		first := lock.HoldAs("first")
		var order []string
		done := make(chan string, 3)
		var workers sync.WaitGroup
		for i, name := range []string{"a", "b", "c"} {
			client := server.Client(fairlock.Config{Name: name})
			workers.Go(func() {
				lease, err := client.Mutex("x").Lock(context.Background())
				if err != nil {
					t.Error(err)
				}
				done <- name
				if err := lease.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			})
			lock.WaitQueued(i + 1)
		}
		lock.AssertHeldBy("first")
		lock.AssertQueue("a", "b", "c")
		pass(time.Minute)
		lock.AssertQueue("a", "b", "c")
		require.NoError(t, first.Unlock(context.Background()))
		workers.Wait()
		close(done)
		for name := range done {
			order = append(order, name)
		}
		assert.Equal(t, []string{"a", "b", "c"}, order)
		lock.AssertFree()
		server.AssertNothingLeft()
	}
	t.Run("in a bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			work(t, fairlocktest.NewServer(t), time.Sleep)
		})
	})
	t.Run("by a clock", func(t *testing.T) {
		clock := fairlocktest.NewClock(t)
		work(t, fairlocktest.NewServerWithClock(t, clock), clock.Advance)
	})
	t.Run("by the system's time", func(t *testing.T) {
		work(t, fairlocktest.NewServer(t), func(time.Duration) {})
	})
}
