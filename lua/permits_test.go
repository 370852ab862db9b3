package lua_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
//fairlock:fault A holder of permits crashes
//fairlock:promise Every holder has its own lease
func TestPermits_ExpiredLeaseIsFreedOnce(t *testing.T) {
	const late = "\nrenew a -> lost\nrelease a -> nothing\nleave a -> nothing\n"
	scenarios(t, []kind{semaphore(3)},
		scenario{"to the µs", inMemory + `
			acquire a*2 ttl 10m; acquire b ttl 20m; after 9m59.999999s; acquire z try -> busy by a
			inspect -> a*2 b |; after 1µs` + late + `
			inspect -> b |; acquire z*2 try -> granted; acquire y try -> busy; release z; after 9m59.999999s
			inspect -> b |; after 1µs; release b -> nothing; inspect -> |; acquire z*3 try -> granted; release z
			keys -> fence`},
		scenario{"its token gets another lease", `
			acquire a*2 ttl 10m; after 11m; acquire a -> granted; inspect -> a*2 |`},
	)
}

func TestPermits_NothingIsLeft(t *testing.T) {
	scenarios(t, []kind{semaphore(4)},
		scenario{"released and left", `
			acquire a*4 b*3 c; leave b; release a; leave c; keys -> fence`},
		scenario{"force", "acquire a b*2; force; keys -> fence"},
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

// A key is lost. What is held is never granted to another, and no permit is lost for good.
//
//fairlock:fault A key of permits is evicted: none is granted twice while its lease lasts, and none is lost for good
func TestEviction_GrantsNothingTwice(t *testing.T) {
	scenarios(t, []kind{semaphore(3)},
		scenario{"holders", `
			acquire a b*2; evict holders; acquire c try -> busy by a; acquire d*3 -> queued 1
			release a -> released; acquire c try -> busy by b; release b -> released grants d
			acquire c try -> busy by d; release d -> released; acquire c*3 try -> granted`},
		scenario{"holders, all held by one", `
			acquire a*3 b c*2; evict holders; release a -> released; heartbeat b -> queued retry 1ms
			acquire b ticket -> granted; heartbeat c -> gone; acquire c ticket -> granted; inspect -> b c*2 |`},
		scenario{"holders, and the waiters only try", `
			acquire a*3 b*3; evict holders; release a -> released; acquire z try -> granted
			acquire b ticket -> queued 1 by z; release z -> released grants b`},
		scenario{"wants", `
			acquire a*3; acquire b*3 c*3; evict wants; release a -> released; acquire z -> granted    # all waiters have to come back, with their tickets
			heartbeat b c -> gone, gone; acquire c ticket -> queued 1; acquire b ticket -> queued 1
			release z -> released grants b; inspect -> b*3 | c*3`},
		scenario{"permits", `
			acquire a b*2; acquire c*2; acquire d e*3 wait 3h; evict permits; heartbeat c -> granted
			inspect -> c*2 d | e*3; renew a -> lost; release b; leave a -> nothing; release c -> released
			release d -> released grants e; release e; keys -> fence`},
	)
}

func TestInspect_ListsAsManyAsAsked(t *testing.T) {
	scenarios(t, []kind{semaphore(8)},
		scenario{"", `
			acquire a*2 b*3 c*3; acquire d*8 e f; inspect 2 -> a*2 b*3 | d*8 e; inspect 0 -> |
			inspect 3 -> a*2 b*3 c*3 | d*8 e f`},
	)
	m := newMachine(t, real(t), semaphore(8))
	m.run("acquire a*2 b")
	m.do(t, "HDEL", m.keys["holders"], "used")
	m.blind = true
	require.Equal(t, 8, m.inspect(1).Used, "not known, so as many as there are")
}
