package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/examples/internal/soon"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// asProgram has the test binary be the program, in its first process and in its second, which inherits it.
const asProgram = "FAIRLOCK_EXAMPLE_HANDOVER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// other wants the lock too: queued tells when it is in line, and leases when it has it.
func other(t *testing.T, s *redistest.Server) (queued <-chan struct{}, leases <-chan *fairlock.Lease) {
	t.Helper()
	joined, got := make(chan struct{}, 1), make(chan *fairlock.Lease, 1)
	rdb := redis.NewClient(s.Options())
	client, err := fairlock.New(rdb, fairlock.Config{
		Trace: &fairlock.Trace{Queued: func(fairlock.QueuedInfo) { joined <- struct{}{} }},
	})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); rdb.Close() })
	go func() {
		lease, err := client.Mutex("import").Lock(t.Context())
		assert.NoError(t, err)
		got <- lease
	}()
	return joined, got
}

func TestTheLockGoesFromOneProcessToTheOtherAndNobodyGetsInBetween(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	url := "unix://" + server.Addr()
	var fence uint64
	text, err := begin(ctx, url, func(lease *fairlock.Lease) { fence = lease.Fence() })
	require.NoError(t, err)
	queued, leases := other(t, server)
	soon.Receive(t, queued)

	require.NoError(t, finish(ctx, url, text, func(_ context.Context, lease *fairlock.Lease) error {
		assert.Equal(t, fence, lease.Fence())
		assert.Empty(t, leases)
		return nil
	}))
	assert.Greater(t, soon.Receive(t, leases).Fence(), fence)
}

func TestWhoComesTooLateDoesNothing(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	url := "unix://" + server.Addr()
	text, err := begin(ctx, url, func(*fairlock.Lease) {})
	require.NoError(t, err)
	_, leases := other(t, server)
	lease := soon.Receive(t, leases) // once the TTL has passed
	nothing := func(context.Context, *fairlock.Lease) error { t.Error("it went on"); return nil }
	require.ErrorIs(t, finish(ctx, url, text, nothing), fairlock.ErrLost)
	require.NoError(t, lease.Renew(ctx), "the other one's lock is untouched")

	err = finish(ctx, url, text[1:]+"\n", nothing)
	require.ErrorIs(t, err, token.ErrMalformed)
	assert.NotContains(t, err.Error(), text[len(text)-22:])
}

func TestTwoProcessesShareOneLease(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	program := exec.CommandContext(ctx, os.Args[0])
	program.Env = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS=unix://"+server.Addr())
	out, err := program.CombinedOutput()
	require.NoError(t, err, "%s", out)
	said := regexp.MustCompile(`process (\d+) has begun, fence (\d+)\nprocess (\d+) goes on, fence (\d+)\n`).
		FindStringSubmatch(string(out))
	require.NotNil(t, said, "%s", out)
	assert.NotEqual(t, said[1], said[3])
	assert.Equal(t, said[2], said[4])
	left, err := server.Client().Keys(ctx, "*").Result()
	require.NoError(t, err)
	assert.Equal(t, "fairlock:{import}:fence", strings.Join(left, " "), "the lock is given back")
}
