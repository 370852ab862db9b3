// Package sample has locks in the states that the command, the page and the metrics show, for their golden files.
package sample

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/leader"
)

// random is the random part of a token, as far as it is shown.
var random = regexp.MustCompile(`:[\w-]{4}…|:[\w-]{4}\\u2026`)

// Stable replaces what is random in a text that shows locks.
func Stable(text string) string { return random.ReplaceAllString(text, ":xxxx…") }

// acquire acquires a lock and returns its lease.
type acquire = func(context.Context) (*fairlock.Lease, error)

// permits acquires n permits of a semaphore.
func permits(s fairlock.Semaphore, n int) acquire {
	return func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, n) }
}

// Locks puts locks on a server in memory, in simulated time, and returns their IDs. Each is named after its state. The
// last waiters have waited for some milliseconds then. The returned function ends the clients.
func Locks(tb testing.TB, m *fairlocktest.Server) (ids []inspect.ID, end func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	add := func(kind fairlock.Kind, name string) string {
		ids = append(ids, inspect.ID{Kind: kind, Name: name})
		return name
	}
	mutex := func(name string) fairlocktest.Lock { return m.Mutex(add(fairlock.KindMutex, name)) }
	semaphore := func(name string, permits int) fairlocktest.Lock {
		return m.Semaphore(add(fairlock.KindSemaphore, name), permits)
	}
	keyed := func(name string, permits int) fairlocktest.Lock {
		return m.KeyedSemaphore(add(fairlock.KindKeyedSemaphore, name), permits)
	}
	rw := func(name string) fairlocktest.Lock { return m.RWMutex(add(fairlock.KindRWMutex, name)) }
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	hold := func(f acquire) *fairlock.Lease {
		tb.Helper()
		lease, err := f(ctx)
		must(err)
		return lease
	}
	wait := func(f acquire) {
		running.Go(func() { _, _ = f(ctx) })
		time.Sleep(time.Millisecond)
	}
	cron, web := m.Client(fairlock.Config{Name: "cron-1"}), m.Client(fairlock.Config{Name: "web-1"})
	hourly := fairlock.WithMinHold(time.Hour)

	// Some minutes ago.
	mutex("long TTL, not yet due").CrashHolding("web-9", 30*time.Minute)
	mutex("long TTL, one renewal missed").CrashHolding("web-9", 10*time.Minute)
	must(hold(cron.Mutex(add(fairlock.KindMutex, "released"), hourly).Lock).Unlock(ctx))
	hold(cron.Mutex(add(fairlock.KindMutex, "minimum hold"), hourly).Lock)
	leaked := semaphore("one of three missed", 5)
	leaked.HoldPermitsAs("web-2", 2)
	leaked.CrashHolding("leaked", 10*time.Minute)
	leaked.HoldAs("web-3")
	for range 2 {
		m.Semaphore("both missed", 5).CrashHolding("web-9", 10*time.Minute)
	}
	add(fairlock.KindSemaphore, "both missed")
	hold(permits(cron.Semaphore(add(fairlock.KindSemaphore, "one unknown"), 5, hourly), 1))
	m.Semaphore("one unknown", 5).HoldAs("web-2")
	must(hold(permits(cron.Semaphore(add(fairlock.KindSemaphore, "some released"), 5, hourly), 2)).Unlock(ctx))
	m.Semaphore("some released", 5).HoldAs("web-2")
	must(hold(permits(cron.Semaphore(add(fairlock.KindSemaphore, "all released"), 5, hourly), 1)).Unlock(ctx))
	must(hold(permits(cron.Semaphore("all released", 5, hourly), 1)).Unlock(ctx))
	for i, name := range []string{"election", "election and a waiter"} {
		add(fairlock.KindMutex, name)
		for n := range 3 - i {
			e := leader.New(m.Client(fairlock.Config{Name: fmt.Sprint("node-", n)}).Client, name, leader.Config{})
			running.Go(func() { _ = e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) })
			time.Sleep(time.Second)
		}
	}
	mutex("all expired").CrashHolding("web-9", 100*time.Millisecond)
	m.Mutex("all expired").CrashQueued("web-8", 3*time.Second)
	time.Sleep(229 * time.Second)

	// Ten seconds ago.
	mutex("missed").CrashHolding("web-9", 13*time.Second)
	mutex("held, renewed").HoldAs("web-1")
	m.Mutex("held, renewed").CrashQueued("web-2", 9*time.Second)
	m.Mutex("held, renewed").CrashQueued("web-3", 11*time.Second)
	m.Mutex("held, renewed").CrashQueued("web-4", time.Minute)
	for i, name := range []string{"crosswise a", "crosswise b"} {
		mutex(name).HoldAs(fmt.Sprint("web-", 5+i))
	}
	m.Mutex("crosswise a").CrashQueued("web-6", time.Hour)
	m.Mutex("crosswise b").CrashQueued("web-5", time.Hour)
	mutex("free, with a queue").CrashHolding("web-9", time.Second)
	m.Mutex("free, with a queue").CrashQueued("web-8", time.Minute)
	mutex("passed on").CrashHolding("web-9", 8*time.Second)
	m.Mutex("passed on").CrashQueued("web-8", 14*time.Second)
	crowd := mutex("crowd")
	crowd.HoldAs("web-1")
	for i := range 150 {
		crowd.CrashQueued(fmt.Sprint("web-", 2+i%10), map[bool]time.Duration{true: time.Second, false: time.Hour}[i%3 == 0])
	}
	m.Mutex("election and a waiter").CrashQueued("web-1", time.Hour)
	must(mutex("free").HoldAs("web-1").Unlock(ctx))
	add(fairlock.KindSemaphore, "resized")
	must(admin.New(web.Redis, "").Resize(ctx, fairlock.ID{Kind: fairlock.KindSemaphore, Name: "resized"}, 7))
	time.Sleep(10 * time.Second)

	// Now.
	add(fairlock.KindMutex, "unused")
	add(fairlock.KindMutex, "Granted ")                    // unused, and almost the name of another one
	m.Mutex("passed on").CrashQueued("web-7", time.Minute) // which grants it to the first, until that expires
	mutex("granted").HoldAs("web-1")
	mutex(strings.Repeat("日", 9)).HoldAs("web-1")
	mutex("\x1b[31m\xff<b>").HoldAs("web-1")
	must(m.Miniredis.Set(script.KeysOf("mutex", "fairlock", add(fairlock.KindMutex, "theirs")).Part("lock"), "a secret"))
	add(fairlock.KindMutex, "of another version")
	must(m.Miniredis.Set(script.KeysOf("mutex", "fairlock", "of another version").Part("number"), "999 0 0 0"))

	semaphore("wide", 4).HoldPermitsAs("web-2", 2)
	wait(permits(web.Semaphore("wide", 4), 3))
	wait(permits(web.Semaphore("wide", 4), 1))
	semaphore("full", 2).HoldPermitsAs("web-2", 2)
	wait(permits(web.Semaphore("full", 2), 2))
	semaphore("its turn", 1).HoldAs("web-2")
	wait(permits(web.Semaphore("its turn", 1), 1))
	semaphore("two limits", 8).HoldPermitsAs("web-2", 3)
	wait(permits(web.Semaphore("two limits", 2), 1))
	wait(permits(web.Semaphore("two limits", 8), 1))
	for i, limit := range []int{3, 5, 8} {
		m.Semaphore("three limits", limit).HoldAs(fmt.Sprint("web-", i))
	}
	add(fairlock.KindSemaphore, "three limits")

	rw("readers").ReadAs("web-2")
	m.RWMutex("readers").ReadAs("web-3")
	wait(web.RWMutex("readers").Lock)
	wait(web.RWMutex("readers").RLock)
	rw("writer").HoldAs("web-2")

	a, b, c := fairlock.WithKeyLimit(1), fairlock.WithKeyLimit(3), fairlock.WithShare(2)
	keyed("key at its limit", 4).Key("a").HoldAs("web-2")
	gpu := web.KeyedSemaphore("key at its limit", 4)
	wait(permits(gpu.Key("a", a), 1))
	wait(permits(gpu.Key("b b", c), 4))
	wait(permits(gpu.Key("c", b), 3))
	keyed("keys at their limits", 4).Key("a").HoldAs("web-2")
	m.KeyedSemaphore("keys at their limits", 4).Key("d").HoldAs("web-2")
	wait(permits(web.KeyedSemaphore("keys at their limits", 4).Key("a", a), 1))
	wait(permits(web.KeyedSemaphore("keys at their limits", 4).Key("d", a), 1))
	wait(permits(web.KeyedSemaphore("keys at their limits", 4).Key("d", b), 1))
	keyed("fewer permits", 4).Key("a").HoldPermitsAs("web-2", 3)
	wait(permits(web.KeyedSemaphore("fewer permits", 2).Key("b"), 1))
	return ids, func() { cancel(); running.Wait() }
}
