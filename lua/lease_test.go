package lua_test

import "testing"

func TestRenew_RecordsTheFence(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"again if it is lost", `
			acquire a b; after 30m; renew a -> renewed; release a -> released grants b; evict fence
			renew b -> renewed; acquire a -> queued 1; release b -> released grants a`},
		scenario{"a lost fence that was ahead of the clock", inMemory + `
			raise 1h; acquire a; evict fence; renew a -> renewed; fence -> now+3600000001; release a; acquire b
			fence -> now+3600000002`},
	)
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
//fairlock:promise Fences: each above all earlier ones, across a clock that steps back and lost data; kept for a day
//fairlock:fault The server's clock steps back: order and fences hold
func TestFence_Rises(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"with every grant", waysToBeGranted + waysToBeGranted},
		scenario{"above one that is ahead of the clock", "raise 5h\n" + waysToBeGranted + waysToBeGranted},
		scenario{"with a clock that steps back", inMemory + waysToBeGranted + "clock -1h\n" + waysToBeGranted +
			"clock -24h\n" + waysToBeGranted + "clock 48h\n" + waysToBeGranted},
		scenario{"after a loss of data", `
			acquire a -> granted; lose; after 1m; acquire b -> granted; lose; after 1m; acquire c try -> granted`},
		scenario{"from the time", inMemory + `
			acquire a; fence -> now; release a; acquire b; fence -> now+1; release b; clock -1h; acquire c
			fence -> now+3600000002; release c; clock 2h; acquire d; fence -> now`},
		scenario{"and outlives a lease of more than a day", `
			acquire a ttl 168h; after 100h; renew a ttl 168h -> renewed; after 160h; evict fence
			renew a ttl 168h -> renewed; after 167h; release a; acquire b`},
	)
	scenarios(t, []kind{semaphore(5), rwMutex},
		scenario{"each holder keeps its own", `
			acquire a b c d e -> granted, granted, granted, granted, granted; renew a; renew e
			acquire c -> granted; release b; acquire f; renew a; renew f; inspect; after 50m; renew f; renew a
			evict fence; renew c -> renewed; inspect 2; after 11m; renew a; renew f -> renewed; renew d -> lost`},
	)
}

// What a lock has in Redis lasts as long as it is needed, and not much longer: a machine checks each key's expiry after
// every step.
//
//fairlock:promise Nothing stays
func TestExpiry_OnlyTheFenceIsLeft(t *testing.T) {
	const abandoned = `
		acquire a b c d; leave z tombstone 30m; after 44m59s; keys -> KEYS; after 15m2s; keys -> fence
		after 22h; keys -> fence; after 61m; keys ->`
	scenarios(t, []kind{mutex}, scenario{"abandoned", replace(abandoned, "KEYS", "alive fence lock queue")})
	scenarios(t, []kind{semaphore(1), writers},
		scenario{"abandoned", replace(abandoned, "KEYS", "alive fence holders permits queue wants")})
	scenarios(t, oneHolder,
		scenario{"a longer WaiterTTL counts", `
			acquire a ttl 5h; acquire b; heartbeat b wait 3h -> queued; heartbeat b -> queued
			leave z tombstone 1h; leave y tombstone 4h; acquire c; after 50m; inspect -> a | b c
			acquire y -> busy by a`},
		scenario{"alive is lost", `
			acquire a b; evict alive; acquire c -> queued 2; heartbeat b c -> queued, queued`},
	)
}
