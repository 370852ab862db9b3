package fairlock_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// inBubble returns a client on an in-memory server that belongs to the bubble: nothing leaves it, so its time is fake.
func inBubble(t *testing.T, cfg fairlock.Config) *fairlock.Client {
	t.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // keys expire by the bubble's clock
	rdb := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379", // never dialled, but a host name would be looked up outside the bubble
		Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
	})
	client, err := fairlock.New(rdb, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = client.Close(), rdb.Close(), 0; server.Close() })
	return client
}

func TestAWaiterGetsInAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := inBubble(t, fairlock.Config{NoRenewal: true, TTL: time.Minute})
		job := client.Mutex("nightly-job")
		if _, err := job.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := job.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Log(time.Since(began))
		_, err := job.TryLock(t.Context())
		if !errors.Is(err, fairlock.ErrBusy) {
			t.Fatal(err)
		}
	})
}
