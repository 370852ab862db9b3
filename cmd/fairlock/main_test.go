package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestDemoExitsWith0(t *testing.T) {
	for promise, kind := range map[string][]string{
		"one holder at a time":             nil,
		"never more than 3 permits in use": {"--kind", "semaphore", "--permits", "3"},
		"every writer alone":               {"--kind", "rw"},
	} {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			r := call(t, "", append([]string{"demo", "--clients", "3", "--workers", "2", "--duration", "300ms", "--patience", "3s"}, kind...)...)
			require.Equal(t, 0, r.code, r.errs)
			require.Empty(t, r.errs)
			require.Contains(t, r.out, "ok  "+promise+", everybody in order")
		})
	}
}

func TestDemoOnAServerThatIsAwayExitsWith69(t *testing.T) {
	away := []string{"demo", "--redis", "unix:///nowhere/redis.sock"}
	refused(t, call(t, "", away...), exitUnreachable, "/nowhere/redis.sock")
	refused(t, call(t, "", append(away, "--clients", "2")...), exitUsage, "clients")
	refused(t, call(t, "", append(away, "--permits", "2")...), exitUsage, "--kind semaphore")
}

func TestDemoConnectsAsTheOthersDo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Pause()
	defer s.Continue()
	began := time.Now()
	refused(t, call(t, "", "demo", "--redis", serverURL(s)), exitUnreachable, "no answer within 5s")
	require.GreaterOrEqual(t, time.Since(began), connecting)
}

func TestInnerCommandsAreNotForUsers(t *testing.T) {
	out := call(t, "", "--help").out
	require.Contains(t, out, "demo ")
	for _, inner := range []string{"demo-client", "run-guard", "run-cmd"} {
		require.NotContains(t, out, inner)
		r := call(t, "", inner)
		require.Equal(t, 1, r.code)
		require.Regexp(t, `^fairlock: .*started by [^\n]+\n$`, r.errs)
	}
}
