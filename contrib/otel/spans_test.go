package otelfairlock_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	otelfairlock "github.com/fairlock/fairlock-go/contrib/otel"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// attributes returns those of a span, by key.
func attributes(span sdktrace.ReadOnlySpan) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, a := range span.Attributes() {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

// story returns each span of the Trace, such as "fairlock.hold 1s-3s Error lock is lost: lease expired", from when on
// the story began.
func (o *observer) story(began time.Time) (all []string) {
	for _, span := range o.spans.Ended() {
		if strings.HasPrefix(span.Name(), "fairlock.") {
			line := fmt.Sprintf("%s %v-%v", span.Name(), span.StartTime().Sub(began), span.EndTime().Sub(began))
			if span.Status().Code != codes.Unset {
				line += fmt.Sprintf(" %s: %s", span.Status().Code, span.Status().Description)
			}
			if errorType, failed := attributes(span)["error.type"]; failed {
				line += fmt.Sprintf(" (%s)", errorType)
			}
			all = append(all, line)
		}
	}
	return all
}

// A wait and the hold after it have a span each, linked, with the time that they took and the caller's span as their
// parent. They say which lock it was.
func TestSpans(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	type of struct {
		lock func(c *fairlocktest.Client) func(context.Context) (*fairlock.Lease, error)
		hold func(s *fairlocktest.Server) *fairlock.Lease
		want map[attribute.Key]any
	}
	bubbles(t, map[string]of{
		"mutex": {
			func(c *fairlocktest.Client) func(context.Context) (*fairlock.Lease, error) { return c.Mutex("x").Lock },
			func(s *fairlocktest.Server) *fairlock.Lease { return s.Mutex("x").HoldAs("other") },
			map[attribute.Key]any{"fairlock.kind": "mutex"},
		},
		"semaphore": {
			func(c *fairlocktest.Client) func(context.Context) (*fairlock.Lease, error) {
				return func(ctx context.Context) (*fairlock.Lease, error) { return c.Semaphore("x", 5).Acquire(ctx, 3) }
			},
			func(s *fairlocktest.Server) *fairlock.Lease { return s.Semaphore("x", 5).HoldPermitsAs("other", 4) },
			map[attribute.Key]any{"fairlock.kind": "semaphore", "fairlock.permits": int64(3)},
		},
		"reader": {
			func(c *fairlocktest.Client) func(context.Context) (*fairlock.Lease, error) {
				return c.RWMutex("x").RLock
			},
			func(s *fairlocktest.Server) *fairlock.Lease { return s.RWMutex("x").HoldAs("other") },
			map[attribute.Key]any{"fairlock.kind": "rwmutex", "fairlock.write": false},
		},
		"writer": {
			func(c *fairlocktest.Client) func(context.Context) (*fairlock.Lease, error) {
				return c.RWMutex("x").Lock
			},
			func(s *fairlocktest.Server) *fairlock.Lease { return s.RWMutex("x").HoldAs("other") },
			map[attribute.Key]any{"fairlock.kind": "rwmutex", "fairlock.write": true},
		},
	}, func(t *testing.T, s *fairlocktest.Server, c of) {
		o := observe(t, func(lock string) string { return lock + "'s group" })
		client := s.Client(fairlock.Config{Trace: o.trace, Name: "web-1"})
		other := c.hold(s)
		began := time.Now()
		ctx, caller := o.tracer.Start(t.Context(), "caller")
		time.AfterFunc(second, func() { assert.NoError(t, other.Unlock(context.Background())) })
		lease, err := c.lock(client)(ctx)
		require.NoError(t, err)
		caller.End() // before the lease does
		pass(2 * second)
		require.NoError(t, lease.Unlock(t.Context()))

		assert.Equal(t, []string{"fairlock.wait 0s-1s", "fairlock.hold 1s-3s"}, o.story(began))
		spans := o.spans.Ended()
		require.Len(t, spans, 3)
		wait, hold := spans[0], spans[2]
		for _, span := range []sdktrace.ReadOnlySpan{wait, hold} {
			assert.Equal(t, caller.SpanContext(), span.Parent())
			assert.Equal(t, trace.SpanKindInternal, span.SpanKind())
		}
		assert.Empty(t, wait.Links())
		require.Len(t, hold.Links(), 1)
		assert.Equal(t, wait.SpanContext(), hold.Links()[0].SpanContext)

		want := map[attribute.Key]any{
			"fairlock.namespace": "fairlock", "fairlock.lock": "x", "fairlock.name": "x's group",
			"fairlock.fence": int64(lease.Fence()), "fairlock.token": lease.Token().String(),
		}
		maps.Copy(want, c.want)
		assert.Equal(t, want, attributes(hold))
		want["fairlock.queued"], want["fairlock.handoff"] = true, true
		assert.Equal(t, want, attributes(wait))
		for key := range want {
			assert.Contains(t, string(readme), "`"+string(key)+"`")
		}
	})
}

// world is where a lock is used.
type world struct {
	s      *fairlocktest.Server
	client *fairlocktest.Client // whose Trace is read
	m      fairlock.Mutex       // of client; w.lock is the same
	lock   fairlocktest.Lock
}

// late has the replies to the client come late by d. The connection is there already.
func (w world) late(t *testing.T, d time.Duration) {
	t.Helper()
	require.NoError(t, w.client.Mutex("before").Do(t.Context(), func(context.Context) error { return nil }))
	w.client.Link.Delay(0, d)
}

// What fails has the status of an error, with its type. A busy try and a Detach are answers. A lock that was free has
// no span of its wait, unless that took long.
func TestSpans_Outcomes(t *testing.T) {
	type outcome struct {
		do   func(t *testing.T, ctx context.Context, w world)
		want []string
	}
	lock := func(t *testing.T, ctx context.Context, w world) *fairlock.Lease {
		t.Helper()
		lease, err := w.m.Lock(ctx)
		require.NoError(t, err)
		return lease
	}
	contend := func(t *testing.T, ctx context.Context, w world) { // a wait that fails, and one that succeeds
		t.Helper()
		other := w.lock.HoldAs("other")
		done := make(chan error, 1)
		go func() { done <- w.m.Do(ctx, func(context.Context) error { return nil }) }()
		synctest.Wait()
		_, err := w.client.Mutex("x", fairlock.WithMaxWait(second)).Lock(ctx)
		require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
		require.NoError(t, other.Unlock(ctx))
		require.NoError(t, <-done)
	}
	bubbles(t, map[string]outcome{
		"free": {func(t *testing.T, ctx context.Context, w world) {
			require.NoError(t, w.m.Do(ctx, func(context.Context) error { time.Sleep(second); return nil }))
		}, []string{"fairlock.hold 0s-1s"}},
		"free, barely slow": {func(t *testing.T, ctx context.Context, w world) {
			w.late(t, 10*time.Millisecond)
			lock(t, ctx, w)
		}, []string{"fairlock.wait 0s-10ms"}},
		"free, barely fast": {func(t *testing.T, ctx context.Context, w world) {
			w.late(t, 10*time.Millisecond-1)
			lock(t, ctx, w)
		}, nil},
		"busy": {func(t *testing.T, ctx context.Context, w world) {
			w.lock.HoldAs("other")
			_, err := w.m.TryLock(ctx)
			require.ErrorIs(t, err, fairlock.ErrBusy)
		}, []string{"fairlock.wait 0s-0s (busy)"}},
		"detached": {func(t *testing.T, ctx context.Context, w world) {
			_, err := lock(t, ctx, w).Detach()
			require.NoError(t, err)
		}, []string{"fairlock.hold 0s-0s (detached)"}},
		"wait times out": {func(t *testing.T, ctx context.Context, w world) {
			w.lock.HoldAs("other")
			_, err := w.client.Mutex("x", fairlock.WithMaxWait(second)).Lock(ctx)
			require.ErrorIs(t, err, fairlock.ErrWaitTimeout)
		}, []string{"fairlock.wait 0s-1s Error: wait timed out (held by other) (wait_timeout)"}},
		"revoked": {func(t *testing.T, ctx context.Context, w world) {
			lease := lock(t, ctx, w)
			pass(second)
			w.lock.ForceRelease()
			require.ErrorIs(t, lease.Renew(ctx), fairlock.ErrRevoked)
		}, []string{"fairlock.hold 0s-1s Error: lock is lost: no longer the owner (revoked)"}},
		"Unlock fails": {func(t *testing.T, ctx context.Context, w world) {
			lease := lock(t, ctx, w)
			w.s.Miniredis.SetError("ERR no \xff") // OTLP would refuse a batch with this byte
			require.ErrorContains(t, lease.Unlock(ctx), "ERR no")
		}, []string{"fairlock.hold 0s-3s Error: redis refuses: ERR no \uFFFD (refused)"}},
		"closed": {func(t *testing.T, ctx context.Context, w world) {
			lock(t, ctx, w)
			pass(second)
			w.client.Close()
		}, []string{"fairlock.hold 0s-1s Error: client is closed (closed)"}},
		"resumed": {func(t *testing.T, ctx context.Context, w world) {
			other := w.lock.HoldAs("other")
			lease, err := w.m.Resume(ctx, other.Handle())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(ctx))
			_, err = w.m.Resume(ctx, other.Handle())
			require.ErrorIs(t, err, fairlock.ErrRevoked)
		}, []string{
			"fairlock.hold 0s-0s", "fairlock.wait 0s-0s Error: lock is lost: no longer the owner (revoked)",
		}},
		"the caller is not sampled": {func(t *testing.T, ctx context.Context, w world) {
			contend(t, trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(ctx).WithTraceFlags(0)), w)
		}, nil},
		"the caller has no span": {func(t *testing.T, _ context.Context, w world) { contend(t, t.Context(), w) }, nil},
		"the caller is another process": {func(t *testing.T, ctx context.Context, w world) {
			ctx = trace.ContextWithRemoteSpanContext(t.Context(), trace.SpanContextFromContext(ctx))
			require.NoError(t, w.m.Do(ctx, func(context.Context) error { return nil }))
		}, []string{"fairlock.hold 0s-0s"}},
	}, func(t *testing.T, s *fairlocktest.Server, c outcome) {
		o := observe(t, nil)
		client := s.Client(fairlock.Config{Trace: o.trace})
		began := time.Now()
		ctx, _ := o.tracer.Start(t.Context(), "caller")
		c.do(t, ctx, world{s, client, client.Mutex("x"), s.Mutex("x")})
		synctest.Wait()
		assert.Equal(t, c.want, o.story(began))
	})
}

// Each hold is linked to its own wait, also if one client resumes a lease of its own.
func TestSpans_Links(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		o := observe(t, nil)
		client := s.Client(fairlock.Config{Trace: o.trace})
		ctx, _ := o.tracer.Start(t.Context(), "caller")
		m := client.Mutex("x")
		client.Link.Delay(0, 20*time.Millisecond) // so that each wait has a span
		first, err := m.Lock(ctx)
		require.NoError(t, err)
		second, err := m.Resume(ctx, first.Handle())
		require.NoError(t, err)
		third, err := m.Resume(ctx, second.Handle())
		require.NoError(t, err)
		for _, lease := range []*fairlock.Lease{second, third, first} {
			_, err := lease.Detach()
			require.NoError(t, err)
		}
		waits := map[any]sdktrace.ReadOnlySpan{}
		holds := 0
		for _, span := range o.spans.Ended() {
			switch fence := attributes(span)["fairlock.fence"]; span.Name() {
			case "fairlock.wait":
				waits[fence] = span
			case "fairlock.hold":
				holds++
				require.Len(t, span.Links(), 1)
				assert.Equal(t, waits[fence].SpanContext(), span.Links()[0].SpanContext)
			}
		}
		assert.Len(t, waits, 3)
		assert.Equal(t, 3, holds)
	})
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
		secret := text[len(text)-17:] // of the 22 characters of the random part, of which String shows 4
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
	tracers := sdktrace.NewTracerProvider() // it drops its spans
	locks, err := otelfairlock.New(otelfairlock.Config{MeterProvider: noop.NewMeterProvider(), TracerProvider: tracers})
	require.NoError(t, err)
	ctx, _ := tracers.Tracer("caller").Start(t.Context(), "caller")
	e := fairlock.Event{Ctx: ctx, Namespace: "fairlock", ID: fairlock.ID{Kind: "mutex", Name: "x"}, Weight: 1}
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
		locks.Granted(fairlock.GrantedInfo{Event: e, Fence: fence, Ticket: 1})
		locks.Ended(fairlock.EndedInfo{Event: e, Fence: fence})
	}
	assert.Less(t, heap()-before, leases*16, "bytes: less than a span's ids need")
	runtime.KeepAlive(locks)
}
