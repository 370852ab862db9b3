package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// world is what the replicas have in common.
type world struct {
	t        *testing.T
	server   *redistest.Server
	operator *admin.Client
	ledger   string
	bank     string
	asked    chan question // each time that the bank is asked
}

// question is one that the bank is asked. It approves once the channel approved is closed.
type question struct {
	key      string
	approved chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: redistest.Start(t), ledger: filepath.Join(t.TempDir(), "ledger.db"),
		asked: make(chan question)}
	bank := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // only when the body is read is it noticed that the service is gone
		q := question{r.Header.Get("Idempotency-Key"), make(chan struct{})}
		select {
		case w.asked <- q:
		case <-r.Context().Done():
		}
		select {
		case <-q.approved:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(bank.Close)
	w.bank = bank.URL
	w.operator = admin.New(w.server.Client(), "")
	return w
}

// question returns the next one that the bank is asked.
func (w *world) question(key string) question {
	w.t.Helper()
	select {
	case q := <-w.asked:
		require.Equal(w.t, key, q.key)
		return q
	case <-time.After(time.Minute):
		require.Fail(w.t, "the bank is not asked")
		return question{}
	}
}

// queued waits until that many requests are queued for an account.
func (w *world) queued(account string, n int) {
	w.t.Helper()
	id := fairlock.ID{Kind: fairlock.KindMutex, Name: "account:" + account}
	require.Eventually(w.t, func() bool {
		state, err := w.operator.Inspect(w.t.Context(), id, 0, 0)
		return err == nil && state.Waiting == n
	}, time.Minute, time.Millisecond)
}

// replica is the program, in this process.
type replica struct {
	t    *testing.T
	url  string
	stop func() // as SIGTERM does
	end  chan error
}

func (w *world) start(maxWait time.Duration) replica {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	in, out := io.Pipe()
	r := replica{w.t, "", stop, make(chan error, 1)}
	go func() {
		r.end <- run(ctx, config{"unix://" + w.server.Addr(), "127.0.0.1:0", w.ledger, w.bank, time.Hour, maxWait,
			time.Minute}, out)
		close(r.end)
	}()
	w.t.Cleanup(func() { stop(); require.NoError(w.t, <-r.end) })
	line, err := bufio.NewReader(in).ReadString('\n')
	require.NoError(w.t, err)
	r.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	return r
}

// answer is what a request is answered.
type answer struct {
	status int
	body   string
	retry  string // the header Retry-After
}

func paid(body string) answer { return answer{http.StatusOK, body + "\n", ""} }

var (
	conflict    = answer{http.StatusConflict, "conflict\n", ""}
	unavailable = answer{http.StatusServiceUnavailable, "service unavailable\n", "1"}
)

// pay sends a payment of 10, with more form values if there are any.
func (r replica) pay(account, key string, form ...string) <-chan answer {
	values := url.Values{"amount": {"10"}}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	answers := make(chan answer, 1)
	go func() {
		req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/accounts/"+account+"/payments",
			strings.NewReader(values.Encode()))
		if !assert.NoError(r.t, err) {
			return
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if !assert.NoError(r.t, err) {
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		assert.NoError(r.t, err)
		answers <- answer{resp.StatusCode, string(body), resp.Header.Get("Retry-After")}
	}()
	return answers
}

func TestService_Answers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// No lease is renewed while the test runs, so a replica does not learn that it has lost one before it writes.
	patient, impatient := w.start(time.Hour), w.start(time.Nanosecond)

	// A key pays once, by whichever replica.
	first := patient.pay("ann", "1")
	q := w.question("ann/1")
	assert.Equal(t, conflict, <-patient.pay("ann", "2", "wait", "no"), "another one is at it")
	assert.Equal(t, unavailable, <-impatient.pay("ann", "2"), "it has waited for too long")
	again := patient.pay("ann", "1")
	w.queued("ann", 1)
	close(q.approved)
	assert.Equal(t, paid(`{"balance":90}`), <-first)
	assert.Equal(t, paid(`{"balance":90}`), <-again)
	assert.Equal(t, paid(`{"balance":90}`), <-impatient.pay("ann", "1", "wait", "no"))

	// What can never be done.
	assert.Equal(t, http.StatusUnprocessableEntity, (<-patient.pay("ann", "1", "amount", "20")).status)
	assert.Equal(t, http.StatusUnprocessableEntity, (<-patient.pay("ann", "2", "amount", "91")).status)
	assert.Equal(t, http.StatusNotFound, (<-patient.pay("eve", "2")).status)
	assert.Equal(t, http.StatusBadRequest, (<-patient.pay("ann", "")).status)
	assert.Equal(t, http.StatusBadRequest, (<-patient.pay("ann", "2", "amount", "-1")).status)

	// The lock is lost, and the next one has looked at the balance: the first one writes nothing.
	late := patient.pay("ann", "3")
	q = w.question("ann/3")
	next := patient.pay("ann", "4")
	w.queued("ann", 1)
	ann := fairlock.ID{Kind: fairlock.KindMutex, Name: "account:ann"}
	held, err := w.operator.ForceRelease(t.Context(), ann)
	require.NoError(t, err)
	require.True(t, held)
	second := w.question("ann/4")
	close(q.approved)
	assert.Equal(t, conflict, <-late)
	close(second.approved)
	assert.Equal(t, paid(`{"balance":80}`), <-next)

	// The lock is lost, and nobody has come: it is paid.
	alone := patient.pay("ann", "5")
	q = w.question("ann/5")
	_, err = w.operator.ForceRelease(t.Context(), ann)
	require.NoError(t, err)
	close(q.approved)
	assert.Equal(t, paid(`{"balance":70}`), <-alone)

	// On SIGTERM, who waits is answered at once, who holds a lock finishes, and nothing stays in Redis.
	last := patient.pay("ann", "6")
	q = w.question("ann/6")
	waits := patient.pay("ann", "7")
	w.queued("ann", 1)
	patient.stop()
	assert.Equal(t, unavailable, <-waits)
	ready, err := http.Get(patient.url + "/readyz")
	require.NoError(t, err)
	_ = ready.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, ready.StatusCode)
	close(q.approved)
	assert.Equal(t, paid(`{"balance":60}`), <-last)
	require.NoError(t, <-patient.end)
	assert.Zero(t, w.server.Client().Exists(t.Context(), "fairlock:{account:ann}:lock").Val())
}
