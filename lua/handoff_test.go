package lua_test

import "testing"

// A request that was sent before its token left may arrive after. Its token has a tombstone: it is refused.
//
//fairlock:fault A request arrives after its waiter has left
func TestTombstone_RefusesTheToken(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"for as long as was asked", inMemory + `
			leave z tombstone 60m; after 59m59.999999s; acquire z -> busy by nobody
			acquire z try -> busy by nobody; acquire z max 1 -> busy by nobody; inspect -> |; after 1µs
			acquire z -> granted`},
		scenario{"whatever happens meanwhile", `
			leave z tombstone 60m; leave y tombstone 1m; leave x; after 59m
			acquire a z b -> granted, busy by a, queued 1; leave y tombstone 60m; acquire c max 2 -> queued 2    # tombstones do not count
			acquire z y -> busy by a, busy by a`},
		scenario{"also with a ticket", `
			acquire a b; leave b tombstone 60m -> nothing; acquire b ticket -> busy by a
			leave a tombstone 60m -> released; acquire b ticket -> busy by nobody; acquire a -> busy by nobody
			inspect -> |`},
	)
}

// All holders that the caller has seen lose the lock, and the fence rises, also if nobody is next: their writes can be
// told from those of the next. Whoever was granted the lock later keeps it.
//
//fairlock:promise Force-release
func TestForceRelease_TakesTheLockFromTheHoldersSeen(t *testing.T) {
	scenarios(t, oneHolder,
		scenario{"hands off", `
			acquire a b c; force -> released grants b; renew a -> lost; release a -> nothing; inspect -> b | c`},
		scenario{"raises the fence", inMemory + `
			acquire a; fence -> now; force -> released; fence -> now+1; force -> nothing; fence -> now+1`},
		scenario{"a late one spares the next holder", `
			acquire a b c; release a -> released grants b; force seen a -> nothing; inspect -> b | c`},
		scenario{"idle or expired", `
			force -> nothing; keys ->; acquire a; after 61m; force -> nothing; keys -> fence`},
	)
	scenarios(t, []kind{semaphore(4)},
		scenario{"all holders", `
			acquire a b*2; acquire c*2 d e*2; force -> released grants c d; renew a -> lost
			release b -> nothing; leave a -> nothing; inspect -> c*2 d | e*2; release d -> released grants e`},
		scenario{"spares later holders", `
			acquire a b*2; acquire c*3; force seen a -> released; inspect -> b*2 | c*3; force seen a -> nothing`},
	)
}
