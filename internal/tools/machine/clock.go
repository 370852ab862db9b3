// Package machine has the clock of a machine that a test can suspend.
package machine

import (
	"time"
	"unsafe"

	"github.com/fairlock/fairlock-go/fairlocktest"
)

// Clock is the clock of a machine that can be suspended, for a testing/synctest bubble. At a rate of 0 its monotonic
// clock and its timers stand still, and its wall clock goes on.
type Clock struct{ *fairlocktest.LocalClock }

// Now makes the monotonic reading, because in a bubble no time has one.
func (c Clock) Now() (t time.Time) {
	monotonic, wall := c.LocalClock.Now(), time.Now()
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	since1885 := wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	fields.wall = 1<<63 | uint64(since1885)<<30 | uint64(wall.Nanosecond())
	fields.ext = monotonic.Sub(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)).Nanoseconds()
	return t
}
