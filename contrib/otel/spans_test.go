package otelfairlock_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/token"
)

// attributes returns those of a span, by key.
func attributes(span sdktrace.ReadOnlySpan) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, a := range span.Attributes() {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

// A wait and the lease after it have a span each, with the caller's span as their parent, which say which lock it was.
func TestSpans_Attributes(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	type acquire = func(context.Context) (*fairlock.Lease, error)
	mutex := func(c *fairlocktest.Client) acquire { return c.Mutex("x").Lock }
	reader := func(c *fairlocktest.Client) acquire { return c.RWMutex("x").RLock }
	writer := func(c *fairlocktest.Client) acquire { return c.RWMutex("x").Lock }
	semaphore := func(c *fairlocktest.Client) acquire {
		return func(ctx context.Context) (*fairlock.Lease, error) { return c.Semaphore("x", 5).Acquire(ctx, 3) }
	}
	for name, test := range map[string]struct {
		first, second func(*fairlocktest.Client) acquire
		want          map[attribute.Key]any // of the second
	}{
		"mutex": {mutex, mutex, map[attribute.Key]any{"fairlock.kind": "mutex"}},
		"semaphore": {semaphore, semaphore, map[attribute.Key]any{
			"fairlock.kind": "semaphore", "fairlock.permits": int64(3),
		}},
		"reader": {writer, reader, map[attribute.Key]any{"fairlock.kind": "rwmutex", "fairlock.write": false}},
		"writer": {writer, writer, map[attribute.Key]any{"fairlock.kind": "rwmutex", "fairlock.write": true}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				o := observe(t, func(lock string) string { return lock + "'s group" })
				first, err := test.first(s.Client(fairlock.Config{}))(t.Context())
				require.NoError(t, err)
				ctx, caller := o.tracer.Start(t.Context(), "caller")
				time.AfterFunc(second, func() { assert.NoError(t, first.Unlock(context.Background())) })
				lease, err := test.second(s.Client(fairlock.Config{Trace: o.trace, Name: "web-1"}))(ctx)
				require.NoError(t, err)
				caller.End() // before the lease does
				require.NoError(t, lease.Unlock(t.Context()))

				spans := o.spans.Ended()
				require.Len(t, spans, 3)
				want := map[attribute.Key]any{
					"fairlock.namespace": "fairlock", "fairlock.lock": "x", "fairlock.name": "x's group",
					"fairlock.fence": int64(lease.Fence()), "fairlock.token": lease.Token().String(),
				}
				maps.Copy(want, test.want)
				assert.Equal(t, want, attributes(spans[2]), "of the lease")
				want["fairlock.queued"], want["fairlock.handoff"] = true, true
				assert.Equal(t, want, attributes(spans[0]), "of the wait")
				for _, span := range []sdktrace.ReadOnlySpan{spans[0], spans[2]} {
					assert.Equal(t, caller.SpanContext(), span.Parent())
					assert.Equal(t, trace.SpanKindInternal, span.SpanKind())
				}
				for key := range want {
					assert.Contains(t, string(readme), "`"+string(key)+"`")
				}
			})
		})
	}
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
