package main

import (
	"io"
	"net/http"
	"sync"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Transport is an http.RoundTripper that takes a permit for each request, waiting in line for it if it must, and gives
// it back when the body of the response is closed: until then the request is under way.
type Transport struct {
	Permits fairlock.Semaphore
	Next    http.RoundTripper // http.DefaultTransport if it is nil
}

// RoundTrip waits for a permit for as long as the request's context lasts. If the lease on it is lost, the request is
// cancelled, because somebody else may have the permit then.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	lease, err := t.Permits.Acquire(req.Context(), 1)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper must, also after an error
		}
		return nil, err
	}
	ctx, cancel := lease.Context(req.Context())
	release := sync.OnceFunc(func() {
		cancel()
		_ = lease.Unlock(ctx) // a permit that cannot be given back comes free when its TTL ends
	})
	next := t.Next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		release()
		return nil, err // with the cause of ctx's end: ErrLost, if it was that
	}
	resp.Body = &body{resp.Body, release}
	return resp, nil
}

// body gives the permit back when it is closed.
type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
