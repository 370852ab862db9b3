package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/lua"
)

// noon is the moment at which the samples are looked at.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func us(t time.Time) uint64 { return uint64(t.UnixMicro()) }

// tokenOf is the n-th token of a client, and its secret end.
func tokenOf(client string, n int) string { return fmt.Sprintf("%s:%s", client, secret(n)) }

func secret(n int) string { return fmt.Sprintf("t%03d", n) + strings.Repeat("S", 17) + "A" }

// held is a mutex that web-1 has held for 12.4 s and that so many wait for: every third of them is silent.
func held(waiters int) lua.Snapshot {
	fence := us(noon.Add(-12400 * time.Millisecond))
	s := lua.Snapshot{
		Now: noon, Fence: fence, Used: 1, Capacity: 1, Waiting: waiters,
		Holders: []lua.Holder{{Token: tokenOf("web-1", 1), Fence: fence, Left: 8100 * time.Millisecond, Weight: 1}},
	}
	for i := range min(waiters, Most) {
		patience := 5100 * time.Millisecond
		if i%3 == 2 {
			patience = -3 * time.Second
		}
		s.Waiters = append(s.Waiters, lua.Waiter{
			Token: tokenOf(fmt.Sprintf("web-%d", i+2), i+2), Weight: 1, Expires: noon.Add(patience),
			Ticket: lua.Ticket(us(noon.Add(-11200*time.Millisecond)) + uint64(i)),
		})
	}
	return s
}

func mutexOf(snap lua.Snapshot) Lock { return lockOf(ID{Mutex, "billing:42"}, snap) }

// shared is a semaphore of 8 permits or an rw of which so many hold a share, two permits each of a semaphore.
func shared(kind Kind, holders, waiters int) Lock {
	s := held(waiters)
	weight, capacity := 2, 8
	if kind == RW {
		weight, capacity = 1, lua.WriterWeight
	}
	s.Holders, s.Used, s.Capacity = nil, holders*weight, capacity
	for i := range min(holders, Most) {
		s.Holders = append(s.Holders, lua.Holder{
			Token: tokenOf(fmt.Sprintf("job-%d", i), i), Fence: s.Fence + uint64(i),
			Left: time.Duration(i+1) * time.Second, Weight: weight,
		})
	}
	for i := range s.Waiters {
		s.Waiters[i].Weight = 3
		if kind == RW {
			s.Waiters[i].Weight = lua.WriterWeight
		}
	}
	return lockOf(ID{kind, "api"}, s)
}
