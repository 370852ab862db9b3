package task_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/task"
)

// Close ends the leases in the order in which they began, and then of their tokens. It waits for the tasks.
func TestGroup_Close(t *testing.T) {
	g := task.NewGroup()
	var ended string
	for _, token := range []string{"d", "b", "c", "a"} {
		began := time.Unix(0, 0)
		if token == "d" {
			began = began.Add(-1)
		}
		require.NoError(t, g.Keep(&task.Lease{Lock: token, Began: began, Token: token, End: func() {
			g.Held() // no mutex is held
			ended += token
		}}))
	}
	n, name := g.Held()
	assert.Equal(t, 4, n)
	assert.Equal(t, "a", name)

	own, err := g.Begin()
	require.NoError(t, err)
	over := false
	own.Go(func(task.Task) {
		<-g.Life().Done()
		over = true
	})
	own.Stay(func(task.Task) { <-g.Life().Done() })
	own.End()
	g.Close()
	assert.Equal(t, "dabc", ended)
	assert.True(t, over)
	_, err = g.Begin()
	assert.Equal(t, errs.Closed, err)
	assert.Equal(t, errs.Closed, g.Keep(&task.Lease{}))
	assert.Equal(t, errs.Closed, errs.Ended(g.Open()))
}

// Shutdown ends Open at once, and closes the group when no lease and no task is left.
func TestGroup_Shutdown(t *testing.T) {
	g := task.NewGroup()
	lease := &task.Lease{End: func() { t.Error("it was dropped") }}
	require.NoError(t, g.Keep(lease))
	own, err := g.Begin()
	require.NoError(t, err)
	ctx, cancel := task.Joined(t.Context(), g.Open())
	defer cancel()
	result := make(chan error)
	go func() { result <- g.Shutdown(t.Context(), g.Close) }()
	<-ctx.Done()
	assert.Equal(t, errs.Closed, errs.Ended(ctx))
	g.Drop(lease)
	g.Drop(lease)
	assert.NoError(t, g.Life().Err(), "a task is under way")
	own.End()
	assert.NoError(t, <-result)
	assert.Error(t, g.Life().Err())
	assert.NoError(t, g.Shutdown(t.Context(), g.Close))
}

// If ctx ends first, the error says what is left, and the leases end. If Close is called meanwhile, it is Closed.
func TestGroup_ShutdownFails(t *testing.T) {
	for left, want := range map[string]string{
		"": "context canceled", "x": `context canceled: 1 lease is still held, of "x"`,
		"yx": `context canceled: 2 leases are still held, one of "x"`,
	} {
		g := task.NewGroup()
		ended := 0
		for _, name := range left {
			require.NoError(t, g.Keep(&task.Lease{Lock: string(name), Token: string(name), End: func() { ended++ }}))
		}
		own, err := g.Begin()
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.EqualError(t, g.Shutdown(ctx, g.Close), want)
		assert.Len(t, left, ended)
		own.End()
		g.Close()
	}
	g := task.NewGroup()
	_, err := g.Begin()
	require.NoError(t, err)
	g.End()
	assert.Equal(t, errs.Closed, g.Shutdown(t.Context(), func() {}))
}
