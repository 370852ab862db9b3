//go:build unix

package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

// run holds permits for a key, and resize changes the number of permits. How keys look is in internal/view.
func TestKeyed(t *testing.T) {
	f := newFixture(t)
	x := f.client("host").KeyedSemaphore("x", 2)
	f.hold(func(ctx context.Context) (*fairlock.Lease, error) { return x.Key("a").Acquire(ctx, 1) })
	run := []string{"run", "x", "--permits", "2", "--try", "--key"}
	f.done(append(run, "b", "--key-limit", "1", "--share", "3", "--", "true")...)
	refused(t, f.call(append(run, "a", "--key-limit", "1", "--", "true")...), exitBusy, "x is busy: key a is at its limit")
	require.Regexp(t, `\nx +keyed +1/2 +host `, f.done("list"))
	require.Equal(t, "keyed x has 3 permits from now on; 1 held, 0 waiting\n",
		f.done("resize", "x", "--kind", "keyed", "--permits", "3"))
	require.Equal(t, "keyed x has the number of permits that each client uses from now on; 1 held, 0 waiting\n",
		f.done("resize", "x", "--kind", "keyed", "--reset"))
}
