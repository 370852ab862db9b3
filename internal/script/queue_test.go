package script_test

import (
	"fmt"
	"strings"
	"testing"
)

// A waiter has its ticket for life, and tickets follow the order of arrival, though many arrive in one microsecond.
//
//fairlock:promise Order: waiters are granted the lock by ticket; tickets are given in the order of arrival, many in one microsecond too
//fairlock:fault The server's clock steps back
//fairlock:fault A waiter is cut off when its turn comes: it is passed over, and comes back at its old position
func TestTicket_OrderOfArrival(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"kept by requests and heartbeats", `
			acquire a b c d; acquire c -> queued 2; acquire d ticket -> queued 3
			heartbeat b c d -> queued, queued, queued; inspect -> a | b c d`},
		scenario{"in one microsecond", `
			acquire a b c d; ticket b -> now+1; ticket c -> now+2; ticket d -> now+3
			release a -> released grants b; acquire a e; inspect -> b | c d a e`},
		scenario{"from the time", `
			acquire a; after 1ms; acquire b; ticket b -> now; after 1µs; acquire c; ticket c -> now`},
		scenario{"the clock steps", `
			acquire a ttl 240h; acquire b c wait 240h; clock -1µs; acquire d e wait 240h; clock -1s
			acquire f g wait 240h; clock -1h; acquire h i wait 240h; clock 1m; acquire j k wait 240h; clock 10h
			acquire l m wait 240h; inspect -> a | b c d e f g h i j k l m; release a -> released grants b
			leave b -> released grants c; release c -> released grants d`},
		scenario{"above a number that is ahead of the clock", `
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

// If Redis loses its data, the lock begins anew: numbers go on rising, waiters come back with their tickets, and a
// holder learns of it at its next renewal.
//
//fairlock:fault Redis loses its data: the lock begins anew, with higher numbers; its waiters come back with their tickets, and its old holder is told at its next renewal
func TestLoss_TheLockBeginsAnew(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"the old order", `
			acquire a b c d e; lose; after 1s; acquire d ticket -> granted; acquire b ticket -> queued 1; acquire e ticket -> queued 2
			acquire c ticket -> queued 2; renew a -> lost; acquire f -> queued 4; release d -> released grants b
			release b -> released grants c`},
		scenario{"numbers rise though the clock be behind", `
			acquire a b c; lose; clock -1m; acquire c ticket -> granted; fence -> now+60000003; acquire b ticket -> queued 1`},
		scenario{"a forged ticket", `
			acquire a b; forge z 9000h; acquire z ticket -> queued 2; acquire c -> queued 3; forge y 20000h
			acquire y ticket -> the number is too far ahead; release a -> released grants b; release b -> released grants z`},
		scenario{"a ticket that raises nothing is never too far ahead", `
			acquire a; forge z 9700h; acquire z ticket; acquire b; clock -1000h; evict queue; acquire b ticket -> queued 1
			acquire c -> queued 2; forge y 9780h; acquire y ticket -> queued 1; forge x 11000h; acquire x ticket -> the number is too far ahead`},
		scenario{"the lower of two tickets counts", `
			acquire a b c d; lose; after 1s; acquire x; acquire d -> queued 1; after 1s; acquire c ticket -> queued 1
			acquire d ticket -> queued 2; inspect -> x | c d`},
	)
}

// A crash loop before a living waiter stays bounded: each script drops a hundred of those that have expired.
func TestDrops_CrashLoop(t *testing.T) {
	scenarios(t, []kind{mutex}, scenario{"fifty joins a second", `
		acquire a ttl 9h; acquire b wait 9h; ` + strings.Repeat("waiters 50 expired; heartbeat b wait 9h -> queued; ", 5) + "inspect -> a | b"})
}

// admitting are the steps that find a lock vacant and have to admit, of a party that neither holds nor waits. Each
// scenario of eachAdmitting is run with each in the place of ADMIT.
var admitting = []string{"release z", "leave z", "force", "acquire z try", "heartbeat z", "acquire z; leave z"}

func eachAdmitting(steps ...scenario) (all []scenario) {
	for _, s := range steps {
		for _, admit := range admitting {
			all = append(all, scenario{s.name + ": " + admit, strings.ReplaceAll(s.steps, "ADMIT", admit)})
		}
	}
	return all
}

// A resized number counts for all, whatever number their tokens say, until it is removed or its key is lost.
func TestResize_CountsForAll(t *testing.T) {
	var heavy strings.Builder
	for i := range 150 {
		fmt.Fprintf(&heavy, " h%d*5", i)
	}
	scenarios(t, []kind{semaphore(5)},
		scenario{"grows and shrinks", `
			acquire a*5 b*2 c d*3 ttl 5h; resize 8 -> grants b c; acquire e try of 6 -> busy; acquire f*9 of 9 -> resized 8
			resize 2 -> nothing; release a -> released; acquire g of 6 -> queued 1; inspect -> c b*2 | g; release b -> released grants g
			release c; resize 5 -> nothing; acquire h*4 of 6 -> granted; acquire i of 7 -> queued 1; release g -> released grants i
			keys -> holders number permits resized`},
		scenario{"more heads than one script drops", `
			acquire a*5; acquire` + heavy.String() + ` c; resize 2 -> more; count -> 1 | 51; heartbeat c -> queued; count -> 1 | 1`},
		scenario{"the key is foreign", "set resized x; acquire a; resize 3; keys -> holders number permits resized"},
	)
}
