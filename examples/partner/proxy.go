package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// What the partner takes in a second, and what of that a tenant may have. All replicas must agree on the first, so it
// stands in one place.
const (
	perSecond = 100
	ofTenant  = 20
	waiting   = 200 // requests of one tenant that may wait: ten seconds
)

// proxy passes requests on to the partner.
type proxy struct {
	turns fairlock.KeyedSemaphore
	api   string
}

func newProxy(locks *fairlock.Client, api string) http.Handler {
	// A permit that is taken stays taken for a second. The TTL counts only if a replica crashes: then its permits come
	// free after two.
	p := &proxy{locks.KeyedSemaphore("partner", perSecond,
		fairlock.WithMinHold(time.Second), fairlock.WithTTL(2*time.Second), fairlock.WithKeyLimit(ofTenant)), api}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", p.pass)
	return mux
}

func (p *proxy) pass(w http.ResponseWriter, r *http.Request) {
	// Take the tenant from your authentication, because each key gets turns of its own.
	key := p.turns.Key(r.Header.Get("X-Tenant"), fairlock.WithMaxWaiters(waiting))
	lease, err := key.Acquire(r.Context(), 1)
	if err != nil {
		refuse(w, err)
		return
	}
	released := make(chan struct{})
	go func() { // the second goes on without it, so that only the starts are limited, and not how long requests take
		defer close(released)
		_ = lease.Unlock(context.WithoutCancel(r.Context())) // after an error, the permit comes free later
	}()
	defer func() { <-released }() // the client may be closed then
	w.Header().Set("X-Fence", strconv.FormatUint(lease.Fence(), 10))
	if err := p.ask(r, w); err != nil {
		http.Error(w, "the partner does not answer", http.StatusBadGateway)
	}
}

// refuse answers a request that was not begun.
func refuse(w http.ResponseWriter, err error) {
	slog.Info("not passed on", "err", err)
	w.Header().Set("Retry-After", "1")
	switch {
	case errors.Is(err, fairlock.ErrInvalid):
		http.Error(w, "X-Tenant must have 1 to 128 bytes", http.StatusBadRequest)
	case errors.Is(err, fairlock.ErrQueueFull):
		http.Error(w, "too many of your requests wait", http.StatusTooManyRequests)
	default: // ErrClosed, while it shuts down; Redis does not answer
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

// ask asks the partner, and copies the answer.
func (p *proxy) ask(r *http.Request, w io.Writer) error {
	if p.api == "" {
		_, err := io.WriteString(w, "hello\n")
		return err
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, p.api+r.URL.Path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New("partner: " + resp.Status)
	}
	_, err = io.Copy(w, resp.Body)
	return err
}
