// Package otelfairlock makes OpenTelemetry metrics and spans of the events of fairlock.
//
//	trace, err := otelfairlock.New(otelfairlock.Config{})
//	// …
//	client, err := fairlock.New(rdb, fairlock.Config{Trace: trace})
//
// docs/instrumentation.md in the repository lists the instruments and their attributes, the README those of the spans.
//
// # Metrics
//
// Every acquisition gives one value of fairlock.wait.duration, and every lease one of fairlock.hold.duration. The
// numbers fairlock.waiters and fairlock.leases return to 0 when no lock is waited for or held. Values are recorded with
// the ctx of the acquisition, so exemplars point at the caller's span.
//
// # Spans
//
// Spans are made for callers whose span is sampled, as its children. For other callers they cost one look at ctx. A
// span is made when its wait or hold has ended. A wait ends when the lock is granted or the caller has given up, a hold
// when the lease ends. So the spans of f in Do are children of the caller's span, beside that of the hold.
//
// A wait has a span if it was queued, failed, or took 10 ms or longer. A lock that was free costs one span, that of the
// hold.
package otelfairlock
