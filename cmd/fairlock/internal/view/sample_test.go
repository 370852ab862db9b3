package view

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/fairlock/fairlock-go/lua"
)

func TestMain(m *testing.M) {
	logging.Disable() // connections break here
	time.Local = time.UTC
	os.Exit(m.Run())
}

// noon is the moment at which the samples are looked at.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func us(t time.Time) uint64 { return uint64(t.UnixMicro()) }

// tokenOf is the n-th token of a client.
func tokenOf(client string, n int) string {
	return fmt.Sprintf("%s:t%03d", client, n) + strings.Repeat("S", 17) + "A"
}

// held is a mutex that web-1 has held for 12.4 s and that so many wait for. Every third waiter has expired.
func held(waiters int) lua.Snapshot {
	fence := us(noon.Add(-12400 * time.Millisecond))
	s := lua.Snapshot{
		Now: noon, Fence: fence, Used: 1, Capacity: 1, Waiting: waiters,
		Holders: []lua.Holder{{Token: tokenOf("web-1", 1), Fence: fence, Left: 8100 * time.Millisecond, Weight: 1}},
	}
	for i := range min(waiters, Most) {
		left := 5100 * time.Millisecond
		if i%3 == 2 {
			left = -3 * time.Second
		}
		s.Waiters = append(s.Waiters, lua.Waiter{
			Token: tokenOf(fmt.Sprintf("web-%d", i+2), i+2), Weight: 1, Expires: noon.Add(left),
			Ticket: lua.Ticket(us(noon.Add(-11200*time.Millisecond)) + uint64(i)),
		})
	}
	return s
}

// mutexOf is that mutex after a change.
func mutexOf(s lua.Snapshot, change ...func(*lua.Snapshot)) Lock {
	for _, f := range change {
		f(&s)
	}
	return lockOf(ID{Mutex, "billing:42"}, s)
}

func released(s *lua.Snapshot) { s.Holders, s.Used = nil, 0 }

func quarantined(s *lua.Snapshot) { s.Holders[0].Token = lua.Quarantined }

// shared is a semaphore of 8 permits, of which each holder has two, or a read-write lock that so many read.
func shared(kind Kind, holders, waiters int) Lock {
	s := held(waiters)
	weight, capacity, wants := 2, 8, 3
	if kind == RW {
		weight, capacity, wants = 1, lua.WriterWeight, lua.WriterWeight
	}
	s.Holders, s.Used, s.Capacity = nil, holders*weight, capacity
	for i := range min(holders, Most) {
		s.Holders = append(s.Holders, lua.Holder{
			Token: tokenOf(fmt.Sprintf("job-%d", i), i), Fence: s.Fence + uint64(i),
			Left: time.Duration(i+1) * time.Second, Weight: weight,
		})
	}
	for i := range s.Waiters {
		s.Waiters[i].Weight = wants
	}
	return lockOf(ID{kind, "api"}, s)
}
