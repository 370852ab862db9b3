package task_test

import (
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
