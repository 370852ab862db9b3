package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/clock"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestFake_FiresInOrder(t *testing.T) {
	c := clock.NewFake(start)
	var calls []time.Duration
	note := func() { calls = append(calls, c.Now().Sub(start)) }
	c.AfterFunc(3*time.Second, note)
	c.AfterFunc(1*time.Second, func() {
		note()
		c.AfterFunc(time.Second, note) // due within the same Advance
	})
	c.AfterFunc(9*time.Second, note)

	c.Advance(5 * time.Second)

	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, calls)
	assert.Equal(t, start.Add(5*time.Second), c.Now())
	assert.Equal(t, 1, c.Pending())
}

func TestFake_Stop(t *testing.T) {
	c := clock.NewFake(start)
	called := 0
	a, b := c.AfterFunc(time.Second, func() { called++ }), c.AfterFunc(2*time.Second, func() { called++ })
	assert.True(t, b.Stop())
	assert.False(t, b.Stop())
	c.Advance(time.Minute)
	assert.False(t, a.Stop())
	assert.Equal(t, 1, called)
}

func TestSystem_Runs(t *testing.T) {
	done := make(chan time.Time, 1)
	before := clock.System{}.Now()
	timer := clock.System{}.AfterFunc(time.Millisecond, func() { done <- clock.System{}.Now() })
	assert.GreaterOrEqual(t, (<-done).Sub(before), time.Millisecond)
	assert.False(t, timer.Stop())
}
