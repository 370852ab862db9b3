package main

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// The one who was granted the lock after it had been shown keeps it.
func TestReleaseOnATerminalAsksAndTakesNothingFromAnotherOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{Name: "first"}).Mutex("x")
	lease := locked(t, m)

	for _, answer := range []string{"\n", "n\n", "what\n", ctrlD} {
		on := onTerminal(t, withEnv(command(t, serverURL(s), "release", "x", "--force"), "NO_COLOR=1"))
		on.expect("mutex x: held, nobody waits")
		on.expect(strconv.FormatUint(lease.Fence(), 10))
		on.expect("Take mutex x from first (fence " + strconv.FormatUint(lease.Fence(), 10) + ")? [y/N] ")
		on.enter(answer)
		code, text := on.rest()
		require.Equal(t, exitFailure, code)
		require.Contains(t, text, "fairlock: mutex x was not released\r\n")
		require.NoError(t, lease.Renew(t.Context()))
	}

	on := onTerminal(t, withEnv(command(t, serverURL(s), "release", "x", "--force"), "NO_COLOR=1"))
	on.expect("[y/N] ")
	on.enter(ctrlC)
	code, _ := on.rest()
	require.Negative(t, code, "it dies of SIGINT")
	require.NoError(t, lease.Renew(t.Context()))

	on = onTerminal(t, withEnv(command(t, serverURL(s), "release", "x", "--force"), "NO_COLOR=1"))
	on.expect("[y/N] ")
	require.NoError(t, lease.Unlock(t.Context()))
	lease = locked(t, onLock(t, s, fairlock.Config{Name: "second"}).Mutex("x"))
	on.enter("y\n")
	on.expect("mutex x was given back meanwhile; nothing was done; now held by second (fence " + strconv.FormatUint(lease.Fence(), 10))
	code, _ = on.rest()
	require.Equal(t, 0, code)
	require.NoError(t, lease.Renew(t.Context()))

	on = onTerminal(t, withEnv(command(t, serverURL(s), "release", "x", "--force"), "NO_COLOR=1"))
	on.expect("[y/N] ")
	on.enter("Yes\n")
	on.expect("mutex x was taken from second (fence ")
	on.rest()
	require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
	onlyFences(t, s.Client())
}
