package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/examples/internal/soon"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

func newTransport(t *testing.T, options *redis.Options, permits int, ttl time.Duration) *Transport {
	t.Helper()
	rdb := redis.NewClient(options)
	client, err := fairlock.New(rdb, fairlock.Config{TTL: ttl})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); rdb.Close() })
	return &Transport{Permits: client.Semaphore("fragile-api", permits)}
}

func serve(t *testing.T, handle http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

func TestNoMoreRequestsAreUnderWayThanTheAPIBears(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	full := make(chan struct{})
	var arrived atomic.Int32
	api := &fragile{bears: permits, work: func() {
		if arrived.Add(1) == permits {
			close(full)
		}
		select {
		case <-full: // all permits are in use at once
		case <-ctx.Done():
		}
	}}
	url := serve(t, api.ServeHTTP)
	var wg sync.WaitGroup
	for range 4 {
		client := &http.Client{Transport: newTransport(t, server.Options(), permits, time.Minute)}
		for range 25 {
			wg.Go(func() {
				if err := get(ctx, client, url); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	assert.Equal(t, permits, api.most())
}

func TestAPermitIsHeldUntilTheBodyIsClosed(t *testing.T) {
	ctx := soon.Context(t)
	transport := newTransport(t, redistest.Start(t).Options(), 1, time.Minute)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	resp, err := (&http.Client{Transport: transport}).Get(url)
	require.NoError(t, err)
	_, err = transport.Permits.TryAcquire(ctx, 1)
	require.ErrorIs(t, err, fairlock.ErrBusy)

	require.NoError(t, resp.Body.Close())
	require.NoError(t, resp.Body.Close())
	lease, err := transport.Permits.TryAcquire(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
}

func TestARequestWaitsNoLongerThanItsContext(t *testing.T) {
	transport := newTransport(t, redistest.Start(t).Options(), 1, time.Minute)
	lease, err := transport.Permits.Acquire(t.Context(), 1)
	require.NoError(t, err)
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request without a permit") })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	body := &closer{Reader: strings.NewReader("a question")}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	require.NoError(t, err)
	_, err = transport.RoundTrip(req)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.True(t, body.closed)
	require.NoError(t, lease.Unlock(t.Context()))
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestARequestEndsWithItsLease(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server)
	slow := newTransport(t, &redis.Options{Network: "unix", Addr: link.Addr()}, 1, time.Second)
	next := newTransport(t, server.Options(), 1, time.Minute)
	var requests atomic.Int32
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			link.Cut() // the lease cannot be renewed any more
			<-r.Context().Done()
		}
	})
	err := get(ctx, &http.Client{Transport: slow}, url)
	require.ErrorIs(t, err, fairlock.ErrLost)
	require.NoError(t, get(ctx, &http.Client{Transport: next}, url), "the permit is back when its TTL is over")
}

func TestAFailedRequestGivesItsPermitBack(t *testing.T) {
	ctx := soon.Context(t)
	transport := newTransport(t, redistest.Start(t).Options(), 1, time.Minute)
	broken := errors.New("no route")
	transport.Next = roundTripper(func(*http.Request) (*http.Response, error) { return nil, broken })
	require.ErrorIs(t, get(ctx, &http.Client{Transport: transport}, "http://api.invalid"), broken)
	lease, err := transport.Permits.TryAcquire(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(ctx))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTheProgramDoesNotBreakTheAPI(t *testing.T) {
	ctx := soon.Context(t)
	require.NoError(t, run(ctx, "unix://"+redistest.Start(t).Addr(), 3, 20))
}
