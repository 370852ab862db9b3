package hold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// What a lease of 3 s sends, and how it ends. Each event has its time in ms. "sent" is the next request that was sent,
// or "idle" if there is none. "ended" is the outcome that was reported. The others say what happens, and its result.
//
//fairlock:promise A lease lasts: renewed when a third of its TTL has passed, for as long as it is held
//fairlock:fault A renewal arrives after its lease was lost here: the lock is free when the safety margin is over, or at Unlock
//fairlock:fault The lock is deleted or taken by force: ErrLost at the next renewal, and at Unlock
//fairlock:fault The server's clock steps forward: the holder is told at its next renewal
//fairlock:fault A holder is stopped (SIGSTOP) beyond its lease: its lease is over when it looks; a late Unlock does not touch the next owner
//fairlock:fault An acquire is sent again, and arrives after Redis has ended its lease: the holder's next renewal releases the new lease
func TestHolding(t *testing.T) {
	for _, row := range []string{
		// It is renewed when a third of it has passed, and half a second after a handoff.
		"989 idle, 990 sent renew 3s, 1978 idle, 1979 sent renew 3s, 2500 unlock released, 2500 sent release, 2500 ended released, 9999 idle",
		"handoff: 499 idle, 500 sent renew 3s, 1000 unlock released, 1000 sent release, 1000 ended released, 9999 idle",
		// Redis does not know it: its token is removed.
		"0 redis forgets, 990 sent renew 3s, 990 err taken, 990 ended taken, 990 sent leave, 990 unlock taken, 9999 idle",
		// No renewal succeeds: it is released when its safety margin is over.
		"0 redis away, 2967 renewals 8, 2967 err nil, 2967 redis well, 2968 err unreachable, 2968 ended unreachable, 2999 idle, 3000 sent release, 9999 idle",
		"0 redis refuses, 2967 renewals 8, 2967 redis well, 2968 err expired, 2968 ended expired, 3000 sent release, 9999 idle",
		// Or at once by Unlock, or if this process was paused for longer.
		"0 redis away, 2967 renewals 8, 2967 redis well, 2970 err unreachable, 2970 ended unreachable, 2970 unlock unreachable, 2970 sent release, 9999 idle",
		"5000 paused, 5000 err expired, 5000 ended expired, 5000 sent release, 9999 idle",
		// A release that finds nothing tells of a loss, unless a copy of it may have released the lock.
		"100 redis forgets, 100 unlock taken, 100 sent release, 100 sent leave, 100 ended taken, 200 unlock taken, 9999 idle",
		"100 redis unsure, 100 unlock released, 100 sent release, 100 sent leave, 100 ended released, 9999 idle",
		// After an error the release goes on in the background, and Unlock can be called again. Its first outcome is
		// reported.
		"100 redis refuses, 100 unlock refused, 100 sent release, 100 ended refused, 100 sent release, 200 redis well, 200 unlock released, 200 sent release, 300 unlock released, 9999 idle",
		// A late acquire of the token may take the lock, unless it has left.
		"ambiguous: 100 unlock released, 100 sent leave with a tombstone, 100 ended released, 9999 idle",
		"ambiguous: 0 redis forgets, 990 sent renew 3s, 990 sent leave with a tombstone, 990 ended taken, 9999 idle",
		// Renewals request a minimum hold, the first at once, and the release its rest.
		"minimum: 0 sent renew 5s, 1000 sent renew 4s, 1100 unlock released, 1100 sent release with a rest of 3.9s, 1100 ended released, 9999 idle",
		// Nothing is sent for one that was detached, or of a client that was closed.
		"100 detach nil, 100 ended detached, 100 unlock detached, 9999 idle",
		"100 unlock released, 100 sent release, 100 ended released, 100 detach unlocked, 9999 idle",
		"5000 paused, 5000 detach expired, 5000 ended expired, 5000 sent release, 9999 idle",
		"100 close, 100 detach closed, 100 err closed, 100 ended closed, 100 unlock closed, 9999 idle",
		"2967 renewals 2, 2967 redis away, 4946 renewals 8, 4947 err unreachable, 4947 ended unreachable, 4947 close, 9999 idle",
		// A release that a failover may have lost is sent again, also one whose reply comes after that of the other server.
		"100 unlock released, 100 sent release, 100 ended released, 3000 failover nil, 3099 idle, 3100 sent leave with a tombstone, 9999 idle",
		"100 failover nil, 199 unlock released, 199 sent release, 199 ended released, 200 sent leave with a tombstone, 9999 idle",
		"100 unlock released, 100 sent release, 100 ended released, 3001 failover nil, 9999 idle",
		// Shutdown does not wait for that, as the release was acknowledged.
		"100 failover nil, 199 unlock released, 199 sent release, 199 ended released, 199 redis away, 200 sent leave with a tombstone, 200 shutdown <nil>, 9999 idle",
		// Its end is reported after its begin.
		"unannounced: 100 detach nil, 200 announce, 200 ended detached, 9999 idle",
	} {
		what, events, found := strings.Cut(row, ": ")
		if !found {
			what, events = "", row
		}
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t, what)
			for event := range strings.SplitSeq(events, ", ") {
				words := strings.SplitN(event, " ", 3)
				m.do(words[0], words[1], strings.Join(words[2:], ""), event+" in "+row)
			}
			m.env.Tasks.Close()
			assert.Empty(t, m.ended, row)
			assert.Empty(t, m.sent, row)
		})
	}
}

// machine is a lease with a Redis that only notes what was sent, on a clock that stands still.
type machine struct {
	t     *testing.T
	clock *clock.Fake
	env   *Env
	h     *Holding
	redis string      // how Redis is
	sent  chan string // the requests
	ended chan error
}

func newMachine(t *testing.T, what string) *machine {
	const ttl = 3 * time.Second
	m := &machine{t: t, clock: clock.NewFake(time.Unix(0, 0)), sent: make(chan string, 100), ended: make(chan error, 100)}
	tasks, log := task.NewGroup(), slog.New(slog.DiscardHandler)
	m.env = &Env{
		Tasks: tasks, Calls: call.New(nil, tasks, m.clock, log, "c"), Clock: m.clock, Log: log,
		Redis: m, Lock: "x", TTL: ttl, WaiterTTL: 2 * ttl, Releases: &Releases{},
		Handed:  func(task.Task, script.Handoff) { m.free() },
		Renewed: func(Grant, time.Time, error) { m.free() },
		Ended: func(_ Grant, _ time.Duration, err error) {
			m.free()
			m.ended <- err
		},
	}
	terms := tokens.Terms{TTL: ttl, Weight: 1}
	if what == "minimum" {
		m.env.MinHold, terms.TTL = 5*time.Second, 5*time.Second
	}
	tok, err := token.Parse(tokens.New("c", terms))
	require.NoError(t, err)
	m.h, err = Begin(m.env, Grant{Grant: script.Grant{
		Token: tok, Fence: 7, Given: ttl, Sent: m.clock.Now(), Handoff: what == "handoff", Ambiguous: what == "ambiguous",
	}})
	require.NoError(t, err)
	if what != "unannounced" {
		m.h.Announce()
	}
	return m
}

// free hangs if a mutex of the lease or of the tasks is held.
func (m *machine) free() {
	m.h.Deadline()
	m.env.Tasks.Held()
}

// note notes a request, and returns its error.
func (m *machine) note(format string, args ...any) error {
	if m.h != nil {
		m.free()
	}
	m.sent <- fmt.Sprintf(format, args...)
	switch m.redis {
	case "away":
		return call.WithOrigin(io.EOF)
	case "refuses":
		return errRefused
	default:
		return nil
	}
}

var errRefused = errors.New("NOPERM")

func (m *machine) Renew(_ context.Context, _ token.Token, ttl time.Duration, _ uint64) (bool, error) {
	err := m.note("renew %v", ttl.Round(10*time.Millisecond))
	return m.redis != "forgets", err
}

func (m *machine) Release(_ context.Context, _ token.Token, _ uint64, rest script.Rest) (script.Handoff, error) {
	text := "release"
	if rest.Left > 0 {
		text += fmt.Sprintf(" with a rest of %v", rest.Left)
	}
	err := m.note("%s", text)
	return script.Handoff{Released: m.redis != "forgets" && m.redis != "unsure", Ambiguous: m.redis == "unsure"}, err
}

func (m *machine) Leave(_ context.Context, _ script.Rest, leaving ...script.Leaving) (script.Handoff, error) {
	text := "leave"
	if leaving[0].Tombstone {
		text += " with a tombstone"
	}
	if !leaving[0].Urgent {
		text += " that is not urgent"
	}
	err := m.note("%s", text)
	return script.Handoff{Released: m.redis != "forgets"}, err
}

// do lets time pass until an event, and has it happen.
func (m *machine) do(at, what, want, event string) {
	ms, err := time.ParseDuration(at + "ms")
	require.NoError(m.t, err)
	until := time.Unix(0, 0).Add(ms)
	var late []func()
	synctest.Wait()
	for f := m.clock.Next(until); f != nil; f = m.clock.Next(until) {
		if what == "paused" {
			late = append(late, f)
		} else {
			f()
		}
		synctest.Wait()
	}
	for _, f := range late {
		f()
	}
	got := want
	switch what {
	case "redis":
		m.redis = want
	case "sent":
		got = m.next()
	case "idle":
		assert.Empty(m.t, m.sent, event)
	case "renewals":
		n := 0
		for len(m.sent) > 0 && strings.HasPrefix(m.next(), "renew") {
			n++
		}
		got = fmt.Sprint(n)
	case "err":
		got = outcome(m.h.Err(), "nil")
	case "unlock":
		got = outcome(m.h.Unlock(context.Background()), "released")
	case "detach":
		got = outcome(m.h.Detach(), "nil")
	case "ended":
		got = outcome(<-m.ended, "released")
	case "announce":
		m.h.Announce()
	case "failover":
		m.env.Releases.Repeat(m.env.Tasks, m.clock)
	case "shutdown":
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		got = fmt.Sprint(m.env.Tasks.Shutdown(ctx, m.env.Tasks.Close))
		cancel()
	case "close":
		m.env.Tasks.End()
	}
	assert.Equal(m.t, want, got, event)
}

// next waits for the next request.
func (m *machine) next() string {
	select {
	case text := <-m.sent:
		return text
	case <-time.After(5 * time.Second):
		return "nothing"
	}
}

// outcome names an error.
func outcome(err error, ok string) string {
	for e, name := range map[error]string{
		errs.Expired: "expired", errs.Revoked: "taken", errs.Unreachable: "unreachable", errs.Unlocked: "unlocked",
		errs.Detached: "detached", errs.Closed: "closed", errRefused: "refused",
	} {
		if errors.Is(err, e) {
			return name
		}
	}
	return ok
}
