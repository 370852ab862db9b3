package fairlock_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Redis does not undo what a script has written before one of its commands is refused.
//
//fairlock:fault A script fails half-way: Lock returns the error, and what the script had granted or queued is removed at once
func TestLock_LeavesAfterAScriptThatFailed(t *testing.T) {
	const failed = "ERR The user executing the script can't run this command or subcommand script: 0123, on @user_script:3."
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{})
		requests := 0
		client.Redis.AddHook(&recorder{change: func(cmd redis.Cmder) {
			if !strings.HasPrefix(cmd.Name(), "eval") {
				return
			}
			if requests++; requests%2 == 1 {
				cmd.SetErr(refusal(failed))
			}
		}})
		_, err := client.Mutex("x").Lock(t.Context()) // granted in Redis
		require.ErrorContains(t, err, "can't run this command")
		_, err = client.Semaphore("x", 2).TryAcquire(t.Context(), 1)
		require.ErrorContains(t, err, "can't run this command")
		server.Mutex("y").TakeAs("other")
		_, err = client.Mutex("y").Lock(t.Context()) // queued in Redis
		require.ErrorContains(t, err, "can't run this command")
		state, err := server.Client(fairlock.Config{}).Mutex("y").Inspect(t.Context())
		require.NoError(t, err)
		assert.Zero(t, state.Waiting)
		assert.Equal(t, 6, requests, "acquire and leave of each")
		for _, key := range server.Miniredis.Keys() {
			assert.True(t, strings.HasSuffix(key, ":fence") || key == "fairlock:{y}:lock", "%s is left", key)
		}
	})
}
