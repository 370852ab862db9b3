package otelfairlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/token"
)

// The attributes that only spans have: on a metric, each of their values would be a series.
const (
	lockKey    = attribute.Key("fairlock.lock")
	tokenKey   = attribute.Key("fairlock.token")
	fenceKey   = attribute.Key("fairlock.fence")
	permitsKey = attribute.Key("fairlock.permits")
	writeKey   = attribute.Key("fairlock.write")
	queuedKey  = attribute.Key("fairlock.queued")
)

// slow is the least duration of a wait that has a span although the lock was free: Redis or the network was slow.
const slow = 10 * time.Millisecond

// spans makes spans of events.
type spans struct {
	tracer trace.Tracer
	group  func(string) string

	mu sync.Mutex
	// guarded by mu: the spans of waits, for the links of the leases that are held now
	waits map[token.Token]trace.SpanContext
}

func (s *spans) trace() *fairlock.Trace {
	return &fairlock.Trace{
		Granted: s.granted,
		Abandoned: func(i fairlock.AbandonedInfo) {
			if sampled(i.Ctx) {
				s.made(i.Event, "fairlock.wait", i.Wait, i.Err, nil,
					handoffKey.Bool(false), queuedKey.Bool(i.Ticket != 0))
			}
		},
		Ended: func(i fairlock.EndedInfo) { s.held(i.Event, i.Fence, i.Held, i.Err) },
	}
}

func (s *spans) granted(i fairlock.GrantedInfo) {
	if !sampled(i.Ctx) || i.Ticket == 0 && i.Wait < slow {
		return
	}
	wait := s.made(i.Event, "fairlock.wait", i.Wait, nil, nil, fenceKey.Int64(int64(i.Fence)),
		handoffKey.Bool(i.Handoff), queuedKey.Bool(i.Ticket != 0))
	if !wait.IsSampled() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[i.Token] = wait
}

func (s *spans) held(e fairlock.Event, fence uint64, held time.Duration, err error) {
	if !sampled(e.Ctx) {
		return
	}
	s.mu.Lock()
	wait, waited := s.waits[e.Token]
	delete(s.waits, e.Token)
	s.mu.Unlock()
	var links []trace.Link
	if waited {
		links = []trace.Link{{SpanContext: wait}}
	}
	s.made(e, "fairlock.hold", held, err, links, fenceKey.Int64(int64(fence)))
}

// made makes the span of a wait or hold that has just ended.
func (s *spans) made(
	e fairlock.Event, name string, lasted time.Duration, err error, links []trace.Link, more ...attribute.KeyValue,
) trace.SpanContext {
	of := series{namespace: e.Namespace, kind: string(e.Kind), name: s.group(e.Name), errorType: fairlock.ErrorType(err)}
	// the token is redacted
	all := append(of.attributes(), lockKey.String(valid(e.Name)), tokenKey.String(e.Token.String()))
	switch e.Kind {
	case fairlock.KindSemaphore, fairlock.KindKeyedSemaphore:
		all = append(all, permitsKey.Int(e.Weight))
	case fairlock.KindRWMutex:
		all = append(all, writeKey.Bool(e.Writer))
	}
	now := time.Now() //nolint:forbidigo // as the SDK does; by another Clock the span would not line up with others
	_, span := s.tracer.Start(e.Ctx, name, trace.WithTimestamp(now.Add(-lasted)), trace.WithLinks(links...),
		trace.WithAttributes(append(all, more...)...))
	if err != nil && !errors.Is(err, fairlock.ErrBusy) && !errors.Is(err, fairlock.ErrDetached) { // these two are answers
		span.SetStatus(codes.Error, valid(err.Error()))
	}
	span.End(trace.WithTimestamp(now))
	return span.SpanContext()
}

// sampled reports whether the caller's span is sampled. It may be in another process, and it may have ended.
func sampled(ctx context.Context) bool { return trace.SpanContextFromContext(ctx).IsSampled() }
