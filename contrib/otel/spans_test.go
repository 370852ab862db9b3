package otelfairlock_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
)

// A wait and the lease after it have a span each, with the caller's span as their parent, which say which lock it was.
// The token is redacted: nobody can release or take the lock by what a span has.
// testdata/spans.txt has them; it is written anew with -update.
func TestSpans_Attributes(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var text strings.Builder
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		o := observe(t, func(lock string) string { return lock + "'s group" })
		c := s.Client(fairlock.Config{Trace: o.trace, Name: "web-1"})
		acquire := func(ctx context.Context) (*fairlock.Lease, error) { return c.Semaphore("x", 3).Acquire(ctx, 3) }
		for _, lock := range []struct {
			held    fairlocktest.Lock
			acquire func(context.Context) (*fairlock.Lease, error)
		}{
			{s.Mutex("x"), c.Mutex("x").Lock}, {s.Semaphore("x", 3), acquire},
			{s.RWMutex("x"), c.RWMutex("x").RLock}, {s.RWMutex("x"), c.RWMutex("x").Lock},
		} {
			other := lock.held.HoldAs("other")
			ctx, caller := o.tracer.Start(t.Context(), "caller")
			time.AfterFunc(time.Second, func() { assert.NoError(t, other.Unlock(context.Background())) })
			lease, err := lock.acquire(ctx)
			require.NoError(t, err)
			caller.End() // before the lease does
			require.NoError(t, lease.Unlock(t.Context()))

			spans := o.spans.Ended()
			for _, span := range []sdktrace.ReadOnlySpan{spans[len(spans)-3], spans[len(spans)-1]} {
				assert.Equal(t, caller.SpanContext(), span.Parent())
				fmt.Fprintf(&text, "%s, %s\n", span.Name(), span.SpanKind())
				for _, a := range span.Attributes() {
					value := strings.NewReplacer(lease.Token().String(), "TOKEN", fmt.Sprint(lease.Fence()), "FENCE").
						Replace(fmt.Sprint(a.Value.AsInterface()))
					fmt.Fprintf(&text, "\t%s: %s\n", a.Key, value)
					assert.Contains(t, string(readme), "`"+string(a.Key)+"`")
				}
			}
		}
	})
	golden.Equal(t, "spans.txt", text.String())
}

// Without a sampled span, the callbacks of an uncontended pair allocate nothing.
func TestTrace_AllocatesNothing(t *testing.T) {
	o := observe(t, func(string) string { return "group" })
	unsampled := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
	}))
	for _, ctx := range []context.Context{t.Context(), unsampled} {
		e := fairlock.Event{Ctx: ctx, Namespace: "fairlock", ID: fairlock.ID{Kind: "mutex", Name: "x"}, Weight: 1}
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			o.trace.Granted(fairlock.GrantedInfo{Event: e, Wait: time.Millisecond})
			o.trace.Ended(fairlock.EndedInfo{Event: e, Held: time.Second})
		}))
	}
}
