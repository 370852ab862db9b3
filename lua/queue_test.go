package lua_test

import (
	"strings"
	"testing"
)

func replace(steps, word, by string) string { return strings.ReplaceAll(steps, word, by) }

// A waiter has its ticket for life, and tickets follow the order of arrival. In memory many arrive in one microsecond.
//
//fairlock:promise Order: waiters are granted the lock by ticket; tickets are given in the order of arrival, many in one microsecond too
//fairlock:fault The server's clock steps back
//fairlock:fault A waiter is cut off when its turn comes
func TestTicket_OrderOfArrival(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"kept by requests and heartbeats", `
			acquire a b c d; acquire c -> queued 2; acquire d ticket -> queued 3
			heartbeat d c b -> queued, queued, queued; inspect -> a | b c d`},
		scenario{"in one microsecond", inMemory + `
			acquire a b c d; ticket b -> now+1; ticket c -> now+2; ticket d -> now+3
			release a -> released grants b; acquire a e; inspect -> b | c d a e`},
		scenario{"from the time", inMemory + `
			acquire a; after 1ms; acquire b; ticket b -> now; after 1µs; acquire c; ticket c -> now`},
		scenario{"the clock steps", inMemory + `
			acquire a ttl 240h; acquire b c wait 240h; clock -1µs; acquire d e wait 240h; clock -1s
			acquire f g wait 240h; clock -1h; acquire h i wait 240h; clock 1m; acquire j k wait 240h; clock 10h
			acquire l m wait 240h; inspect -> a | b c d e f g h i j k l m; release a -> released grants b
			leave b -> released grants c; release c -> released grants d`},
		scenario{"above a fence that is ahead of the clock", `
			acquire a; raise 1h; acquire b c d; inspect -> a | b c d`},
		scenario{"a waiter that was dropped returns to its position", `
			acquire a b c d e f; drop d; acquire d ticket -> queued 3; drop b; acquire b ticket -> queued 1
			drop f; acquire f ticket -> queued 5; release a -> released grants b; release b -> released grants c
			release c -> released grants d; release d -> released grants e; release e -> released grants f`},
		scenario{"a new waiter is behind one that has returned", `
			acquire a b c d; evict queue; acquire d ticket -> queued 1; acquire e -> queued 2
			acquire b ticket -> queued 1; acquire c ticket -> queued 2; inspect -> a | b c d e`},
		scenario{"none is overtaken while it returns to a vacant lock", `
			acquire a ttl 10m; acquire b c d; drop b; after 11m; acquire b ticket -> granted; inspect -> b | c d`},
	)
}

// A request with a ticket shows that there was a fence. If it is gone, Redis has lost its data, and a client may still
// hold the lock.
//
//fairlock:fault Redis loses its data, and a waiter asks first
func TestQuarantine_AfterLossOfData(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"the old order", `
			acquire a b c d e; lose; acquire d ticket -> queued 1 by quarantine
			acquire b ticket -> queued 1 by quarantine; acquire e ticket -> queued 3
			acquire c ticket -> queued 2; renew a -> lost; acquire f -> queued 5
			acquire z try -> busy by quarantine; after 30m
			acquire b c d e f ttl 90m -> queued 1, queued 2, queued 3, queued 4, queued 5
			heartbeat b c -> queued, queued; after 29m; inspect -> quarantine | b c d e f; after 2m
			acquire d -> queued 2 by b; release b -> released grants c; release c -> released grants d`},
		scenario{"for one TTL", inMemory + `
			acquire a b c; lose; acquire c ticket wait 3h -> queued 1 by quarantine; after 59m59.999999s
			acquire b ticket -> queued 1 by quarantine; after 1µs; acquire c -> queued 1 by b`},
		scenario{"not while the lock is held", `
			acquire a b; lose; acquire c; evict fence; acquire b ticket -> queued 1 by c`},
		scenario{"fences stay above the tickets, though the clock be behind", `
			raise 1h; acquire a b; lose; acquire b ticket -> queued 1 by quarantine; acquire c -> queued 2
			after 44m; heartbeat b c; after 17m; acquire b -> granted`},
	)
	scenarios(t, []kind{semaphore(4)},
		scenario{"not while permits are held", `
			acquire a*4 b*2; lose; acquire c*3; evict fence; acquire b ticket -> queued 1 by c
			inspect -> c*3 | b*2; release c -> released grants b`},
		scenario{"tickets rise after it", inMemory + `
			acquire a*3 b*2; lose; clock -1h; acquire b ticket -> queued 1 by quarantine; leave b
			acquire c -> queued 1; ticket c -> now+3600000002`},
	)
}
