package dispatch_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
)

// exiting is a hook that ends its goroutine, as testing.T.FailNow does, if a command has the key "exit".
type exiting struct{ server }

func (e *exiting) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return e.run(ctx, cmd) }
}

func (e *exiting) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return e.run(ctx, cmds...) }
}

func (e *exiting) run(ctx context.Context, cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		if cmd.Args()[3] == "exit" {
			runtime.Goexit()
		}
	}
	return e.server.run(cmds...)
}

// A hook that ends its goroutine leaves no caller waiting, and no sender fewer.
func TestDispatcher_HookThatEndsItsGoroutine(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := dispatch.New(kind.wrap(client(t, &exiting{})), clock.System{})
				defer d.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for range 3 {
					var callers sync.WaitGroup
					for range 100 {
						callers.Go(func() { assert.ErrorContains(t, send(ctx, d, "exit"), "hook") })
					}
					callers.Wait()
				}
				for i := range 10 {
					require.NoError(t, send(ctx, d, strconv.Itoa(i)))
				}
			})
		})
	}
}
