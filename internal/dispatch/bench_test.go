package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// BenchmarkDispatcher compares one command by plain go-redis (bare) with a request that is sent inline if it is alone,
// and one that always has a sender (sender).
func BenchmarkDispatcher(b *testing.B) {
	server := redistest.StartTCP(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Client().Options().Addr, ContextTimeoutEnabled: true})
	b.Cleanup(func() { _ = rdb.Close() })
	require.NoError(b, rdb.ScriptLoad(b.Context(), script.Text).Err())
	d := dispatch.New(rdb, clock.System{}, func(string, error) {})
	b.Cleanup(d.Close)
	deadline, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	request := dispatch.Request{Script: script, Keys: []string{"key"}, Args: []any{"argument"}}
	for _, goroutines := range []int{1, 2, 8, 64} {
		for _, bench := range []struct {
			name string
			rdb  interface {
				Send(ctx context.Context, r dispatch.Request) (any, error)
			}
			ctx context.Context
		}{
			{"bare", dispatch.NewDirect(rdb), b.Context()},
			{"inline", d, deadline},
			{"sender", d, b.Context()},
		} {
			b.Run(fmt.Sprintf("%d goroutines/%s", goroutines, bench.name), func(b *testing.B) {
				b.ReportAllocs()
				var callers sync.WaitGroup
				var calls atomic.Int64
				for range goroutines {
					callers.Go(func() {
						for calls.Add(1) <= int64(b.N) {
							if _, err := bench.rdb.Send(bench.ctx, request); err != nil {
								b.Error(err)
							}
						}
					})
				}
				callers.Wait()
			})
		}
	}
}
