//go:build unix

package main

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// The page answers to the names that it has. Which rights it needs is tested in package ui.
func TestUI(t *testing.T) {
	f := newFixture(t)
	f.server = redistest.StartTCP(t)
	f.url = "redis://" + f.server.Addr()
	lease := f.hold(f.client("web-1").Mutex("x").Lock)
	page := f.start(f.command("ui", "--addr", "127.0.0.1:0", "--host", "locks.internal"))
	url, where, _ := strings.Cut(strings.TrimPrefix(page.expect("\n"), "listening on "), " ")
	require.Equal(t, "(Redis "+f.server.Addr()+", namespace "+f.namespace+")", where)
	get := func(path, host string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		require.NoError(t, err)
		r.Host = host
		reply, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer func() { _ = reply.Body.Close() }()
		body, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		return reply.StatusCode, string(body)
	}
	for _, host := range []string{"", "localhost", "LOCALHOST:7380", "192.0.2.1:80", "[::1]:80", "locks.internal"} {
		code, body := get("", host)
		require.Equal(t, http.StatusOK, code, host)
		require.Contains(t, body, "web-1")
		require.Contains(t, body, "complete")
	}
	for _, host := range []string{"evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "x"} {
		code, body := get("lock?kind=mutex&name=x", host)
		require.Equal(t, http.StatusMisdirectedRequest, code, host)
		require.NotContains(t, body, "web-1")
	}
	require.NoError(t, lease.Unlock(t.Context()))
	page.signal(syscall.SIGTERM)
	require.Equal(t, result{}, page.wait())
	refused(t, f.call("ui", "--addr", "192.0.2.1:80"), exitFailure, "--addr: listen")
}
