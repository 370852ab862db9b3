package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// Of two requests for one customer, the second waits. Its spans, the metrics and the page show it.
func TestService(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended, spans := make(chan error, 1), make(chan string, 1)
	go func() {
		ended <- run(ctx, config{redis: "unix://" + redistest.Start(t).Addr(), addr: "127.0.0.1:0", password: "secret",
			work: 300 * time.Millisecond}, out)
		_ = out.Close()
	}()
	lines := bufio.NewReader(in)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimPrefix(strings.TrimSpace(first), "listening on ")
	send := func(method, path, password string) (status int, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		assert.NoError(t, err)
		req.SetBasicAuth("operator", password)
		resp, err := http.DefaultClient.Do(req)
		if !assert.NoError(t, err) {
			return 0, ""
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	go func() {
		rest, _ := io.ReadAll(lines)
		spans <- string(rest)
	}()
	const reports, waiting = "/customers/ann/reports",
		`fairlock_waiters{fairlock_kind="mutex",fairlock_name="report",fairlock_namespace="fairlock"`
	answers := make(chan int, 2)
	for range 2 {
		go func() {
			status, _ := send(http.MethodPost, reports, "")
			answers <- status
		}()
	}
	value := func(name string) string { // of the first metric whose line begins so
		_, metrics := send(http.MethodGet, "/metrics", "")
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, name) {
				fields := strings.Fields(line)
				return fields[len(fields)-1]
			}
		}
		return ""
	}
	require.Eventually(t, func() bool { return value(waiting) == "1" }, time.Minute, time.Millisecond)
	status, _ := send(http.MethodGet, "/locks/", "guess")
	assert.Equal(t, http.StatusUnauthorized, status)
	status, page := send(http.MethodGet, "/locks/", "secret")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, "report:ann")
	for range 2 {
		assert.Equal(t, http.StatusOK, <-answers)
	}
	assert.Equal(t, "0", value(waiting))
	assert.Equal(t, "2", value("fairlock_hold_duration_seconds_count"))
	stop()
	require.NoError(t, <-ended)
	count := map[string]int{}
	for _, m := range regexp.MustCompile(`"Name":"(fairlock\.\w+|POST .*?)"`).FindAllStringSubmatch(<-spans, -1) {
		count[m[1]]++
	}
	assert.Positive(t, count["fairlock.wait"], "the second one waited; the first one, if Redis took long")
	delete(count, "fairlock.wait")
	assert.Equal(t, map[string]int{"fairlock.hold": 2, "POST /customers/{customer}/reports": 2}, count)
}

func TestRun_NeedsAPassword(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), config{redis: "redis://localhost:1"}, io.Discard), "FAIRLOCK_PAGE_PASSWORD")
}
