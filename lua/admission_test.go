package lua_test

import (
	"strings"
	"testing"
)

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
// and only then.
//
//fairlock:promise Only the head: is granted; it is dropped only if it has expired and the lock is vacant
func TestAdmission_OnlyTheHead(t *testing.T) {
	scenarios(t, oneHolder, eachAdmitting(
		scenario{"in order", `
			acquire a ttl 10m; acquire b c d; after 11m; ADMIT; inspect -> b | c d; release z
			heartbeat b c d -> holding, queued, queued; after 35m; ADMIT; inspect -> c | d`},
		scenario{"expired heads are dropped", `
			acquire a ttl 10m; acquire b c wait 5m; acquire d; acquire e wait 5m; acquire f wait 90m; after 11m
			ADMIT; inspect -> d | e f    # e has expired too, but is not in the way
			after 35m; ADMIT; inspect -> f |`},
		scenario{"all have expired", inMemory + ` # Redis forgets them all 0.2 to 0.5 s later
			acquire a ttl 5m; acquire b c d wait 5m; after 5m0.1s; ADMIT; release z; inspect -> |; force
			keys -> fence`},
	)...)
}

func TestAdmission_Requester(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"a waiter that requests does not overtake", `
			acquire a ttl 10m; acquire b c d wait 90m; after 11m; acquire d wait 3h -> queued 2 by b
			inspect -> b | c d; after 61m; acquire c -> granted; after 61m
			heartbeat b c d -> gone, gone, granted`},
		scenario{"it is not expired, whatever is known of it", `
			acquire a ttl 10m; acquire b c d wait 5m; acquire e wait 3h; after 11m; acquire c -> granted    # b, which had expired, is dropped
			inspect -> c | d e; release a -> nothing; after 61m; heartbeat d -> granted`},
		scenario{"a try does not overtake", `
			acquire a ttl 10m; acquire b wait 5m; acquire c d; acquire z try -> busy by a; after 11m
			acquire z try -> busy by c; inspect -> c | d`},
		scenario{"a try is granted if all waiters have expired", inMemory + `
			acquire a try ttl 5m -> granted; acquire b c d wait 5m; after 5m0.1s; acquire z try -> granted
			inspect -> z |`},
		scenario{"the owner's request extends", `
			acquire a -> granted; acquire b -> queued 1 by a; acquire a ttl 90m -> granted; after 89m
			acquire z try -> busy by a`},
	)
}

func TestAdmission_NobodyIsDroppedWhileTheLockIsHeld(t *testing.T) {
	scenarios(t, oneHolder, scenario{"expired waiters", `
		acquire a; acquire b c d wait 5m; acquire e wait 3h; after 11m; release z; leave z; acquire z try
		heartbeat z; acquire z -> queued 5; leave z; inspect -> a | b c d e; heartbeat b -> queued    # expired or not: it is in the queue
		acquire d -> queued 3; release a -> released grants b; release b -> released grants d; inspect -> d | e`})
}

func TestAdmission_LeaseIsTheRestOfWaiterTTLAtMostTTL(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"either", `
			acquire a; acquire b wait 90m; release a -> released grants b(60m); acquire c wait 20m
			release b -> released grants c(20m); acquire d; after 15m; release c -> released grants d(30m)`},
		scenario{"rounded down", inMemory + `
			acquire a b; after 44m59.9985s; release a -> released grants b(1ms)`},
		scenario{"not if it is less than a millisecond", inMemory + `
			acquire a b; after 44m59.9991s; release a -> released; inspect -> |`},
	)
}

func TestMaxWaiters_CountsWaitersThatHaveNotExpired(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"full", `
			acquire a; acquire b; acquire c d wait 5m; acquire e; acquire z max 4 -> full 4
			acquire z max 1 -> full 4; after 11m; acquire z max 2 -> full 2; acquire z max 1 -> full 2
			inspect -> a | b c d e; acquire f max 3 -> queued 5; acquire z max 3 -> full 3`},
		scenario{"a queued waiter is accepted", `
			acquire a b c d; acquire b c d max 1 -> queued 1, queued 2, queued 3`},
		scenario{"a returning waiter is accepted", `
			acquire a b c; drop b; acquire d max 2 -> queued 2; acquire b max 2 ticket -> queued 1`},
		scenario{"a vacant lock is granted", `
			acquire a max 1 -> granted; acquire b max 1 -> queued 1; acquire a max 1 -> granted; after 61m
			acquire z max 1 -> granted`},
	)
}

// A waiter that is first or second learns when another request can help. Others learn it only if the head has missed its
// heartbeats; the first waiter of a heartbeat always does.
func TestRetryAfter_WhenAnotherRequestCanHelp(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"the head", `
			acquire a b -> granted, queued 1 by a retry 60m; heartbeat b -> queued retry 60m; after 20m
			heartbeat b -> queued retry 40m`},
		scenario{"the second waits for the head to expire", `
			acquire a ttl 20m; acquire b c -> queued 1 by a retry 20m, queued 2 by a retry 45m; after 10m
			heartbeat c -> queued retry 35m`},
		scenario{"or for the lease to end", `
			acquire a; acquire b wait 5m; acquire c -> queued 2 by a retry 60m`},
		scenario{"the third", `
			acquire a; acquire b c wait 30m; acquire d -> queued 3 by a retry never; after 5m
			acquire d -> queued 3 by a retry never; after 6m; acquire d -> queued 3 by a retry 49m    # more than half of 45m is over
			heartbeat d c -> queued, queued retry 49m`},
		scenario{"the first that is left after a grant", `
			acquire a ttl 10m; acquire b c d; after 11m; heartbeat d b c -> queued, granted, queued retry 45m`},
	)
	scenarios(t, []kind{semaphore(4)},
		scenario{"permits", `
			acquire a; acquire b*2 ttl 30m; acquire h*3 -> queued 1 by b retry 30m
			acquire s wait 70m -> queued 2 by b retry 45m    # one permit is free
			heartbeat s -> queued retry 45m`},
	)
}
