package otelfairlock_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/token"
)

// A wait and the lease after it have a span each, with the caller's span as their parent, which say which lock it was.
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
			time.AfterFunc(second, func() { assert.NoError(t, other.Unlock(context.Background())) })
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

// No span has a token or a handle with which a lock can be released or taken.
func TestSpans_NoSecrets(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		o := observe(t, nil)
		ctx, _ := o.tracer.Start(t.Context(), "caller")
		client := s.Client(fairlock.Config{Trace: o.trace})
		lease, err := client.Mutex("x").Lock(ctx)
		require.NoError(t, err)
		_, err = client.Mutex("x", fairlock.WithMaxWait(second)).Lock(ctx)
		require.Error(t, err)
		s.Mutex("x").ForceRelease()
		require.Error(t, lease.Unlock(ctx))
		text := lease.Token().Text()
		secret := text[len(text)-17:] // of the 22 characters of the random part; String shows 4 others
		spans := fmt.Sprintf("%+v", tracetest.SpanStubsFromReadOnlySpans(o.spans.Ended()))
		assert.NotContains(t, spans, secret)
		assert.Contains(t, spans, lease.Token().String())
	})
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

// A lease that has ended leaves nothing behind, also if its wait had a span.
func TestSpans_KeepNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		tracers := sdktrace.NewTracerProvider() // it drops its spans
		locks, err := otelfairlock.New(otelfairlock.Config{MeterProvider: noop.NewMeterProvider(), TracerProvider: tracers})
		require.NoError(t, err)
		lease, err := s.Client(fairlock.Config{}).Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		text := lease.Token().Text()
		ctx, _ := tracers.Tracer("caller").Start(t.Context(), "caller")
		heap := func() int {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := heap()
		const leases = 20_000
		for fence := range uint64(leases) {
			e := fairlock.Event{Ctx: ctx, Namespace: "fairlock", ID: fairlock.ID{Kind: "mutex", Name: "x"}, Weight: 1}
			e.Token, err = token.Parse(fmt.Sprintf("%s%05d%s", text[:len(text)-6], fence, text[len(text)-1:]))
			require.NoError(t, err)
			locks.Granted(fairlock.GrantedInfo{Event: e, Fence: fence, Ticket: 1})
			locks.Ended(fairlock.EndedInfo{Event: e, Fence: fence})
		}
		assert.Less(t, heap()-before, leases*16, "bytes: less than a span's ids need")
		runtime.KeepAlive(locks)
	})
}
