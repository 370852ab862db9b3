package fairlocktest

import (
	"testing"
	"time"
)

// SetRestless sets for how long Clock.Wait waits, for one test.
func SetRestless(t *testing.T, d time.Duration) {
	t.Helper()
	was := restless
	restless = d
	t.Cleanup(func() { restless = was })
}
