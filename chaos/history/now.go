package history

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time for Event.At: ns of CLOCK_MONOTONIC.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // Linux has it
	}
	return t.Nano()
}

// Nanos turns a time that carries a monotonic reading, as that of time.Now and what is added to it do, into ns of
// CLOCK_MONOTONIC. It is exact to less than a microsecond: Go keeps that clock's reading, counted from a moment that it
// does not tell.
func Nanos(t time.Time) int64 { return origin.at + int64(t.Sub(origin.time)) }

// grain is how exact Nanos is, generously.
const grain = int64(time.Microsecond)

// origin is one moment on both clocks: the best of some readings, for the processor may be taken away in between.
var origin = func() (o struct {
	time time.Time
	at   int64
}) {
	best := int64(-1)
	for range 100 {
		before := Now()
		now := time.Now()
		if took := Now() - before; best < 0 || took < best {
			best, o.time, o.at = took, now, before+took/2
		}
	}
	return o
}()
