package fairlock_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A callback, a slog.Handler or the function of Do that panics in its caller's goroutine leaves nothing behind: the
// panic reaches the caller, the lease is given back, a waiter leaves, and Shutdown does not wait for it.
//
//fairlock:promise Do
//fairlock:fault A Trace callback or the Logger panics in the goroutine of a caller: the panic reaches the caller, the lease is given back, and a waiter leaves
func TestTrace_Panics(t *testing.T) {
	boom := func() { panic("boom") }
	bubbles(t, map[string]fairlock.Trace{
		"Queued": {Queued: func(fairlock.QueuedInfo) { boom() }}, "Granted": {Granted: func(fairlock.GrantedInfo) { boom() }},
		"Abandoned": {Abandoned: func(fairlock.AbandonedInfo) { boom() }},
		"Ended":     {Ended: func(fairlock.EndedInfo) { boom() }}, "the log": {}, "f": {},
	}, func(t *testing.T, s *fairlocktest.Server, name string, trace fairlock.Trace) {
		cfg := fairlock.Config{Trace: &trace}
		if name == "the log" {
			cfg.Logger = slog.New(panicking{slog.DiscardHandler})
		}
		client := s.Client(cfg)
		if name == "the log" { // the waiter is queued, and will send acquire again
			client.Link.Delay(0, time.Second)
			time.AfterFunc(time.Second/2, client.Link.Cut)
		}
		free := name == "Granted" || name == "Ended" || name == "f"
		if !free {
			s.Mutex("x").HoldAs("holder")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		f := func(context.Context) error {
			if name == "f" {
				boom()
			}
			return nil
		}
		require.PanicsWithValue(t, "boom", func() { _ = client.Mutex("x").Do(ctx, f) })
		client.Link.Mend()
		pass(time.Second)
		s.Mutex("x").AssertQueue()
		if free {
			s.Mutex("x").AssertFree()
		}
		require.Zero(t, client.Stats())
		require.NoError(t, client.Shutdown(t.Context()))
	})
}

// panicking is a handler that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("boom") }
