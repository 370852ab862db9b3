package lua_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func replace(steps, word, by string) string { return strings.ReplaceAll(steps, word, by) }

// A lease does not outlast its TTL because the clock has stepped back. (A waiter does, as yet.)
//
//fairlock:fault The server's clock steps back by an hour: a crashed holder keeps the lock for no more than its TTL from the next heartbeat on
func TestLease_CutAfterAStepBackOfTheClock(t *testing.T) {
	scenarios(t, oneHolder, scenario{"of the holder", `
		acquire a ttl 10m; acquire b wait 30h; clock -5h; heartbeat b wait 30h -> queued; after 11m; acquire b -> granted`},
		scenario{"of one behind whom nobody waited", `
			acquire z; acquire a ttl 10m; release z -> released grants a; after 5m; renew a; clock -1m
			acquire b -> queued 1 by a retry 10m`})
	scenarios(t, []kind{semaphore(30)}, scenario{"of thirty", inMemory + `
		acquire a b c d e f g ttl 10m; acquire o q r s t u v w x ttl 9h; acquire p*16 wait 30h; clock -5h
		heartbeat p wait 30h -> queued; after 11m; heartbeat p -> granted; renew o -> renewed; inspect -> p*16 o q r s t u v w x |`})
}

// A request of an earlier lease does not touch a later one of the same token.
func TestLease_OnlyTheFenceTellsItFromALaterOne(t *testing.T) {
	scenarios(t, oneHolder, scenario{"later", `
		acquire z; release z; acquire a; renew a seen z -> lost; release a seen z -> nothing
		acquire b; release a seen z -> nothing; inspect -> a | b; leave a -> released grants b`})
}

// A waiter has its ticket for life, and tickets follow the order of arrival. In memory many arrive in one microsecond.
//
//fairlock:promise Order: waiters are granted the lock by ticket; tickets are given in the order of arrival, many in one microsecond too
//fairlock:fault The server's clock steps back
//fairlock:fault A waiter is cut off when its turn comes: it is passed over, and comes back at its old position
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

// A ticket that is not queued, and neither was granted the lock nor dropped, shows that Redis has lost its data; so does the
// fence of a lost lease if no number so high is known. A client may still hold the lock.
//
//fairlock:fault Redis loses its data, and a waiter requests the lock first
func TestQuarantine_AfterLossOfData(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"the old order", `
			acquire a b c d e ttl 90m; lose; acquire d ticket -> queued 1 by quarantine retry 90m
			acquire b ticket -> queued 1 by quarantine; acquire e ticket -> queued 3
			acquire c ticket -> queued 2; renew a -> lost; acquire f -> queued 5
			acquire z try -> busy by quarantine; quarantine -> 90m; after 30m
			acquire b c d e f -> queued 1, queued 2, queued 3, queued 4, queued 5
			heartbeat b c -> queued, queued retry 60m; after 29m; heartbeat b c d e f; after 30m; inspect -> | b c d e f
			quarantine -> 1m; after 2m
			acquire d -> queued 2 by b; release b -> released grants c; release c -> released grants d`},
		scenario{"for as long as the waiter says", inMemory + `
			acquire a b c; lose; acquire c ticket wait 3h -> queued 1 by quarantine; after 59m59.999999s
			acquire b ticket -> queued 1 by quarantine; after 5µs; acquire c -> queued 1 by b`},
		scenario{"at least three seconds", inMemory + `
			acquire a; acquire b ttl 1s; lose; acquire b ticket -> queued 1; quarantine -> 3s; after 2.999s; acquire b -> queued 1
			after 1ms; acquire b -> granted`},
		scenario{"also while the lock is held", `
			acquire a b; lose; acquire c; acquire b ticket -> queued 1 by c; release c -> released; quarantine -> 60m
			after 44m; heartbeat b; after 17m; acquire b -> granted; quarantine -> 0s`},
		scenario{"a newcomer hides nothing", `
			acquire a b c; lose; acquire d; release d -> released; acquire c ticket -> queued 1 by quarantine
			acquire b ticket -> queued 1; after 44m; heartbeat b c; after 17m; heartbeat b c -> granted, queued`},
		scenario{"newcomers that queue hide nothing", `
			acquire a b c; lose; after 1s; acquire d -> granted; acquire e; release d -> released grants e; release e
			acquire c ticket -> queued 1 by quarantine; quarantine -> 60m; acquire b ticket -> queued 1; quarantine -> 60m`},
		scenario{"the longest TTL counts, whoever comes first", `
			acquire a; acquire b ttl 10s; acquire c; lose; acquire b ticket; quarantine -> 10s; after 5s
			acquire c ticket -> queued 2 by quarantine; quarantine -> 60m; acquire b ticket; quarantine -> 60m`},
		scenario{"its waiter has left", `
			acquire a b; lose; acquire b ticket; leave b tombstone; acquire c try -> busy by quarantine
			acquire c -> queued 1 by quarantine; after 44m; heartbeat c; after 17m; acquire c -> granted`},
		scenario{"once for each loss", `
			acquire a b c; lose; acquire c ticket -> queued 1; after 50m; acquire b ticket -> queued 1; quarantine -> 10m`},
		scenario{"a step or a stall shortens it by a second at most", inMemory + `
			acquire a b ttl 10s; lose; acquire b ticket; clock 9m; heartbeat b; quarantine -> 9s; clock -1h; heartbeat b; quarantine -> 9s
			stall 9m; acquire z try -> busy by quarantine; quarantine -> 8s`},
		scenario{"not for a waiter that was dropped, or whose lease has lapsed", `
			acquire a ttl 10m; acquire b wait 5m; acquire c ttl 5m; after 12m; heartbeat c -> granted; acquire b ticket -> queued 1 by c
			quarantine -> 0s; after 6m; heartbeat b -> granted; acquire c ticket -> queued 1 by b; quarantine -> 0s`},
		scenario{"not for one that was swept, or asks again", `
			acquire a ttl 9h; acquire b c wait 5m; acquire d wait 9h; after 6m; heartbeat d -> queued; inspect -> a | d
			acquire b ticket -> queued 1; acquire d ticket -> queued 2; quarantine -> 0s`},
		scenario{"a longer lease is reported later", `
			acquire a; acquire b ttl 10s; lose; acquire b ticket; quarantine -> 10s; report a; quarantine -> 60m`},
		scenario{"the lost lease is reported", `
			acquire a b; lose; acquire z try -> granted; release z; raise 0; report a; acquire z try -> busy by quarantine; quarantine -> 60m`},
		scenario{"a lease that was taken is reported", `
			acquire a b; force -> released grants b; report a; quarantine -> 0s; inspect -> b |`},
		scenario{"a forged ticket", `
			acquire a b; forge z 9000h; acquire z ticket -> queued 2 by a; quarantine -> 60m; acquire c -> queued 3
			release a -> released; after 44m; heartbeat b z c; after 17m; heartbeat b -> granted; release b -> released grants z
			release z -> released grants c`},
		scenario{"forced to end", `
			acquire a b; lose; acquire b ticket -> queued 1; force seen a -> nothing; quarantine -> 60m
			force -> released grants b; quarantine -> 0s`},
		scenario{"the queue alone is lost", `
			acquire a b c; evict queue; acquire c ticket -> queued 1; quarantine -> 60m; release a -> released
			acquire b ticket -> queued 1 by quarantine`},
		scenario{"the heartbeats are lost meanwhile", `
			acquire a b; lose; acquire b ticket; evict heartbeats; acquire z try -> granted; quarantine -> 0s`},
		scenario{"fences stay above the tickets, though the clock be behind", `
			raise 1h; acquire a b; lose; acquire b ticket -> queued 1 by quarantine; acquire c -> queued 2
			after 44m; heartbeat b c; after 17m; acquire b -> granted`},
	)
	scenarios(t, []kind{semaphore(4)},
		scenario{"tickets rise after it", inMemory + `
			acquire a*3 b*2; lose; clock -1h; acquire b ticket -> queued 1 by quarantine; leave b
			acquire c -> queued 1; ticket c -> now+3600000003`},
	)
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

// The head is granted a vacant lock by whatever script runs next, and no other waiter is. Only an expired head is dropped,
// and only then. TestModel_RandomSteps compares what each request gets with the model.
//
//fairlock:fault A holder crashes
//fairlock:promise Only the head: is granted; a head is dropped only if it has expired, when permits are free or in a sweep
func TestAdmission_OnlyTheHead(t *testing.T) {
	scenarios(t, oneHolder, eachAdmitting(
		scenario{"in order", `
			acquire a ttl 10m; acquire b c d; after 11m; ADMIT; inspect -> b | c d; release z
			heartbeat b c d -> holding, queued, queued; after 35m; ADMIT; inspect -> c | d`},
		scenario{"expired heads are dropped", `
			acquire a ttl 10m; acquire b c wait 30s; acquire d; acquire e wait 30s; acquire f wait 90m
			after 50s; clock 10m
			ADMIT; inspect -> d | e f    # e has expired too, but is not in the way
			after 45m; ADMIT; inspect -> f |`},
	)...)
}

// If the number alone is lost, it is made again of what is there.
//
//fairlock:fault The key of the numbers is lost: ForceRelease takes the lock from all holders all the same; the next fence is above theirs
func TestNumber_IsMadeOfTheFenceAndTheTickets(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"in use", `
			acquire a b; after 30m; renew a -> renewed; release a -> released grants b; evict number
			renew b -> renewed; acquire a -> queued 1; release b -> released grants a`},
		scenario{"ahead of the clock", inMemory + `
			raise 1h; acquire a b; evict number; renew a -> renewed; release a -> released grants b; fence -> now+3600000003
			evict number; acquire c -> queued 1; fence -> now+3600000004`},
	)
	scenarios(t, []kind{semaphore(2)}, scenario{"several holders", inMemory + `
		raise 1h; acquire a b; acquire c*2 -> queued 1; evict number; force -> released grants c; fence -> now+3600000004`})
}

// each way to be granted the lock, one after the other.
const waysToBeGranted = `
	acquire a -> granted; release a; acquire b try -> granted; acquire c; release b -> released grants c
	acquire d; leave c -> released grants d; acquire e; force -> released grants e; acquire f wait 3h; after 46m
	heartbeat f -> granted; acquire g wait 3h; after 61m; acquire g -> granted; acquire h wait 3h; after 61m
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
		scenario{"with a clock that steps back", inMemory + waysToBeGranted + "clock -1h\n" + waysToBeGranted +
			"clock -24h\n" + waysToBeGranted + "clock 48h\n" + waysToBeGranted},
		scenario{"after a loss of data", `
			acquire a -> granted; lose; after 1m; acquire b -> granted; lose; after 1m; acquire c try -> granted`},
		scenario{"from the time", inMemory + `
			acquire a; fence -> now; release a; acquire b; fence -> now+1; release b; clock -1h; acquire c
			fence -> now+3600000002; release c; clock 2h; acquire d; fence -> now`},
		scenario{"and outlives a lease of more than a day", `
			acquire a ttl 168h; after 100h; renew a ttl 168h -> renewed; after 160h; evict number
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
//fairlock:promise Nothing stays: eleven minutes after the last WaiterTTL has ended, or once somebody has locked and unlocked the lock and nobody waits, only its last number is left, for FenceTTL, and tombstones for eleven minutes
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
		scenario{"heartbeats are lost", `
			acquire a b c d; evict heartbeats; heartbeat b c d -> gone, gone, gone; acquire e -> queued 1
			acquire c ticket -> queued 1; acquire b ticket -> queued 1; inspect -> a | b c e; evict heartbeats
			acquire f -> queued 1; evict heartbeats; release a -> released; acquire b ticket -> granted`},
		scenario{"the queue is lost", `
			acquire a b c; evict queue; heartbeat b c -> gone, gone; acquire c ticket -> queued 1
			acquire b ticket -> queued 1; evict queue; release a -> released; acquire d -> queued 1 by quarantine
			acquire b ticket -> queued 1`},
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
			inspect -> h*3 l | m`},
	)
	var expired []scenario
	for _, admit := range append(admitting, "acquire y of 9") {
		if admit != "force" {
			expired = append(expired, scenario{"an expired heavy waiter blocks none: " + admit, `
				acquire a*2; acquire h*3 wait 5m; acquire l m n; after 11m
` + admit + `
				inspect -> l m a*2 | n; recorded -> a l m`})
		}
	}
	scenarios(t, []kind{semaphore(4)}, expired...)
}

// While anybody holds or waits, a request with another capacity is told so, and changes nothing but that it admits.
//
//fairlock:promise Capacity
func TestCapacity_StandsWhileTheLockIsInUse(t *testing.T) {
	scenarios(t, []kind{semaphore(4)},
		scenario{"only waiters are left", `
			acquire a*4 ttl 10m; acquire b*3 c*2 wait 90m; after 11m; acquire y of 9 -> capacity 4    # it admits
			inspect -> b*3 | c*2; after 61m; acquire y try of 9 -> capacity 4; inspect -> c*2 |; release c
			acquire y*9 of 9 -> granted`},
		scenario{"until the last lease has ended", inMemory + `
			acquire a*3 ttl 10m; acquire b ttl 20m; after 19m59.999999s; acquire y*9 of 9 -> capacity 4
			after 1µs; acquire y*9 of 9 -> granted`},
	)
}

// The permits of a holder that crashes are free when its lease has ended, once: its late requests change nothing.
//
//fairlock:fault A holder of permits crashes: they come back once, at the end of its lease, and not before; its late release gives nothing back
//fairlock:promise Every holder has its own lease
func TestPermits_ExpiredLeaseIsFreedOnce(t *testing.T) {
	const late = "\nrenew a -> lost\nrelease a -> nothing\nleave a -> nothing\n"
	scenarios(t, []kind{semaphore(3)},
		scenario{"to the µs", inMemory + `
			acquire a*2 ttl 10m; acquire b ttl 20m; after 9m59.999999s; acquire z try -> busy by b
			inspect -> a*2 b |; after 1µs` + late + `
			inspect -> b |; acquire z*2 try -> granted; acquire y try -> busy; release z; after 9m59.999999s
			inspect -> b |; after 1µs; release b -> nothing; inspect -> |; acquire z*3 try -> granted; release z
			keys -> number`},
		scenario{"its token gets another lease", `
			acquire a*2 ttl 10m; after 11m; acquire a -> granted; inspect -> a*2 |`},
	)
}

//fairlock:promise Nothing stays
func TestPermits_NothingIsLeft(t *testing.T) {
	scenarios(t, []kind{semaphore(4)},
		scenario{"released and left", `
			acquire a*4 b*3 c; leave b; release a; leave c; keys -> heartbeats number; acquire a; release a; keys -> number`},
		scenario{"force", "acquire a b*2; force; keys -> number"},
		scenario{"of the weights of expired waiters", `
			acquire a*2 b*2; acquire c*4 d*4 wait 5m; after 6m; acquire e*4 f; leave f; recorded -> a b e
			leave e; release a; recorded -> b`},
		scenario{"of a queue that Redis forgot", `
			acquire a; acquire w*4 wait 5m; after 6m; acquire b; release a; recorded -> b`},
		scenario{"what waiters want lasts as long as their tickets", inMemory + `
			acquire a*4 ttl 1s; acquire b*2 ttl 1s wait 1.4s; after 1.8s; heartbeat b -> granted
			inspect -> b*2 |; acquire c*3 -> queued 1`},
	)
}

// A key is lost. If it is one that says what is held, all leases end, and the lock is quarantined for the longest TTL: each
// holder learns of it at its next renewal.
//
//fairlock:fault A key of permits is evicted: none is granted until all holders have surely noticed, and none is lost for good
func TestEviction_GrantsNothingTwice(t *testing.T) {
	held := eachAdmitting(scenario{"held", `
		acquire a b*2 ttl 90m; acquire d*3; evict KEY; ADMIT; renew a -> lost; renew b -> lost; acquire c try -> busy by quarantine
		inspect -> | d*3; quarantine -> 90m; after 44m; acquire d -> queued 1; after 44m; acquire d; after 3m
		heartbeat d -> granted; release d -> released; keys -> heartbeats number`})
	for _, key := range []string{"permits", "holders"} {
		for _, s := range held {
			scenarios(t, []kind{semaphore(3)}, scenario{key + ", " + s.name, strings.ReplaceAll(s.steps, "KEY", key)})
		}
	}
	scenarios(t, []kind{semaphore(3)},
		scenario{"holders, released at once", `
			acquire a*3 b; evict holders; release a -> nothing; heartbeat b -> queued retry 60m
			after 44m; heartbeat b; after 17m; acquire b -> granted; inspect -> b |`},
		scenario{"permits and heartbeats", `
			acquire a*3 ttl 10m; acquire b*3 c*3 ttl 10m; evict permits; evict heartbeats; release z`},
		scenario{"holders, while nobody holds", `
			acquire a*3 b; release a -> released grants b; release b; acquire c*3 d*3 ttl 10m wait 3h; after 11m; evict holders
			acquire d -> granted`},
		scenario{"heartbeats", `
			acquire a*3; acquire b*3 c*3; evict heartbeats; release a -> released; acquire z -> granted    # all waiters have to come back, with their tickets
			heartbeat b c -> gone, gone; acquire c ticket -> queued 1 by z; acquire b ticket -> queued 1
			release z -> released; quarantine -> 60m; inspect -> | b*3 c*3`},
	)
}

// A full queue lets go of those that have expired, though nobody sends heartbeats.
func TestMaxWaiters_ExpiredDoNotCount(t *testing.T) {
	scenarios(t, oneHolder, scenario{"full", `
		acquire a ttl 9h; acquire b c; acquire d max 2 -> full 2; after 46m; acquire d max 2 -> queued 1; inspect -> a | d`})
}

// What a later version adds to the number, or to the queue's clock, is kept.
func TestTexts_KeepWhatALaterVersionAdds(t *testing.T) {
	const added = " 7 more"
	for _, k := range oneHolder {
		m := newMachine(t, real(t), k)
		m.run("acquire a b")
		m.do(t, "SET", m.keys["number"], m.contents().Number+added, "KEEPTTL")
		m.do(t, "HSET", m.keys["heartbeats"], "clock", m.contents().Heartbeats["clock"]+added)
		m.once = true
		for _, step := range []string{"stall 5s; heartbeat b -> queued", "release a -> released grants b; acquire a -> queued 1", "renew b"} {
			m.run(step)
			require.True(t, strings.HasSuffix(m.contents().Number, added), step)
			require.True(t, strings.HasSuffix(m.contents().Heartbeats["clock"], added), step)
		}
		ends := m.contents().Number[19:32]
		m.run("force; force; acquire c; release c; acquire c") // through a full path, then an idle one
		require.True(t, strings.HasSuffix(m.contents().Number, added))
		require.Equal(t, ends, m.contents().Number[19:32], "a longer life is not shortened")
		m.run("release c; after 47m; acquire d ttl 9h")
		require.True(t, strings.HasSuffix(m.contents().Number, added))
		require.Greater(t, m.contents().Number[19:32], ends)
	}
}

// What is not a common case, though it looks like one, is left to the general part of a script. The clock has advanced each
// time: else it would be anyway.
func TestCommonCases_LeaveTheRest(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"a handoff while the lock is quarantined", `
			acquire x r; lose; after 1s; acquire a b; acquire r ticket -> queued 1; after 1s; release a -> released`},
		scenario{"an acquire of a waiter that is queued", "acquire a b c d; after 1s; acquire d -> queued 3"},
		scenario{"an acquire when a sweep is due", `
			acquire a ttl 1h; acquire b c d wait 1h; ` + strings.Repeat("after 1s; heartbeat b; ", 59) + "after 1s; acquire e -> queued 4"},
		scenario{"an acquire when the queue is lost", "acquire a b c; after 1s; evict queue; acquire d -> queued 1"},
	)
}
