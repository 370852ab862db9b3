package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// called runs the command and returns its exit code and what it wrote.
func called(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

func TestMistakesAreOneLineAndExitWith2(t *testing.T) {
	for _, args := range [][]string{
		{"dmeo"},
		{"demo", "--colour"},
		{"demo", "extra"},
		{"demo", "--clients", "two"},
		{"demo", "--clients", "2"},
		{"demo", "--workers", "0"},
		{"demo", "--kind", "spinlock"},
		{"demo", "--kind", "semaphore", "--permits", "0"},
		{"demo", "--permits", "5"},
		{"demo", "--kind", "rw", "--permits", "0"},
		{"demo", "--ttl", "1ms", "--patience", "1h", "--hold", "-1s", "--duration", "0"},
		{"demo", "--redis", "http://localhost"},
	} {
		code, out, errs := called(args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, out)
		require.Regexp(t, `^fairlock: [^\n]+\n$`, errs)
	}
}

func TestMistakenURLKeepsItsPassword(t *testing.T) {
	code, _, errs := called("demo", "--redis", "redis://u:secret@[::1/0")
	require.Equal(t, 2, code)
	require.NotContains(t, errs, "secret")
}

func TestServerOutOfReachIsOneLineAndExitsWith1(t *testing.T) {
	code, out, errs := called("demo", "--redis", "unix:///nowhere/redis.sock")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Regexp(t, `^fairlock: redis at /nowhere/redis.sock: [^\n]+\n$`, errs)
}

func TestDemoExitsWith0(t *testing.T) {
	for promise, kind := range map[string][]string{
		"one holder at a time":             nil,
		"never more than 3 permits in use": {"--kind", "semaphore", "--permits", "3"},
		"every writer alone":               {"--kind", "rw"},
	} {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			code, out, errs := called(append([]string{"demo", "--clients", "3", "--workers", "2", "--duration", "300ms"}, kind...)...)
			require.Equal(t, 0, code, errs)
			require.Empty(t, errs)
			require.Contains(t, out, "ok  "+promise+", everybody in order")
		})
	}
}

func TestClientsProcessIsNotForUsers(t *testing.T) {
	_, out, _ := called("--help")
	require.Contains(t, out, "demo ")
	require.NotContains(t, out, "demo-client")
	code, _, errs := called("demo-client")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "started by demo")
}
