package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/clock"
)

// A sleep of the machine counts although its monotonic clock stood still.
func TestElapsed_Sleep(t *testing.T) {
	now := time.Now()
	assert.Equal(t, time.Second, clock.Elapsed(now, now.Add(time.Second)))
	assert.Equal(t, time.Hour, clock.Elapsed(now, now.Round(0).Add(time.Hour)))
}
