package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// BenchmarkDispatcher compares one command by plain go-redis (bare) with one whose caller may be blocked (blocking),
// and one that always has a sender (sender).
func BenchmarkDispatcher(b *testing.B) {
	rdb := redistest.StartTCP(b).Client()
	sha, err := rdb.ScriptLoad(b.Context(), "return 1").Result()
	require.NoError(b, err)
	d := dispatch.New(rdb, clock.System{})
	b.Cleanup(d.Close)
	for _, goroutines := range []int{1, 2, 8, 64} {
		for _, bench := range []struct {
			name string
			rdb  interface {
				EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
			}
			ctx context.Context
		}{
			{"bare", rdb, b.Context()},
			{"blocking", d, dispatch.Blocking(b.Context())},
			{"sender", d, b.Context()},
		} {
			b.Run(fmt.Sprintf("%d goroutines/%s", goroutines, bench.name), func(b *testing.B) {
				b.ReportAllocs()
				var callers sync.WaitGroup
				var calls atomic.Int64
				for range goroutines {
					callers.Go(func() {
						for calls.Add(1) <= int64(b.N) {
							if err := bench.rdb.EvalSha(bench.ctx, sha, []string{"key"}, "argument").Err(); err != nil {
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
