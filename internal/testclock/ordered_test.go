package testclock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/testclock"
)

// Timers that are due at one instant are called in the order in which they were set. Each is called when all goroutines
// that the one before has started wait. So the order of goroutines that are ready together does not matter.
func TestOrdered(t *testing.T) {
	for range 20 { // package time would call them in another order each time
		synctest.Test(t, func(t *testing.T) {
			var c testclock.Ordered
			var mu sync.Mutex
			var called []string
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				called = append(called, what)
			}
			call := func(name string) func() {
				return func() {
					note(name)
					go note(name + " goes on")
				}
			}
			c.AfterFunc(2*time.Second, call("b"))
			stopped := c.AfterFunc(time.Second, call("stopped"))
			c.AfterFunc(3*time.Second, call("d"))
			c.AfterFunc(time.Second, call("a"))
			assert.True(t, stopped.Stop())
			assert.False(t, stopped.Stop())
			time.Sleep(time.Second)
			synctest.Wait()
			c.AfterFunc(time.Second, call("c"))
			c.AfterFunc(0, call("now"))
			c.AfterFunc(-time.Second, call("now, too"))
			synctest.Wait()
			assert.Equal(t, []string{"a", "a goes on", "now", "now goes on", "now, too", "now, too goes on"}, called)
			called = nil
			last := c.AfterFunc(2*time.Second, func() {})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.Equal(t, []string{"b", "b goes on", "c", "c goes on", "d", "d goes on"}, called)
			assert.False(t, last.Stop())
		})
	}
}
