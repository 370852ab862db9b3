//go:build unix

package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
)

// run holds permits for a key; status, list and --json show the keys; resize changes the number of permits.
func TestKeyed(t *testing.T) {
	f := newFixture(t)
	x := f.client("host").KeyedSemaphore("x", 2)
	f.hold(func(ctx context.Context) (*fairlock.Lease, error) { return x.Key("a").Acquire(ctx, 1) })
	run := []string{"run", "x", "--permits", "2", "--try", "--key"}
	f.done(append(run, "b", "--key-limit", "1", "--share", "3", "--", "true")...)
	refused(t, f.call(append(run, "a", "--key-limit", "1", "--", "true")...), exitBusy, "x is busy: key a is at its limit")
	f.hold(func(ctx context.Context) (*fairlock.Lease, error) { return x.Key("b").Acquire(ctx, 1) })
	go func() { _, _ = x.Key("b", fairlock.WithKeyLimit(1)).Acquire(t.Context(), 1) }()
	f.queued(x, 1)
	require.Regexp(t, `\nx +keyed +2/2 +host \+1 .* 1 \(1 key at limit\) `, f.done("list"))
	require.Regexp(t,
		`(?s)\nkeyed x: 2 of 2 permits held, 1 waiting, a key at its limit\n  Key b is at its limit: its first waiter waits for holders of the key.\n`+
			`.* a .* b .*\n  KEY +HELD .*\n  b +1/1 +1 +1 +\S+ +at its limit, limits in use: 1 and none\n`,
		f.done("status", "x"))
	all := decode[[]struct {
		Kind string
		Keys []struct {
			Key         string
			Held, Limit int
			AtLimit     bool `json:"at_limit"`
		}
		Holders, Waiters []struct{ Key string }
	}](t, f.done("status", "x", "--json"))
	require.Equal(t, []any{"keyed", "b", 1, 1, true, "b", 2}, []any{
		all[0].Kind, all[0].Keys[0].Key, all[0].Keys[0].Held, all[0].Keys[0].Limit, all[0].Keys[0].AtLimit,
		all[0].Waiters[0].Key, len(all[0].Holders),
	})
	require.Equal(t, "keyed x has 3 permits from now on; 2 held, 1 waiting\n",
		f.done("resize", "x", "--kind", "keyed", "--permits", "3"))
	require.Equal(t, "keyed x has the number of permits that each client uses from now on; 2 held, 1 waiting\n",
		f.done("resize", "x", "--kind", "keyed", "--reset"))
}
