package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// span is what stdouttrace writes, as far as this test looks at it.
type span struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ SpanID string }
	Links       []struct{ SpanContext struct{ SpanID string } }
}

// service is the program, in this process.
type service struct {
	t     *testing.T
	url   string
	spans chan []span // all of them, when it has ended
	stop  func() error
}

func start(t *testing.T, cfg config) service {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	in, out := io.Pipe()
	go func() {
		ended <- run(ctx, cfg, out)
		_ = out.Close()
	}()
	lines := bufio.NewReader(in)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	url, found := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	require.True(t, found, first)
	s := service{t, url, make(chan []span, 1), func() error { cancel(); return <-ended }}
	go func() {
		var all []span
		for decoder := json.NewDecoder(lines); ; {
			var one span
			if err := decoder.Decode(&one); err != nil {
				s.spans <- all
				return
			}
			all = append(all, one)
		}
	}()
	return s
}

// send returns the status and the body of an answer.
func (s service) send(method, path, password string) (status int, body string) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	if !assert.NoError(s.t, err) {
		return 0, ""
	}
	if password != "" {
		req.SetBasicAuth("operator", password)
	}
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(s.t, err) {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	assert.NoError(s.t, err)
	return resp.StatusCode, string(text)
}

// Of two requests for one customer, the second waits. Its spans, the metrics and the page show it.
func TestService(t *testing.T) {
	t.Parallel()
	s := start(t, config{
		redis: "unix://" + redistest.Start(t).Addr(), addr: "127.0.0.1:0", password: "secret", work: 300 * time.Millisecond,
	})
	const reports, waiting = "/customers/ann/reports",
		`fairlock_waiters{fairlock_kind="mutex",fairlock_name="report",fairlock_namespace="fairlock"`
	answers := make(chan int, 2)
	for range 2 {
		go func() {
			status, _ := s.send(http.MethodPost, reports, "")
			answers <- status
		}()
	}
	value := func(name string) string { // of the first metric whose line begins so
		_, metrics := s.send(http.MethodGet, "/metrics", "")
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, name) {
				fields := strings.Fields(line)
				return fields[len(fields)-1]
			}
		}
		return ""
	}
	for until := time.Now().Add(time.Minute); value(waiting) != "1"; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(until), "no waiters")
	}
	status, _ := s.send(http.MethodGet, "/locks/", "")
	assert.Equal(t, http.StatusUnauthorized, status)
	status, _ = s.send(http.MethodGet, "/locks/", "guess")
	assert.Equal(t, http.StatusUnauthorized, status)
	status, page := s.send(http.MethodGet, "/locks/", "secret")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, page, "report:ann")
	for range 2 {
		assert.Equal(t, http.StatusOK, <-answers)
	}
	assert.Equal(t, "0", value(waiting))
	assert.Equal(t, "2", value("fairlock_hold_duration_seconds_count"))
	require.NoError(t, s.stop())

	spans := <-s.spans
	ids := map[string]string{} // the name of each span
	for _, one := range spans {
		ids[one.SpanContext.SpanID] = one.Name
	}
	names := map[string]int{}
	for _, one := range spans {
		if strings.HasPrefix(one.Name, "fairlock.") {
			names[one.Name]++
			assert.Equal(t, "POST /customers/{customer}/reports", ids[one.Parent.SpanID], one.Name)
		}
		for _, link := range one.Links {
			assert.Equal(t, []string{"fairlock.hold", "fairlock.wait"}, []string{one.Name, ids[link.SpanContext.SpanID]})
			names["link"]++
		}
	}
	waits := names["fairlock.wait"]
	assert.Positive(t, waits, "the second one waited; the first one, if Redis took long")
	assert.Equal(t, map[string]int{"fairlock.wait": waits, "fairlock.hold": 2, "link": waits}, names)
}

func TestRun_NeedsAPassword(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), config{redis: "redis://localhost:1"}, io.Discard), "FAIRLOCK_PAGE_PASSWORD")
}
