package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fence"
)

// payment is what a request asks for. The client sends the same key when it repeats a request.
type payment struct {
	account, key string
	amount       int
}

// lock is the name of the account's lock, and what the database keeps the highest fence for.
func (p payment) lock() string { return "account:" + p.account }

type service struct {
	locks   *fairlock.Client
	ledger  *ledger
	bank    bank
	maxWait time.Duration
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("POST /accounts/{account}/payments", s.pay)
	return mux
}

// ready tells the load balancer whether locks can be used now. From the begin of a drain on they cannot.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := s.locks.Ping(ctx); err != nil {
		slog.Warn("not ready", "err", err)
		http.Error(w, "locks cannot be used", http.StatusServiceUnavailable)
	}
}

func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	p := payment{account: r.PathValue("account"), key: r.Header.Get("Idempotency-Key")}
	var err error
	if p.amount, err = strconv.Atoi(r.FormValue("amount")); err != nil || p.amount <= 0 || p.key == "" {
		http.Error(w, "an amount and an Idempotency-Key are needed", http.StatusBadRequest)
		return
	}
	if err := s.ledger.exists(r.Context(), p.account); err != nil { // else a lock could be made for any name
		s.refuse(w, err)
		return
	}
	lock := s.locks.Mutex(p.lock(), fairlock.WithMaxWait(s.maxWait))
	do := lock.Do // waits behind all requests that came before, of all replicas
	if r.FormValue("wait") == "no" {
		do = lock.TryDo
	}
	balance, done := 0, false
	err = do(r.Context(), func(ctx context.Context) (err error) {
		balance, err = s.payLocked(ctx, lock, p)
		done = err == nil
		return err
	})
	if !done {
		s.refuse(w, err)
		return
	}
	// It is written, and the fence was checked by the same transaction, whatever has become of the lock since.
	if err != nil {
		slog.Warn("paid, but the lock was lost or not released", "account", p.account, "err", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]int{"balance": balance}) // a client that has gone away repeats its request
}

// payLocked pays under the lock, whose lease ctx carries, and returns the new balance. After an error nothing is
// written, unless it is one of the database: then that is unknown.
func (s *service) payLocked(ctx context.Context, lock fairlock.Mutex, p payment) (balance int, err error) {
	number, err := fence.FromContext(ctx, lock)
	if err != nil {
		return 0, err
	}
	balance, paid, err := s.ledger.read(ctx, number, p)
	if err != nil || paid {
		return balance, err
	}
	if err := s.bank.approve(ctx, p); err != nil { // ends early if the lease does
		return 0, err
	}
	// The bank has paid, so that is written down even if ctx ends now. Whether it is too late, only the database knows.
	balance -= p.amount
	return balance, s.ledger.write(context.WithoutCancel(ctx), number, p, balance)
}

// refuse answers a request that is not done, as docs/lost-after-write.md says.
func (s *service) refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, errNoAccount):
		status = http.StatusNotFound
	case errors.Is(err, errTooLow), errors.Is(err, errOtherKey):
		status = http.StatusUnprocessableEntity
	case errors.Is(err, fairlock.ErrBusy), errors.Is(err, fence.ErrStale):
		status = http.StatusConflict
	default:
		// ErrWaitTimeout; ErrClosed, in a drain; Redis, the database or the bank does not answer; ErrLost. The request was
		// not done, or that is unknown. It may be repeated, because its key prevents that it is done twice.
		w.Header().Set("Retry-After", "1")
	}
	slog.Warn("refused", "status", status, "err", err) // the error names hosts, which are nothing for the client
	http.Error(w, strings.ToLower(http.StatusText(status)), status)
}

// bank is the URL of the slow part, which no database transaction should span.
type bank string

// approve returns nil if the bank has paid. It sends the key, so the bank does not pay twice.
func (b bank) approve(ctx context.Context, p payment) error {
	if b == "" {
		return nil
	}
	form := url.Values{"account": {p.account}, "amount": {strconv.Itoa(p.amount)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(b), strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", p.account+"/"+p.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("bank: " + resp.Status)
	}
	return nil
}
