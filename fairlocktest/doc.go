// Package fairlocktest is for tests of code that uses fairlock. It has a Redis server in memory, links to it that fail
// on demand, and a clock that the test controls. Nothing waits in real time.
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
//			account.AssertHeldBy("client-1") // the job has stopped before another client can get the lock
//		})
//	}
//
// A [Server] makes clients, each over a [Link] of its own. A [Lock] controls one lock from the test. Its methods put
// the lock into a state, wait for a state, and assert one.
//
// # Time
//
// The time of [NewServer] is that of package time. Inside a testing/synctest bubble it is the bubble's. There, a
// time.Sleep advances the clients' timers, the server's TIME and every TTL, and takes no real time. This is the first
// choice. Tests that cannot run in a bubble, such as those with real connections, use [NewServerWithClock]. Its [Clock]
// stands still until [Clock.Advance]. A [LocalClock] is the clock of one machine, which drifts, steps or is paused.
//
// # Faults
//
// The methods of [Link], [Server], [Client] and [LocalClock] make one fault at a time. [Explore] runs a test under many
// schedules of faults drawn at random, and prints the seed of the first that fails it. [World.Work] runs workers that
// are restarted when they crash, and whose work lasts long enough to lose a lease.
//
// # Failure
//
// An operation that is not possible fails the test by testing.TB's Fatalf, so the methods of Lock must be called from
// the test's goroutine. Servers and clients are closed when the test ends. Calls that still wait then return
// fairlock.ErrClosed.
//
// go-redis's own log is off in programs that import this package, until they call redis.SetLogger.
//
// docs/testing.md in the repository has more examples.
package fairlocktest
