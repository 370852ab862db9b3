package demo

import "time"

// monotonic is a clock for one process: it begins at the wall clock's time and runs on whatever happens to that.
func monotonic() func() int64 {
	base := time.Now()
	return func() int64 { return base.UnixNano() + int64(time.Since(base)) }
}

// wall is a clock that the processes of one machine share.
func wall() int64 { return time.Now().UnixNano() }
