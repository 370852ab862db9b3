// Package soon bounds what the tests of the examples wait for, so that a test that fails ends.
package soon

import (
	"context"
	"testing"
	"time"
)

// limit is long, for machines that are busy with something else.
const limit = 20 * time.Second

// Context returns a context that ends with the test, or when it has taken too long.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	tb.Cleanup(cancel)
	return ctx
}

// Receive returns what comes from c, and fails the test if nothing comes. It is for the test's goroutine.
func Receive[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		tb.Fatal("nothing comes")
		panic("unreachable")
	}
}
