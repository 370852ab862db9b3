package fairlock

import "time"

// Clock is a client's only source of time. Its methods must be safe for concurrent use. Package fairlocktest has some for tests.
type Clock interface {
	// Now returns the current time. It never runs backwards: leases are measured by it.
	Now() time.Time

	// AfterFunc calls f once d has passed. The Clock holds no mutex then: f may block, and may use the Clock.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one pending call of Clock.AfterFunc.
type Timer = interface {
	// Stop prevents the call, and reports whether it was in time to do so. It does not wait for a call that has begun.
	Stop() bool
}
