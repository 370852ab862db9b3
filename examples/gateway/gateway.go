package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// What the model bears, and what of that a user may have. All replicas must agree on the first, so it stands in one
// place.
const (
	atOnce  = 3
	ofUser  = 2
	waiting = 20 // requests of one user that may wait
	maxWait = 10 * time.Minute
)

// retryAfter is when a request that was refused may come again. Nobody knows when an answer ends, so it is a guess.
const retryAfter = 5 * time.Second

type gateway struct {
	turns fairlock.KeyedSemaphore
	model model
}

func newGateway(locks *fairlock.Client, m model) http.Handler {
	g := &gateway{locks.KeyedSemaphore("model", atOnce, fairlock.WithKeyLimit(ofUser), fairlock.WithMaxWait(maxWait)), m}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /answers", g.answer)
	return mux
}

func (g *gateway) answer(w http.ResponseWriter, r *http.Request) {
	// Take the user from your authentication, because each key gets a turn of its own. Redis and logs show it, so it
	// should be no secret.
	user := r.Header.Get("X-User")
	// before it waits, so that it is noticed if its client is gone
	question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || user == "" {
		http.Error(w, "a question and a user are needed", http.StatusBadRequest)
		return
	}
	key := g.turns.Key(user, fairlock.WithMaxWaiters(waiting))
	do := key.Do
	if r.Header.Get("Prefer") == "wait=0" {
		do = key.TryDo
	}
	s := &stream{w: w}
	ctx := context.WithValue(r.Context(), streamOf{}, s)
	err = do(ctx, 1, func(ctx context.Context) error { // ctx ends with the lease, which is renewed while the answer lasts
		return g.model.answer(ctx, string(question), func(line string) error { return s.send("text", line) })
	})
	s.end(err)
}

type streamOf struct{} // key of the stream in the ctx of a request

// tellPosition is Trace.Queued. It runs in the goroutine of the request, so it may write to its stream.
func tellPosition(info fairlock.QueuedInfo) {
	if s, ok := info.Ctx.Value(streamOf{}).(*stream); ok {
		_ = s.send("queued", strconv.Itoa(info.Position)) // if its client is gone, its ctx ends
	}
}

// stream is a response. Its status is open until the first event.
type stream struct {
	w     http.ResponseWriter
	begun bool
}

func (s *stream) send(event, data string) error {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
	}
	_, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, data)
	return errors.Join(err, http.NewResponseController(s.w).Flush())
}

// end says what has become of the request.
func (s *stream) end(err error) {
	switch {
	case err == nil:
		return
	case s.begun:
		_ = s.send("error", "ask again")
	case errors.Is(err, fairlock.ErrInvalid): // the key is too long
		http.Error(s.w, "no such user", http.StatusBadRequest)
	case errors.Is(err, fairlock.ErrBusy), errors.Is(err, fairlock.ErrQueueFull):
		s.w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		http.Error(s.w, reason(err), http.StatusTooManyRequests)
	default: // ErrClosed, in a drain; Redis or the model does not answer
		s.w.Header().Set("Retry-After", "1")
		http.Error(s.w, "ask again", http.StatusServiceUnavailable)
	}
	slog.Info("not answered", "err", err)
}

// reason says to a user why the answer is not given now.
func reason(err error) string {
	var held *fairlock.HeldError
	switch {
	case !errors.As(err, &held):
		return "too many of your requests wait"
	case held.Reason == fairlock.AtKeyLimit:
		return "you have as many answers at once as you may"
	case held.Reason == fairlock.NotNext:
		return "others come first"
	default:
		return "the model is busy"
	}
}

// model is the URL of the model.
type model string

// answer calls tell for each line of the answer.
func (m model) answer(ctx context.Context, question string, tell func(line string) error) error {
	if m == "" {
		for i := range 10 {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := tell(strconv.Itoa(i + 1)); err != nil {
				return err
			}
		}
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(m), strings.NewReader(question))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New("model: " + resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if err := tell(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}
