package fairlocktest

import (
	"testing"
	"time"
)

// SetIdleTimeout sets how long Clock.Wait waits, for one test.
func SetIdleTimeout(t *testing.T, d time.Duration) {
	t.Helper()
	was := idleTimeout
	idleTimeout = d
	t.Cleanup(func() { idleTimeout = was })
}
