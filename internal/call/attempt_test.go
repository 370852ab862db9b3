package call_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/task"
)

// A request is tried again while Redis does not serve it, as long as its policy says. If the client is closed, Finish
// lets one attempt go on. If that has no reply, all others end.
func TestCalls_Briefly(t *testing.T) {
	away, refused := call.WithOrigin(io.EOF), call.WithOrigin(redis.ErrClosed)
	for _, c := range []struct {
		name     string
		replies  []error       // the last one again and again
		finish   bool          // otherwise Briefly
		takes    time.Duration // each attempt
		closes   time.Duration
		attempts int
		lasts    time.Duration // about
		want     []error
		text     string
	}{
		{"served", []error{nil}, false, 0, 0, 1, 0, nil, ""},
		{"served again", []error{away, away, nil}, false, 0, 0, 3, 60 * time.Millisecond, nil, ""},
		{"refused", []error{away, refused}, false, 0, 0, 2, 20 * time.Millisecond, []error{redis.ErrClosed},
			"redis: client is closed"},
		{"not served", []error{away}, false, 0, 0, 15, 3 * time.Second, []error{errs.Unreachable, io.EOF},
			"redis is unreachable: tried for 3s: EOF"},
		{"client is closed", []error{away}, false, 0, 50 * time.Millisecond, 2, 50 * time.Millisecond,
			[]error{errs.Closed, io.EOF},
			"client is closed: tried for 50ms: EOF"},
		{"finished", []error{away, nil}, true, 0, 0, 2, 20 * time.Millisecond, nil, ""},
		{"not finished", []error{away}, true, 0, 0, 43, 10 * time.Second, []error{errs.Unreachable, io.EOF},
			"redis is unreachable: tried for 10s: EOF"},
		{"cut short", []error{away}, true, 0, 50 * time.Millisecond, 2, 50 * time.Millisecond, []error{errs.Closed, io.EOF},
			"client is closed: EOF"},
		{"goes on", []error{away}, true, 9 * time.Second, 50 * time.Millisecond, 1, 9 * time.Second,
			[]error{errs.Closed, io.EOF},
			"client is closed: EOF"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tasks := task.NewGroup()
			calls := call.New(nil, tasks, clock.System{}, slog.New(slog.DiscardHandler), "")
			defer calls.Close()
			if c.closes > 0 {
				time.AfterFunc(c.closes, tasks.End)
			}
			began, attempts := time.Now(), 0
			send := func() error {
				attempts++
				time.Sleep(c.takes)
				return c.replies[min(attempts, len(c.replies))-1]
			}
			var err error
			if c.finish {
				caller, cancel := context.WithCancel(t.Context())
				cancel()
				err = calls.Finish(caller, "x", 10*time.Second, 3*time.Second, func(context.Context) error { return send() })
				if c.name == "goes on" {
					others := func(ctx context.Context) error { return ctx.Err() }
					assert.Error(t, calls.Finish(caller, "x", time.Second, time.Second, others), "others end")
				}
			} else {
				err = calls.Briefly(t.Context(), func(context.Context) error { return send() })
			}
			assert.Equal(t, c.attempts, attempts, c.name)
			assert.InDelta(t, c.lasts, time.Since(began), float64(5*time.Millisecond), c.name)
			for _, want := range c.want {
				assert.ErrorIs(t, err, want, c.name)
			}
			if c.want == nil {
				assert.NoError(t, err, c.name)
			} else {
				assert.EqualError(t, err, c.text, c.name)
			}
		})
	}
}

// The failure of a request that its ctx has cut short says less than the one before.
func TestLatest(t *testing.T) {
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, cut := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		assert.Equal(t, io.EOF, call.Latest(ended, io.EOF, cut))
		assert.Equal(t, cut, call.Latest(ended, nil, cut))
		assert.Equal(t, cut, call.Latest(t.Context(), io.EOF, cut))
	}
	assert.Equal(t, redis.ErrClosed, call.Latest(ended, io.EOF, redis.ErrClosed))
}

// A pause is twice as long as the one before, up to a quarter of a second. It is shorter by a part of its own, at most
// half, so that those that fail together do not come back together.
func TestBackoff_Next(t *testing.T) {
	parts := map[float64]bool{}
	for i := range 100 {
		jitter := call.Jitter(strconv.Itoa(i))
		parts[jitter] = true
		assert.GreaterOrEqual(t, jitter, 0.0)
		assert.LessOrEqual(t, jitter, 0.5)
		var pause call.Backoff
		for _, ms := range []float64{20, 40, 80, 160, 250, 250} {
			assert.InDelta(t, (1-jitter)*ms*float64(time.Millisecond), pause.Next(jitter), 1)
		}
	}
	assert.Len(t, parts, 100)
}
