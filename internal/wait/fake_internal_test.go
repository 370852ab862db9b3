package wait

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// fake is a client of one lock, whose time passes while a waiter waits. Redis replies as a test says, one text for each
// request. The subscription is up from the beginning.
type fake struct {
	*clock.Fake
	*Waiters

	acquires, heartbeats []string
	leaves               func()   // called while a request removes waiters; may be nil
	log                  []string // what has happened, with the ms

	end    time.Time // ctx ends then
	cancel context.CancelFunc
}

var begin = time.UnixMilli(0)

func newFake(t *testing.T) *fake {
	f := &fake{Fake: clock.NewFake(begin)}
	log, tasks := slog.New(slog.DiscardHandler), task.NewGroup()
	f.Waiters = New(Env{
		Tasks: tasks, Calls: call.New(nil, tasks, f, log, "client"), Clock: f, Log: log, WaiterTTL: 6 * time.Second,
		Subscription: func(error) {},
	})
	f.subscriber.once.Do(func() { f.subscriber.count, f.subscriber.cancel = 1, func(error) {} })
	t.Cleanup(tasks.Close)
	return f
}

func at(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

// note notes what happens now.
func (f *fake) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprint(f.Now().UnixMilli(), " ")+fmt.Sprintf(format, args...))
}

// happened returns what has happened.
func (f *fake) happened() string { return strings.Join(f.log, ", ") }

// join registers a waiter. Its token is always the same, but for the client, because pauses depend on it.
func (f *fake) join(t *testing.T, client string, r Request) *Waiter {
	text := tokens.New(client, tokens.Terms{TTL: r.TTL, Weight: 1})
	random := text[len(text)-tokens.RandomLen:]
	tok, err := token.Parse(strings.TrimSuffix(text, random) + strings.Repeat("A", len(random)))
	require.NoError(t, err)
	r.Token = tok
	operation, err := f.env.Tasks.Begin()
	require.NoError(t, err)
	t.Cleanup(operation.End)
	return f.Join(operation, Lock{"x", f}, r)
}

// waiting is the ctx of a waiter: when that waits, time passes until something is posted, or the ctx ends.
type waiting struct {
	context.Context
	f *fake
	w *Waiter
}

func (c waiting) Done() <-chan struct{} {
	for len(c.w.signal) == 0 {
		f := c.f.Next(c.f.end)
		if f == nil {
			c.f.cancel()
			break
		}
		f()
	}
	return c.Context.Done()
}

// pass calls what is due until then.
func (f *fake) pass(end time.Time) {
	for call := f.Next(end); call != nil; call = f.Next(end) {
		call()
	}
}

// next takes the first of some texts.
func next(texts *[]string) (word string, number int) {
	if len(*texts) == 0 {
		return "", 0
	}
	_, _ = fmt.Sscan((*texts)[0], &word, &number)
	*texts = (*texts)[1:]
	return word, number
}

func (*fake) Key() string { return "x" }

var errReset = call.WithOrigin(errors.New("connection reset"))

func (f *fake) Acquire(_ context.Context, r script.Request) (reply script.Reply, err error) {
	if r.Ticket != 0 {
		f.note("acquire with ticket %d", r.Ticket)
	} else {
		f.note("acquire")
	}
	switch word, number := next(&f.acquires); word {
	case "granted":
		return script.Reply{Outcome: script.Granted, Fence: uint64(number)}, nil
	case "queued":
		return script.Reply{Outcome: script.Queued, Ticket: 4, Position: 1, Last: uint64(number), RetryAfter: -1}, nil
	case "retry":
		return script.Reply{Outcome: script.Queued, Ticket: 4, Position: 1, Last: 4,
			RetryAfter: time.Duration(number) * time.Millisecond}, nil
	case "busy":
		return script.Reply{Outcome: script.Busy, RetryAfter: -1}, nil
	case "more":
		return script.Reply{Outcome: script.Busy, More: true}, nil
	case "full":
		return script.Reply{Outcome: script.Full, Position: number}, nil
	case "fails":
		return script.Reply{}, errReset
	case "ambiguous":
		return script.Reply{Ambiguous: true}, errReset
	default:
		return script.Reply{}, errors.New("refused")
	}
}

func (f *fake) Heartbeat(_ context.Context, _ time.Duration, tokens []token.Token) (script.HeartbeatReply, error) {
	word, number := next(&f.heartbeats)
	states := map[string]script.WaiterState{"gone": script.NotQueued, "holding": script.Holding}
	reply := script.HeartbeatReply{Last: uint64(number), RetryAfter: -1}
	for range tokens {
		state, ok := states[word]
		if !ok {
			state = script.StillQueued
		}
		reply.States = append(reply.States, state)
	}
	f.note("heartbeat of %d", len(tokens))
	return reply, nil
}

func (f *fake) Admit(context.Context) (bool, error) { return false, nil }

func (f *fake) Leave(_ context.Context, _ script.Rest, leaving ...script.Leaving) (script.Handoff, error) {
	f.note("leave of %d%s", len(leaving), map[bool]string{true: " with a tombstone"}[leaving[0].Tombstone])
	if f.leaves != nil {
		f.leaves()
	}
	return script.Handoff{}, nil
}
