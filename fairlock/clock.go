package fairlock

import "time"

// Clock is a client's only source of time, safe for concurrent use. Package fairlocktest has some for tests.
type Clock interface {
	// Now returns the current time. It must not run backwards, because leases are measured by it.
	Now() time.Time
	// AfterFunc calls f once d has passed, without holding a mutex. f may block, and may use the Clock.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one pending call of Clock.AfterFunc.
type Timer = interface {
	// Stop reports whether it has prevented the call. It does not wait for a call that has begun.
	Stop() bool
}
