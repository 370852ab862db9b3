package fairlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

func TestNew_RefusesARing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}})
	defer func() { _ = ring.Close() }()
	_, err := fairlock.New(ring, fairlock.Config{})
	require.ErrorIs(t, err, fairlock.ErrInvalid)
	require.ErrorContains(t, err, "invalid rdb: must not be a *redis.Ring")
	var universal redis.UniversalClient = ring
	_, err = fairlock.New(universal, fairlock.Config{})
	require.ErrorIs(t, err, fairlock.ErrInvalid)
}

type caller struct{} // key of a value in a caller's ctx

// counter is a hook that counts commands and connections.
type counter struct {
	mu       sync.Mutex
	commands map[string]int
	dials    int
}

func (c *counter) note(ctx context.Context, cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.commands == nil {
		c.commands = map[string]int{}
	}
	for _, cmd := range cmds {
		c.commands[cmd.Name()]++
	}
	if ctx.Value(caller{}) != nil {
		c.commands["with the caller's ctx"] += len(cmds)
	}
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c.mu.Lock()
		c.dials++
		c.mu.Unlock()
		return next(ctx, network, addr)
	}
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.note(ctx, cmds...)
		return next(ctx, cmds)
	}
}

// Hooks of the user's client, and so its instrumentation, see every request once. One that is alone has its caller's ctx.
func TestClient_HooksSeeEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pairs = 100
		ends, cancel := context.WithCancel(context.Background())
		defer cancel()
		for name, ctx := range map[string]context.Context{"can end": ends, "cannot end": context.Background()} {
			client := fairlocktest.NewServer(t).Client(fairlock.Config{})
			warm, err := client.Mutex("warm").Lock(ctx)
			require.NoError(t, err)
			require.NoError(t, warm.Unlock(ctx))
			var seen counter
			client.Redis.AddHook(&seen)
			ctx = context.WithValue(ctx, caller{}, 1)
			for range pairs {
				lease, err := client.Mutex("x").Lock(ctx)
				require.NoError(t, err)
				require.NoError(t, lease.Unlock(ctx))
			}
			assert.Equal(t, map[string]int{"evalsha": 2 * pairs, "with the caller's ctx": 2 * pairs}, seen.commands, name)

			var all sync.WaitGroup
			for i := range pairs {
				all.Go(func() { // in pipelines
					lease, err := client.Mutex(fmt.Sprint(i)).Lock(ctx)
					if assert.NoError(t, err) {
						assert.NoError(t, lease.Unlock(ctx))
					}
				})
			}
			all.Wait()
			assert.Equal(t, 4*pairs, seen.commands["evalsha"], name)
		}
	})
}

// Over a long way, after a rest, a pair takes two commands and no further connection.
func TestClient_LongRoundTrip(t *testing.T) {
	for _, rtt := range []time.Duration{60 * time.Millisecond, 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			client := fairlocktest.NewServer(t).Client(fairlock.Config{})
			client.Link.Delay(rtt/2, rtt/2)
			pair := func() {
				lease, err := client.Mutex("x").Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, lease.Unlock(t.Context()))
			}
			pair()
			var seen counter
			client.Redis.AddHook(&seen)
			for range 5 {
				time.Sleep(time.Minute)
				start := time.Now()
				pair()
				assert.Equal(t, 2*rtt, time.Since(start))
			}
			assert.Equal(t, map[string]int{"evalsha": 10}, seen.commands)
			assert.Zero(t, seen.dials)
		})
	}
}

// A loss is logged to the default logger, unless Config says otherwise.
func TestClient_LogsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		server := fairlocktest.NewServer(t)
		silent := slog.New(slog.DiscardHandler)
		for _, cfg := range []fairlock.Config{{}, {Logger: silent}} {
			cfg.NoRenewal = true
			client, err := fairlock.New(server.Link().Redis(), cfg)
			require.NoError(t, err)
			defer client.Close()
			lease, err := client.Mutex("x").Lock(t.Context())
			require.NoError(t, err)
			<-lease.Done()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN msg=\"lock lost\" lock=x")), log.String())
	})
}
