package limithttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/limithttp"
)

const maxOutage = 5 * time.Second

// bubble runs a test in simulated time, with an HTTP server whose connections are in memory.
func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

// pass lets time pass, and returns when everything has happened that happens until then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// memory is a net.Listener in memory.
type memory chan net.Conn

func (m memory) Accept() (net.Conn, error) {
	if c, open := <-m; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (m memory) Close() error {
	close(m)
	return nil
}

func (memory) Addr() net.Addr { return &net.TCPAddr{} }

// site is an HTTP server with a limited handler, and what its Done was told.
type site struct {
	*http.Client

	mu   sync.Mutex
	done []done // guarded by mu; read it when everything is idle
}

type done struct {
	status int
	err    error
}

// serve starts an HTTP server with a limited handler.
func serve(t *testing.T, next http.HandlerFunc, cfg limithttp.Config) *site {
	t.Helper()
	s := &site{}
	cfg.Done = func(_ *http.Request, status int, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done = append(s.done, done{status, err})
	}
	listener := make(memory)
	server := &http.Server{Handler: limithttp.Handler(next, cfg)} //nolint:gosec // the clients are ours
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	transport := &http.Transport{MaxIdleConnsPerHost: -1}
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		listener <- theirs
		return ours, nil
	}
	s.Client = &http.Client{Transport: transport}
	return s
}

// answer is a request under way.
type answer struct {
	over chan struct{} // closed when it is over; it guards the rest
	*http.Response

	body string
	err  error
	at   time.Time
}

// post begins a request, and returns when it is over or waits.
func (s *site) post(ctx context.Context, body io.Reader) *answer {
	a := &answer{over: make(chan struct{})}
	go func() {
		defer close(a.over)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/", body)
		if err != nil {
			a.err = err
			return
		}
		if a.Response, a.err = s.Do(req); a.err == nil { //nolint:bodyclose // it is
			text, err := io.ReadAll(a.Body)
			a.body, a.err = string(text), errors.Join(err, a.Body.Close())
		}
		a.at = time.Now()
	}()
	synctest.Wait()
	return a
}

// answered waits for an answer, and checks its status.
func (a *answer) answered(t *testing.T, status int) {
	t.Helper()
	<-a.over
	require.NoError(t, a.err)
	require.Equal(t, status, a.StatusCode, a.body)
}

// by is a Limit by one semaphore.
func by(limit limithttp.Acquirer) func(*http.Request) (limithttp.Acquirer, int, error) {
	return func(*http.Request) (limithttp.Acquirer, int, error) { return limit, 1, nil }
}

// takes is a handler that takes so long, unless its request ends before.
func takes(d time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
			http.Error(w, context.Cause(r.Context()).Error(), http.StatusConflict)
		}
	}
}

// assertIdle fails the test if anything is held or queued once Redis has served the client.
func assertIdle(t *testing.T, client *fairlocktest.Client, locks ...fairlocktest.Lock) {
	t.Helper()
	pass(time.Minute)
	for _, l := range locks {
		l.AssertFree()
		l.AssertQueue()
	}
	assert.Zero(t, client.Stats())
}

// fails is an Acquirer that returns an error, if Try is not set.
type fails struct {
	limithttp.Acquirer

	err error
}

func (f fails) Acquire(context.Context, int) (*fairlock.Lease, error) { return nil, f.err }

// Each error of a semaphore has its status.
func TestHandler_Statuses(t *testing.T) {
	joined := func(errs ...error) error {
		return &fairlock.Error{Op: "acquire", Name: "x", Err: errors.Join(errs...)}
	}
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("next was called") })
	for _, c := range []struct {
		err    error
		status int
		after  string
	}{
		{fairlock.ErrBusy, 429, "1"},
		{&fairlock.HeldError{Err: fairlock.ErrBusy, Free: 1}, 429, "1"},
		{&fairlock.HeldError{Err: fairlock.ErrBusy, Free: 1001 * time.Millisecond}, 429, "2"},
		{&fairlock.QueueFullError{Key: "ann"}, 429, "1"},
		{&fairlock.QueueFullError{}, 503, "1"},
		{&fairlock.HeldError{Err: fairlock.ErrWaitTimeout}, 503, "1"},
		{context.DeadlineExceeded, 503, "1"},
		{fairlock.ErrUnreachable, 503, "1"},
		{fairlock.ErrRefused, 503, "1"},
		{fairlock.ErrClosed, 503, "1"},
		{&fairlock.FieldError{Field: "key"}, 400, ""},
		{&fairlock.FieldError{Field: "n"}, 500, ""},
		{&fairlock.CapacityError{}, 500, ""},
		{redis.Nil, 500, ""},
		{context.Canceled, 499, ""},
		{errors.Join(context.Canceled, fairlock.ErrUnreachable), 499, ""},
	} {
		var told done
		cfg := limithttp.Config{
			Limit: by(fails{err: joined(c.err)}),
			Done:  func(_ *http.Request, status int, err error) { told = done{status, err} },
		}
		w := httptest.NewRecorder()
		limithttp.Handler(never, cfg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		assert.Equal(t, c.status, w.Code, c.err)
		assert.Equal(t, c.after, w.Header().Get("Retry-After"), c.err)
		assert.Equal(t, map[bool]string{true: "close"}[errors.Is(c.err, fairlock.ErrClosed)], w.Header().Get("Connection"))
		assert.Equal(t, done{c.status, joined(c.err)}, told)
	}
	refuse := func(w http.ResponseWriter, _ *http.Request, status int, err error) {
		_, _ = fmt.Fprint(w, "own: ", status, " ", err, " ", w.Header().Get("Retry-After"))
	}
	w := httptest.NewRecorder()
	limithttp.Handler(never, limithttp.Config{Limit: by(fails{err: fairlock.ErrBusy}), Refuse: refuse}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, fmt.Sprint("own: 429 ", fairlock.ErrBusy, " 1"), w.Body.String())
}

// silent is a Redis that must receive no request.
type silent struct{ fairlock.Redis }

// A missing handler or Limit is a panic. An error of Limit, and a key that is empty or too long, is a 400, and nothing
// is sent. Without a limit, a request is served.
//
//fairlock:fault Bad input
func TestHandler_BadInput(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, held := fairlock.LeaseFromContext(r.Context())
		assert.False(t, held)
		w.WriteHeader(http.StatusAccepted)
	})
	assert.Panics(t, func() { limithttp.Handler(nil, limithttp.Config{Limit: by(nil)}) })
	assert.Panics(t, func() { limithttp.Handler(ok, limithttp.Config{}) })
	client, err := fairlock.New(silent{}, fairlock.Config{})
	require.NoError(t, err)
	defer client.Close()
	limit := client.KeyedSemaphore("x", 1)
	for _, c := range []struct {
		limit  func(*http.Request) (limithttp.Acquirer, int, error)
		status int
	}{
		{by(limit.Key("")), 400},
		{by(limit.Key(strings.Repeat("k", 129))), 400},
		{func(*http.Request) (limithttp.Acquirer, int, error) { return nil, 0, errors.New("who are you?") }, 400},
		{func(*http.Request) (limithttp.Acquirer, int, error) { return limit.Key("k"), 0, nil }, 500},
		{by(client.Semaphore("x", 0)), 500},
		{by(nil), http.StatusAccepted},
	} {
		for _, try := range []bool{true, false} {
			w := httptest.NewRecorder()
			limithttp.Handler(ok, limithttp.Config{Limit: c.limit, Try: try}).ServeHTTP(w,
				httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
			assert.Equal(t, c.status, w.Code)
		}
	}
}

// Requests are served in order, as many at once as there are permits, each under its lease. With Try, one that would
// wait is refused, and is told when it need not.
//
//fairlock:promise An HTTP handler with a limit (package limithttp): requests are served in order under their leases; after a client has gone away, a panic, a lost lease, an outage or Shutdown nothing stays held or queued
func TestHandler_Limits(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		limit := client.Semaphore("x", 2, fairlock.WithMinHold(1500*time.Millisecond))
		site := serve(t, func(w http.ResponseWriter, r *http.Request) {
			lease, held := limit.LeaseFromContext(r.Context())
			assert.True(t, held && lease.Err() == nil)
			takes(2*time.Second)(w, r)
		}, limithttp.Config{Limit: by(limit)})
		start := time.Now()
		var all []*answer
		for range 5 {
			all = append(all, site.post(t.Context(), strings.NewReader("body")))
		}
		for i, a := range all {
			a.answered(t, http.StatusOK)
			took := a.at.Sub(start) - time.Duration(2*(i/2+1))*time.Second
			assert.LessOrEqual(t, took, 100*time.Millisecond, i)
		}
		assertIdle(t, client, s.Semaphore("x", 2))
		assert.Empty(t, site.done)

		tries := serve(t, takes(0), limithttp.Config{Limit: by(limit), Try: true})
		for _, status := range []int{200, 200, 429} {
			a := tries.post(t.Context(), nil)
			a.answered(t, status)
			assert.Equal(t, map[bool]string{true: "2"}[status == 429], a.Header.Get("Retry-After"))
		}
	})
}

// With StartsOnly, requests start at the rate of the minimum hold, however long they take, and keep their own ctx.
//
//fairlock:promise An HTTP handler with a limit (package limithttp)
func TestHandler_StartsOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		limit := client.KeyedSemaphore("x", 2, fairlock.WithMinHold(time.Second))
		site := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, held := fairlock.LeaseFromContext(r.Context())
			assert.False(t, held)
			takes(time.Minute)(w, r)
		}, limithttp.Config{Limit: by(limit.Key("k")), StartsOnly: true})
		start := time.Now()
		var all []*answer
		for range 5 {
			all = append(all, site.post(t.Context(), nil))
		}
		for i, a := range all {
			a.answered(t, http.StatusOK)
			assert.InDelta(t, float64(i/2), (a.at.Sub(start) - time.Minute).Seconds(), 0.1)
		}
		assertIdle(t, client, s.KeyedSemaphore("x", 2))
	})
}

// next reads the whole body, whatever part of it was read before the wait.
func TestHandler_Body(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		limit := s.Client(fairlock.Config{}).Semaphore("x", 100)
		for _, most := range []int64{0, -1, 10} {
			site := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.True(t, r.ContentLength == int64(len(body)) || r.ContentLength == -1)
				_, _ = w.Write(body)
			}, limithttp.Config{Limit: by(limit), MaxBody: most})
			for _, n := range []int{0, 1, 9, 10, 11, 64 << 10, 64<<10 + 1} {
				want := strings.Repeat("x", n)
				for _, body := range []io.Reader{strings.NewReader(want), struct{ io.Reader }{strings.NewReader(want)}} {
					a := site.post(t.Context(), body)
					a.answered(t, http.StatusOK)
					require.Equal(t, want, a.body)
				}
			}
		}
	})
}

// next gets the server's own ResponseWriter, so it can flush or hijack the connection. The server of an upload gets its
// form, so that it removes the temporary files. The body of an HTTP/2 request is not read before next reads it: the
// client may wait for a first answer.
func TestHandler_PassesOnWhatIsOfTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		recorder := httptest.NewRecorder()
		h := limithttp.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Same(t, recorder, w)
			assert.ErrorIs(t, r.ParseMultipartForm(1), http.ErrNotMultipart)
			r.MultipartForm = &multipart.Form{}
		}), limithttp.Config{Limit: by(s.Client(fairlock.Config{}).Semaphore("x", 1))})
		body, _ := io.Pipe() // nothing is ever written
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ProtoMajor = 2
		h.ServeHTTP(recorder, r)
		assert.NotNil(t, r.MultipartForm)
	})
}

// Of a thousand requests whose clients go away while they wait, none is served, and none stays queued. One whose body
// is longer than MaxBody stays queued until MaxWait.
//
//fairlock:promise An HTTP handler with a limit (package limithttp)
//fairlock:fault A client of an HTTP server goes away while it waits for a permit: its waiter leaves the queue
func TestHandler_ClientsGoAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const n, wait = 1000, 10 * time.Second
		client := s.Client(fairlock.Config{})
		limit := client.Semaphore("x", 1, fairlock.WithMaxWait(wait))
		held := s.Semaphore("x", 1).HoldAs("holder")
		site := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("next was called") },
			limithttp.Config{Limit: by(limit), MaxBody: 100})
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var all []*answer
		for i := range n {
			body := []io.Reader{nil, strings.NewReader("body"), struct{ io.Reader }{strings.NewReader("body")}}[i%3]
			all = append(all, site.post(ctx, body))
		}
		long := site.post(ctx, bytes.NewReader(make([]byte, 101)))
		assert.Equal(t, n+1, client.Stats().Waiters)
		cancel()
		for _, a := range append(all, long) {
			<-a.over
			require.ErrorIs(t, a.err, context.Canceled)
		}
		pass(time.Second)
		require.Len(t, site.done, n)
		for _, d := range site.done {
			require.Equal(t, 499, d.status)
			require.ErrorIs(t, d.err, context.Canceled)
		}
		assert.Len(t, s.Semaphore("x", 1).State().Waiters, 1)
		pass(time.Until(start.Add(wait + time.Millisecond)))
		require.Len(t, site.done, n+1)
		require.ErrorIs(t, site.done[n].err, fairlock.ErrWaitTimeout)
		require.NoError(t, held.Unlock(t.Context()))
		assertIdle(t, client, s.Semaphore("x", 1))
	})
}

// The ctx of a request ends with its lease, and Done is told. What next writes is the answer.
//
//fairlock:promise An HTTP handler with a limit (package limithttp)
func TestHandler_LeaseLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		site := serve(t, takes(time.Hour), limithttp.Config{Limit: by(client.Semaphore("x", 1))})
		a := site.post(t.Context(), nil)
		s.Semaphore("x", 1).ForceRelease()
		a.answered(t, http.StatusConflict)
		assert.Contains(t, a.body, fairlock.ErrRevoked.Error())
		synctest.Wait()
		require.Len(t, site.done, 1)
		assert.Zero(t, site.done[0].status)
		require.ErrorIs(t, site.done[0].err, fairlock.ErrLost)
		assertIdle(t, client, s.Semaphore("x", 1))
	})
}

// In an outage, OpenLimit requests at once are served without a permit, and others are refused. Those that are queued
// when it begins count, too. A refusal by Redis opens nothing.
//
//fairlock:promise An HTTP handler with a limit (package limithttp)
//fairlock:fault Redis is down for a while
func TestHandler_Outage(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const open, each = 2, 20 * time.Second
		client := s.Client(fairlock.Config{MaxOutage: maxOutage, TTL: time.Hour})
		site := serve(t, takes(each), limithttp.Config{Limit: by(client.Semaphore("x", 1)), OpenLimit: open})
		start, first := time.Now(), site.post(t.Context(), nil)
		queued := site.post(t.Context(), nil)
		client.Link.Cut()
		var all []*answer
		for range 4 {
			all = append(all, site.post(t.Context(), nil))
		}
		first.answered(t, http.StatusOK)
		assert.Equal(t, each, first.at.Sub(start).Truncate(time.Second), "a small answer does not wait for the release")
		byStatus := map[int]int{}
		for _, a := range append(all, queued) {
			<-a.over
			require.NoError(t, a.err)
			byStatus[a.StatusCode]++
		}
		assert.Equal(t, map[int]int{200: open, 503: 5 - open}, byStatus)
		synctest.Wait()
		require.Len(t, site.done, 5)
		for _, d := range site.done {
			require.ErrorIs(t, d.err, fairlock.ErrUnreachable)
			byStatus[d.status]--
		}
		assert.Equal(t, map[int]int{0: -open, 200: open, 503: 0}, byStatus)

		client.Link.Mend()
		pass(2 * time.Second)
		s.Miniredis.SetError("NOPERM User u has no permissions")
		site.post(t.Context(), nil).answered(t, http.StatusServiceUnavailable)
		s.Miniredis.SetError("")
		site.post(t.Context(), nil).answered(t, http.StatusOK)
		assertIdle(t, client, s.Semaphore("x", 1))
	})
}

// A panic of next passes. Its permit is released, and so is its place among those that are served without one.
//
//fairlock:promise An HTTP handler with a limit (package limithttp)
func TestHandler_Panics(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{MaxOutage: maxOutage})
		site := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			limithttp.Config{Limit: by(client.Semaphore("x", 1)), OpenLimit: 1})
		for _, fault := range []func(){client.Link.Mend, client.Link.Cut} {
			fault()
			for range 3 {
				a := site.post(t.Context(), nil)
				<-a.over
				require.ErrorIs(t, a.err, io.EOF)
			}
			client.Link.Mend()
			assertIdle(t, client, s.Semaphore("x", 1))
		}
		require.Len(t, site.done, 3)
	})
}

// During Shutdown, a request that is served is finished, and one that waits is told to go elsewhere.
//
//fairlock:promise An HTTP handler with a limit (package limithttp)
func TestHandler_Shutdown(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		site := serve(t, takes(time.Minute), limithttp.Config{Limit: by(client.Semaphore("x", 1)), OpenLimit: 1})
		served, queued := site.post(t.Context(), nil), site.post(t.Context(), nil)
		over := make(chan error, 1)
		go func() { over <- client.Shutdown(t.Context()) }()
		for _, a := range []*answer{queued, site.post(t.Context(), nil)} {
			a.answered(t, http.StatusServiceUnavailable)
			assert.True(t, a.Close, "the connection")
		}
		served.answered(t, http.StatusOK)
		require.NoError(t, <-over)
		site.post(t.Context(), nil).answered(t, http.StatusServiceUnavailable)
		s.AssertNothingLeft()
	})
}
