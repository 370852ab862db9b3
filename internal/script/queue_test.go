package script_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/script"
)

func replace(steps, word, by string) string { return strings.ReplaceAll(steps, word, by) }

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

// If Redis loses its data, the lock begins anew: numbers go on rising, waiters come back with their tickets, and a holder
// learns of it at its next renewal.
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

// each way to be granted the lock, one after the other.
const waysToBeGranted = `
	acquire a -> granted; release a; acquire b try -> granted; acquire c; release b -> released grants c
	acquire d; leave c -> released grants d; acquire e; force -> released grants e; acquire f wait 3h; after 46m
	heartbeat f -> holding; acquire g wait 3h; after 61m; acquire g -> granted; acquire h wait 3h; after 61m
	acquire z try -> busy by h; acquire i; drop i; release h; acquire i ticket -> granted; leave i
	acquire a -> granted; renew a; force -> released
`

// A fence is the server's time in µs, or one more than the last fence, whichever is more. A machine compares the fence
// of each grant with that in Redis, with the one in the notification and with those of all earlier grants, and how long
// the last one is kept.
//
//fairlock:promise Fences: each above all earlier ones, across a clock that steps back and lost data; the last one is kept for FenceTTL
//fairlock:fault The server's clock steps back: order and fences hold
func TestFence_Rises(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"with every grant", waysToBeGranted + waysToBeGranted},
		scenario{"above one that is ahead of the clock", "raise 5h\n" + waysToBeGranted + waysToBeGranted},
		scenario{"to the largest", "raise 9006099743113100\n" + waysToBeGranted + waysToBeGranted},
		scenario{"with a clock that steps back", waysToBeGranted + "clock -1h\n" + waysToBeGranted +
			"clock -24h\n" + waysToBeGranted + "clock 48h\n" + waysToBeGranted},
		scenario{"after a loss of data", `
			acquire a -> granted; lose; after 1m; acquire b -> granted; lose; after 1m; acquire c try -> granted`},
		scenario{"from the time", `
			acquire a; fence -> now; release a; acquire b; fence -> now+1; release b; clock -1h; acquire c
			fence -> now+3600000002; release c; clock 2h; acquire d; fence -> now`},
		scenario{"after a lease of more than a day", `
			acquire a ttl 168h; after 100h; renew a ttl 168h -> renewed; after 160h
			renew a ttl 168h -> renewed; after 167h; release a; acquire b`},
	)
	scenarios(t, []kind{semaphore(5), rwMutex},
		scenario{"each holder keeps its own", `
			acquire a b c d e -> granted, granted, granted, granted, granted; renew a; renew e
			acquire c -> granted; release b; acquire f; renew a; renew f; inspect; after 50m; renew f; renew a
			evict number; renew c -> renewed; inspect 2; after 11m; renew a; renew f -> renewed; renew d -> lost`},
	)
}

// What a lock has in Redis lasts as long as it is needed, and not much longer: a machine checks each key's expiry after
// every step.
//
//fairlock:promise Nothing stays: eleven minutes after the last WaiterTTL has ended, or once somebody has locked and unlocked the lock and nobody waits, only its last number is left, for FenceTTL, tombstones for eleven minutes, and the number of permits of a semaphore that was resized
func TestExpiry_OnlyTheFenceIsLeft(t *testing.T) {
	const abandoned = `
		acquire a b c d; after 44m; leave z tombstone; after 10m30s; keys -> KEYS; after 10m; keys -> number
		after 1m; keys -> number; after 12m; keys ->`
	scenarios(t, []kind{mutex}, scenario{"abandoned", replace(abandoned, "KEYS", "heartbeats lock number queue tombstones")})
	scenarios(t, []kind{semaphore(1), writers},
		scenario{"abandoned", replace(abandoned, "KEYS", "heartbeats holders number permits queue tombstones")})
	scenarios(t, oneHolder,
		scenario{"a longer WaiterTTL counts", `
			acquire a ttl 5h; acquire b; heartbeat b wait 3h -> queued; heartbeat b -> queued
			acquire c; after 50m; inspect -> a | b c`},
		scenario{"tombstones end one by one", "leave a tombstone; after 6m; leave b tombstone; after 6m; leave c tombstone; acquire b -> busy"},
		scenario{"tombstones are lost", `
			acquire a; leave b tombstone; acquire b -> busy; evict tombstones; acquire b -> queued 1`},
	)
}

// No waiter is passed by one behind it that would fit; a release grants exactly those that fit now.
//
//fairlock:promise Order among permits
func TestPermits_GrantedInOrder(t *testing.T) {
	scenarios(t, []kind{semaphore(4)},
		scenario{"a heavy waiter is not overtaken", `
			acquire a*2 h*3 l m -> granted, queued 1, queued 2, queued 3; acquire z try -> busy by a
			acquire n -> queued 4; acquire l -> queued 2; heartbeat l m n -> queued, queued, queued; release z
			leave n -> nothing; renew a; inspect -> a*2 | h*3 l m; release a -> released grants h l
			inspect -> l h*3 | m`},
	)
	var expired []scenario
	for _, admit := range admitting {
		if admit != "force" {
			expired = append(expired, scenario{"an expired heavy waiter blocks none: " + admit, `
				acquire a*2; acquire h*3 wait 5m; acquire l m n; after 11m
` + admit + `
				inspect -> l m a*2 | n; recorded -> a l m`})
		}
	}
	scenarios(t, []kind{semaphore(4)}, expired...)
}

// Each request brings its number of permits. The head waits until no more than its own number are held with it, and nobody passes
// it; so never more are held than the largest number in use.
//
//fairlock:promise Two numbers of permits: each request is granted when no more than its own number are held with it; while one with the smaller number is the first, all others wait
func TestPermits_EachRequestBringsItsNumber(t *testing.T) {
	scenarios(t, []kind{semaphore(4)},
		scenario{"a smaller one at the head", `
			acquire a*3 -> granted; acquire b of 2 -> queued 1; acquire c -> queued 2; acquire y z*2 try -> busy, busy; heartbeat b c -> queued, queued
			inspect -> a*3 | b c; release a -> released grants b c; inspect -> b c |`},
		scenario{"until so few are held", `
			acquire a*2 b -> granted, granted; acquire s*2 of 2; acquire c; release b -> released; inspect -> a*2 | s*2 c
			release a -> released grants s c`},
		scenario{"a larger one fits", `
			acquire a*2 of 2 -> granted; acquire b of 2 try -> busy; acquire c*2 -> granted; acquire d try -> busy
			acquire e of 5 -> granted; acquire f of 5 try -> busy; inspect -> e a*2 c*2 |`},
		scenario{"one that has crashed is passed", `
			acquire a*3 ttl 5h; acquire b of 2 wait 30m; acquire c wait 2h; after 31m; heartbeat c wait 2h -> holding; inspect -> c a*3 |`},
		scenario{"of a lock that is idle", `acquire a*9 of 9 -> granted; release a; acquire b*2 of 2 -> granted; acquire c*4 -> queued 1; release b -> released grants c`},
		scenario{"to the µs", `
			acquire a*3 ttl 10m; acquire b ttl 20m; after 19m59.999999s; acquire y*9 of 9 try -> busy
			after 1µs; acquire y*9 of 9 -> granted`},
	)
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
		scenario{"two numbers", "resize 3; acquire a*2 of 2 b of 9 -> granted, granted; acquire c of 9 try -> busy; acquire d of 1 -> queued 1"},
		scenario{"grows by less than the head wants", "acquire a*4 b*5 c; resize 8 -> nothing; resize 9 -> grants b; resize 10 -> grants c"},
		scenario{"heads that want more are dropped, and none behind them", `
			acquire a*5 ttl 10h; acquire b*4 c d*3 e f*5; resize 2 -> nothing; inspect -> a*5 | c d*3 e f*5
			heartbeat b c d -> gone, queued, queued; acquire b ticket -> resized 2; acquire d ticket -> queued 2; acquire f*5 try -> busy
			leave c; heartbeat d e -> gone, queued; inspect -> a*5 | e f*5; release a -> released grants e; inspect -> e |`},
		scenario{"one that was dropped comes back", "acquire a*5 b*4 c; resize 3; inspect -> a*5 | c; resize 5; acquire b ticket -> queued 1"},
		scenario{"the head that asks wants more", `
			acquire a*2 ttl 10h; acquire b*4 wait 10m; acquire c*5 wait 2h; acquire d wait 2h; resize 4 -> nothing; after 11m
			acquire c -> resized 4; inspect -> d a*2 |`},
		scenario{"the head sends a heartbeat, and wants more", `
			acquire a*2 ttl 10h; acquire b*4 wait 10m; acquire c*5 wait 2h; acquire d wait 2h; resize 4 -> nothing; after 11m
			heartbeat c d wait 2h -> gone, holding`},
		scenario{"more heads than one script drops", `
			acquire a*5; acquire` + heavy.String() + ` c; resize 2 -> more; count -> 1 | 51; heartbeat c -> queued; count -> 1 | 1`},
		scenario{"one that wants more comes back behind others", `
			acquire a*5 b c*3; evict queue; resize 2; acquire b ticket -> queued 1; acquire c ticket -> queued 2; leave b
			heartbeat c -> gone; acquire c ticket -> resized 2`},
		scenario{"while it is idle", `
			resize 2; keys -> resized; inspect -> |; acquire a*3 -> resized 2; acquire b*2 of 9 -> granted; release b; keys -> number resized
			acquire c*2 -> granted; resize 0 -> nothing; acquire d*3 -> granted; acquire e of 6 -> granted; keys -> holders number permits`},
		scenario{"after a reset each one's own number counts", `
			resize 5; acquire a b of 6; acquire c*4 of 6 -> queued 1; resize 0 -> grants c; acquire d -> queued 1; acquire e of 9 -> queued 2`},
		scenario{"the key is lost", `
			acquire a*5 b*3; resize 8 -> grants b; acquire c; evict resized; acquire d of 8 -> queued 2; release a -> released grants c d`},
		scenario{"holders are lost", "resize 3; acquire a*3 of 3; acquire b*2; evict holders; release a -> grants b; acquire c -> granted; resize 0; acquire d -> granted"},
		scenario{"the key is foreign", "set resized x; acquire a; resize 3; keys -> holders number permits resized"},
	)
}

//fairlock:promise Nothing stays
func TestPermits_NothingIsLeft(t *testing.T) {
	scenarios(t, []kind{semaphore(4)},
		scenario{"released and left", `
			acquire a*4 b*3 c; leave b; release a; leave c; keys -> number; acquire a; release a; keys -> number`},
		scenario{"force", "acquire a b*2; force; keys -> number"},
		scenario{"of a queue that Redis forgot", `
			acquire a; acquire w*4 wait 5m; after 6m; acquire b; release a; recorded -> b`},
	)
}

// A full queue lets go of those that have expired, though nobody sends heartbeats.
func TestMaxWaiters_ExpiredDoNotCount(t *testing.T) {
	scenarios(t, oneHolder, scenario{"full", `
		acquire a ttl 9h; acquire b c; acquire d max 2 -> full 2; after 46m; acquire d max 2 -> queued 1; inspect -> a | d`})
}

// A cluster that moves another key does not refuse to count the waiters.
func TestWaiting_DeclaresTheQueueAlone(t *testing.T) {
	assert.Equal(t, []string{script.MutexKeys("ns", "name").Queue}, script.Mutex(nil, "ns", "name").KeysOf("waiting"))
	assert.Equal(t, []string{script.RWMutexKeys("ns", "name").Queue}, script.RWMutex(nil, "ns", "name").KeysOf("waiting"))
}
