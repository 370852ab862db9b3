// Package clock is the source of time of the library's packages below fairlock. Its types are those of fairlock.Clock
// and fairlock.Timer, which it cannot import.
package clock

import "time"

// Clock has the methods of fairlock.Clock.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is the same type as fairlock.Timer: an alias, so that a method that returns the one returns the other.
type Timer = interface{ Stop() bool }

// System is the operating system's clock. Its readings are monotonic.
type System struct{}

// Now returns the current time.
func (System) Now() time.Time { return time.Now() } //nolint:forbidigo // the only place

// AfterFunc is time.AfterFunc.
func (System) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) } //nolint:forbidigo // the only place

// Elapsed returns the time between two readings of a Clock. If the machine was suspended, its monotonic clock may have
// stood still, so the wall clock counts if it shows more.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
