package limithttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Acquirer is a [fairlock.Semaphore], or one of a key.
type Acquirer interface {
	Acquire(ctx context.Context, n int) (*fairlock.Lease, error)
	TryAcquire(ctx context.Context, n int) (*fairlock.Lease, error)
}

// Config says what limits a handler. Limit is required.
type Config struct {
	// Limit returns the semaphore of a request and how many permits the request needs. A nil Acquirer means that the
	// request is not limited. An error is answered by 400.
	Limit func(r *http.Request) (limit Acquirer, permits int, err error)

	// Try refuses a request that would have to wait.
	Try bool

	// StartsOnly limits how many requests start, with a semaphore that has a minimum hold (fairlock.WithMinHold). The
	// permit is released at once, and the request keeps its own ctx.
	StartsOnly bool

	// MaxBody is how many bytes of an HTTP/1 body are read before the wait, so that the server notices a client that goes
	// away. The default is 64 KiB. A negative number means none, for clients that send the rest after a first answer.
	MaxBody int64

	// OpenLimit is how many requests at once are served without a permit while Redis cannot be reached
	// (fairlock.ErrUnreachable). The default is none. Set fairlock.WithMaxOutage below WithMaxWait. Without it, a
	// request waits for as long as its client, or until ErrWaitTimeout, which does not open the limit. A refusal by
	// Redis, such as a missing right, serves nothing.
	OpenLimit int

	// Refuse answers a request that is not served. Retry-After is set. The default is http.Error with the status.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, err error)

	// Done is called for each refused request, with its status and the error of the semaphore. It is also called with
	// status 0 for a request that was served without a permit, with the error. And it is called with status 0 and a
	// fairlock.ErrLost if the lease was lost while the request was served. It is called when the request has been
	// served or refused.
	Done func(r *http.Request, status int, err error)
}

// statusClientClosed is what nginx logs for a client that has gone away. Nobody reads the answer.
const statusClientClosed = 499

// handler is what Handler returns.
type handler struct {
	next http.Handler
	cfg  Config
	open chan struct{} // a token for each request that is served without a permit
}

// Handler returns a handler that calls next while the request holds the permits of its limit. It panics if next or
// cfg.Limit is nil.
//
// The ctx of the request that next gets also ends when the lease is lost, unless StartsOnly is set.
// fairlock.LeaseFromContext returns the lease. The ResponseWriter is passed on as it is, and nothing is written after
// next has begun. A panic of next passes. The permits are released when next has returned, in the background, because
// Unlock can take a TTL in an outage. fairlock.Client.Shutdown waits for that.
//
// A refused request is answered by 429 if the semaphore is busy (Try) or too many requests of its key wait. It is
// answered by 503 if too many wait in all, the wait has timed out, or the deadline of ctx has passed. It is also
// answered by 503 if Redis does not serve the call, or the Client is closed (with Connection: close). The answer is 400
// if the key is invalid, 499 if the client has gone away, and 500 for any other error. Retry-After is the time after
// which minimum holds are over, or 1 s if that is not known.
func Handler(next http.Handler, cfg Config) http.Handler {
	if next == nil || cfg.Limit == nil {
		panic("limithttp: next and Config.Limit must not be nil")
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 64 << 10
	}
	if cfg.Refuse == nil {
		cfg.Refuse = func(w http.ResponseWriter, _ *http.Request, status int, _ error) {
			http.Error(w, http.StatusText(status), status)
		}
	}
	if cfg.Done == nil {
		cfg.Done = func(*http.Request, int, error) {}
	}
	return &handler{next, cfg, make(chan struct{}, max(cfg.OpenLimit, 0))}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit, permits, err := h.cfg.Limit(r)
	switch {
	case err != nil:
		h.refuse(w, r, http.StatusBadRequest, err)
		return
	case limit == nil:
		h.next.ServeHTTP(w, r)
		return
	}
	lease, err := h.acquire(r, limit, permits)
	switch {
	case err != nil:
		h.unlimited(w, r, err)
	case h.cfg.StartsOnly:
		release(r, lease)
		h.next.ServeHTTP(w, r)
	default:
		h.limited(w, r, lease)
	}
}

// acquire gets the permits. Before it waits, it reads the body, so that the server notices a client that goes away.
func (h *handler) acquire(r *http.Request, limit Acquirer, permits int) (*fairlock.Lease, error) {
	if h.cfg.Try {
		return limit.TryAcquire(r.Context(), permits)
	}
	reads := r.ProtoMajor < 2 && r.Body != nil && r.Body != http.NoBody // HTTP/2 tells the server that a client goes away
	if reads && h.cfg.MaxBody > 0 && r.ContentLength <= h.cfg.MaxBody {
		rest := r.Body
		read, err := io.ReadAll(io.LimitReader(rest, h.cfg.MaxBody+1))
		if err != nil {
			rest = failed{rest, err}
		}
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(read), rest))
	}
	return limit.Acquire(r.Context(), permits)
}

// failed is a body whose reading has failed.
type failed struct {
	io.ReadCloser
	err error
}

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// limited serves a request under its lease.
func (h *handler) limited(w http.ResponseWriter, r *http.Request, lease *fairlock.Lease) {
	ctx, cancel := lease.Context(r.Context())
	inner := r.WithContext(ctx)
	defer func() { // also when next panics
		r.MultipartForm = inner.MultipartForm // the server removes its temporary files
		lost := lease.Err()
		cancel()
		release(r, lease)
		if errors.Is(lost, fairlock.ErrLost) {
			h.cfg.Done(r, 0, lost)
		}
	}()
	h.next.ServeHTTP(w, inner)
}

// release releases in the background. After an error the permits come free when the lease ends.
func release(r *http.Request, lease *fairlock.Lease) {
	go func() { _ = lease.Unlock(context.WithoutCancel(r.Context())) }()
}

// unlimited serves a request without a permit if Redis cannot be reached and OpenLimit has room, and refuses it
// otherwise.
func (h *handler) unlimited(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, fairlock.ErrUnreachable) && !errors.Is(err, fairlock.ErrLost) && r.Context().Err() == nil {
		select {
		case h.open <- struct{}{}:
			defer h.cfg.Done(r, 0, err)
			defer func() { <-h.open }()
			h.next.ServeHTTP(w, r)
			return
		default:
		}
	}
	h.refuse(w, r, statusOf(err), err)
}

// refuse answers a request that is not served.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		after := time.Second
		if held := (*fairlock.HeldError)(nil); errors.As(err, &held) {
			after = max(after, held.Free)
		}
		w.Header().Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
	if errors.Is(err, fairlock.ErrClosed) {
		w.Header().Set("Connection", "close")
	}
	h.cfg.Refuse(w, r, status, err)
	h.cfg.Done(r, status, err)
}

// statusOf returns the status for an error of a semaphore.
func statusOf(err error) int {
	var full *fairlock.QueueFullError
	var field *fairlock.FieldError
	switch {
	case errors.Is(err, context.Canceled):
		return statusClientClosed
	case errors.As(err, &full) && full.Key != "", errors.Is(err, fairlock.ErrBusy):
		return http.StatusTooManyRequests
	case errors.As(err, &field) && field.Field == "key":
		return http.StatusBadRequest
	case errors.Is(err, fairlock.ErrQueueFull), errors.Is(err, fairlock.ErrWaitTimeout),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, fairlock.ErrUnreachable),
		errors.Is(err, fairlock.ErrRefused), errors.Is(err, fairlock.ErrClosed):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
