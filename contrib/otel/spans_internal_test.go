package otelfairlock

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/token"
)

// A lease that has ended leaves nothing behind, also if its wait had a span.
func TestSpans_KeepNothing(t *testing.T) {
	tracer := sdktrace.NewTracerProvider().Tracer("test")
	s := &spans{tracer: tracer, group: strings.Clone, waits: map[token.Token]trace.SpanContext{}}
	ctx, _ := tracer.Start(t.Context(), "caller")
	e := fairlock.Event{Ctx: ctx, ID: fairlock.ID{Kind: "mutex", Name: "x"}}
	s.granted(fairlock.GrantedInfo{Event: e, Ticket: 1})
	require.Len(t, s.waits, 1)
	s.held(e, 1, 0, nil)
	require.Empty(t, s.waits)
}
