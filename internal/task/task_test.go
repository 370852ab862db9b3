package task_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/task"
)

// Drain waits for tasks, also those that other tasks start, and for leases, not for what stays. Then nothing begins any more.
func TestGroup_Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := task.NewGroup()
		first, err := g.Begin()
		require.NoError(t, err)
		lease, err := g.Keep("a", func() { t.Error("the lease was ended") })
		require.NoError(t, err)
		first.Stay(func(task.Task) { <-g.Life().Done() })
		proceed := make(chan struct{})
		first.Go(func(task.Task) { <-proceed })
		drained := g.Drain()
		require.ErrorIs(t, errs.Ended(g.Open()), errs.Closed)
		require.NoError(t, g.Life().Err())
		for _, step := range []func(){first.End, func() { close(proceed) }, lease.Drop} {
			assert.False(t, closed(drained))
			second, err := g.Begin()
			require.NoError(t, err, "it goes on until it is drained")
			second.End()
			step()
			synctest.Wait()
		}
		assert.True(t, closed(drained))
		lease.Drop()
		_, err = g.Begin()
		require.ErrorIs(t, err, errs.Closed)
		_, err = g.Keep("b", nil)
		require.ErrorIs(t, err, errs.Closed)
		g.Close()
	})
}

// Close ends the leases in their order, ends Life, and waits for the tasks under way.
func TestGroup_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := task.NewGroup()
		var ended []string
		for _, name := range []string{"a", "b", "c"} {
			kept, err := g.Keep(name, func() { ended = append(ended, name) })
			require.NoError(t, err)
			if name == "b" {
				kept.Drop()
			}
		}
		assert.Equal(t, []any{"a", "c"}, g.All())
		first, err := g.Begin()
		require.NoError(t, err)
		proceed, over := make(chan struct{}), make(chan struct{})
		first.Go(func(task.Task) { <-proceed })
		first.End()
		g.End()
		assert.Equal(t, []string{"a", "c"}, ended)
		assert.Empty(t, g.All())
		require.ErrorIs(t, errs.Ended(g.Life()), errs.Closed)
		go func() {
			defer close(over)
			g.Close()
		}()
		synctest.Wait()
		assert.False(t, closed(over))
		close(proceed)
		<-over
		g.Close()
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
