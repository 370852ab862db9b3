// Package clock is the library's only source of time, so that a test can control it.
package clock

import "time"

// Clock is a source of time and of timers. Now must carry a monotonic reading or otherwise never run backwards: leases
// are measured by it. Implementations are safe for concurrent use.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once d has passed. f may block and may use the clock.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is one pending call of AfterFunc.
type Timer interface {
	// Stop prevents the call and reports whether it was in time to do so. It does not wait for a call under way.
	Stop() bool
}

// System is the operating system's clock. Its readings are monotonic.
type System struct{}

// Now returns the current time.
func (System) Now() time.Time { return time.Now() } //nolint:forbidigo // the only place

// AfterFunc is time.AfterFunc.
func (System) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) } //nolint:forbidigo // the only place
