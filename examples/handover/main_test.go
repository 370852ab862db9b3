package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
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

func TestRun_TwoProcessesShareOneLease(t *testing.T) {
	server := redistest.Start(t)
	program := exec.CommandContext(t.Context(), os.Args[0])
	program.Env = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS=unix://"+server.Addr())
	out, err := program.CombinedOutput()
	require.NoError(t, err, "%s", out)
	said := regexp.MustCompile(
		`process (\d+) has begun, fence (\d+)\nprocess (\d+) goes on, fence (\d+)\n`).FindStringSubmatch(string(out))
	require.NotNil(t, said, "%s", out)
	assert.NotEqual(t, said[1], said[3])
	assert.Greater(t, said[4], said[2], "the fence") // both have 16 digits
	assert.Zero(t, server.Client().Exists(t.Context(), "fairlock:{import}:lock").Val(), "the lock is given back")
}

func TestFinish_TooLate(t *testing.T) {
	server := redistest.Start(t)
	url := "unix://" + server.Addr()
	handle, err := begin(t.Context(), url, func(*fairlock.Lease) {})
	require.NoError(t, err)
	require.EqualValues(t, 1, server.Client().Del(t.Context(), "fairlock:{import}:lock").Val()) // as when its TTL ends
	next, closeNext, err := connect(url)
	require.NoError(t, err)
	t.Cleanup(closeNext)
	lease, err := next.Mutex("import").TryLock(t.Context())
	require.NoError(t, err)
	nothing := func(context.Context, *fairlock.Lease) error { t.Error("it went on"); return nil }
	require.ErrorIs(t, finish(t.Context(), url, handle, nothing), fairlock.ErrLost)
	require.NoError(t, lease.Renew(t.Context()), "the other one's lock is untouched")

	err = finish(t.Context(), url, handle+"\n", nothing)
	require.ErrorIs(t, err, fairlock.ErrInvalid)
	assert.NotContains(t, err.Error(), string(handle)[len(handle)-30:])
}
