//go:build unix

package chaos_test

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/internal/skew"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// Each waiter of a queue is granted the lock once, in order, though the server's clock steps, stalls or restarts meanwhile:
// CHAOS_TIME=1m go test -run TestOrder -v
//
//fairlock:promise Order
func TestOrder(t *testing.T) {
	if os.Getenv("CHAOS_TIME") == "" {
		t.Skip("no CHAOS_TIME")
	}
	for name, disturb := range map[string]func(*redistest.Server, *skew.Clock){
		"the clock steps by 10 s": func(_ *redistest.Server, clock *skew.Clock) { assert.NoError(t, clock.Step(10*time.Second)) },
		"restart, 3 s down": func(s *redistest.Server, _ *skew.Clock) {
			s.Shutdown()
			time.Sleep(fairlock.MinWaiterTTL) // down for as long as the waiters' tickets last
			s.Run()
		},
		"ten stalls": func(s *redistest.Server, _ *skew.Clock) {
			for i := range 10 {
				s.Pause()
				time.Sleep(time.Second/2 + time.Duration(i)*833*time.Millisecond) // 0.5 to 8 s
				s.Continue()
				time.Sleep(time.Second) // a heartbeat of each client
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock, err := skew.New(t.TempDir())
			require.NoError(t, err)
			defer func() { assert.NoError(t, clock.Close()) }()
			for name, value := range clock.Env() {
				t.Setenv(name, value)
			}
			s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			var mu sync.Mutex
			var grants []fairlock.GrantedInfo
			var clients [4]*fairlock.Client
			for i := range clients {
				clients[i], err = fairlock.New(s.Client(), fairlock.Config{
					WaiterTTL: fairlock.MinWaiterTTL, Logger: slog.New(slog.DiscardHandler),
					Trace: &fairlock.Trace{Granted: func(g fairlock.GrantedInfo) {
						mu.Lock()
						defer mu.Unlock()
						grants = append(grants, g)
					}},
				})
				require.NoError(t, err)
				defer clients[i].Close()
			}
			held, err := clients[0].Mutex("x").WithTTL(time.Hour).Lock(t.Context())
			require.NoError(t, err)
			var workers sync.WaitGroup
			for i := range 200 {
				workers.Go(func() {
					time.Sleep(time.Duration(3-i%4) * time.Second / 4) // the clients' heartbeats are apart
					assert.NoError(t, clients[i%4].Mutex("x").Do(t.Context(), func(context.Context) error {
						time.Sleep(2 * time.Millisecond) // uses the lock
						return nil
					}))
				})
			}
			require.Eventually(t, func() bool {
				state, err := clients[0].Mutex("x").Inspect(t.Context())
				return err == nil && state.Waiting == 200
			}, time.Minute, 10*time.Millisecond)
			disturb(s, clock)
			require.NoError(t, held.Unlock(t.Context()))
			workers.Wait()
			inversions := 0
			for i, a := range grants {
				for _, b := range grants[i+1:] {
					if (a.Ticket < b.Ticket) != (a.Fence < b.Fence) {
						inversions++
					}
				}
			}
			assert.Zero(t, inversions, "inversions of %d pairs", len(grants)*(len(grants)-1)/2)
		})
	}
}
