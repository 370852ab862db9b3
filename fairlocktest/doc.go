// Package fairlocktest is for tests of code that uses fairlock: a Redis server in memory, links to it that fail on demand,
// and time in the test's hands. No server is needed, and nothing sleeps.
//
//	func TestMyJobStopsWhenItsLeaseIsLost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) { // in a bubble: an hour takes no time
//			server := fairlocktest.NewServer(t)
//			client := server.Client(fairlock.Config{})
//			account := server.Mutex("account:42")
//			stopped := make(chan error, 1)
//			go func() { stopped <- job(t.Context(), client.Client) }()
//
//			time.Sleep(time.Hour)
//			account.AssertHeldBy("client-1") // renewed for as long as the job works
//
//			client.Link.Cut()
//			require.ErrorIs(t, <-stopped, fairlock.ErrLost)
//			account.AssertHeldBy("client-1") // it has stopped before anybody else can get in
//		})
//	}
//
// A [Server] is the server, and makes clients, each over a [Link] of its own. A [Lock] is the test's hand on one lock:
// levers that put it into a state at once, waits for a state, and assertions.
//
// # Time
//
// The time of [NewServer] is that of package time. Inside a testing/synctest bubble it is the bubble's: a time.Sleep moves
// the clients' timers, the server's TIME and every TTL, and nothing waits for real. Outside a bubble,
// [NewServerWithClock] has all of them go by a [Clock], which stands still until [Clock.Advance] and returns from it when
// everything has come to rest. A [LocalClock] is that of one machine, which drifts, steps or is stopped.
//
// # Failure
//
// What cannot be done fails the test, by testing.TB's Fatalf; so levers, waits and assertions must be called from the
// test's goroutine. Everything that was made is closed when the test ends; what still waits then returns fairlock.ErrClosed.
//
// docs/testing.md in the repository has more examples.
package fairlocktest
