package sim

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/fairlock/fairlock-go/internal/history"
	"github.com/fairlock/fairlock-go/lua"
)

// observer sees every change of the locks' data in the server, in the order in which the scripts make them: it compares
// the data before each script with the data before the previous one.
type observer struct {
	world *world

	mu     sync.Mutex
	locks  []*observed           // guarded by mu
	events []history.ServerEvent // guarded by mu
	at     []int64               // guarded by mu: when each was seen, as Event.At
	args   string                // guarded by mu: those of the last script
	frozen time.Time             // guarded by mu: the server's time, if it stands still
	thaw   time.Time             // guarded by mu: until when it does
	back   time.Duration         // guarded by mu: by how much its clock has stepped back and stood still, in all
}

// observed is what was last seen of a lock.
type observed struct {
	name    string
	keys    lua.PermitKeys // of a mutex without Holders; Permits is its Lock
	mutex   bool
	tickets map[string]uint64
	until   map[string]int64  // token → when it expires, by the queue's clock
	clock   int64             // of the queue, when it was recorded
	at      int64             // and when that was
	seen    int64             // when all this was seen
	owners  map[string]string // token → its record of permits, which has the fence
	left    map[string]uint64 // tickets of those that are no longer queued
}

// observe begins to observe the server of a world.
func observe(w *world) *observer {
	o := &observer{world: w}
	for _, t := range targets {
		l := &observed{name: t.name, left: map[string]uint64{}}
		switch t.name {
		case "semaphore":
			l.keys = lua.SemaphoreKeys(lua.DefaultNamespace, t.name)
		case "rwmutex":
			l.keys = lua.RWMutexKeys(lua.DefaultNamespace, t.name)
		default:
			keys := lua.MutexKeys(lua.DefaultNamespace, t.name)
			l.keys, l.mutex = lua.PermitKeys{Queue: keys.Queue, Heartbeats: keys.Heartbeats, Permits: keys.Lock}, true
		}
		o.locks = append(o.locks, l)
	}
	w.server.Miniredis.Server().SetPreHook(o.before)
	return o
}

// stop ends it.
func (o *observer) stop() {
	o.look("")
	o.world.server.Miniredis.Server().SetPreHook(nil)
}

// before is called before each command of a client, and before each of a script.
func (o *observer) before(_ *server.Peer, command string, args ...string) bool {
	if command == "EVALSHA" || command == "EVAL" {
		o.hold()
		o.look(strings.Join(args, " "))
	}
	return false
}

// freeze lets the server's clock stand still for a while.
func (o *observer) freeze(length time.Duration) {
	o.mu.Lock()
	o.back += length
	if o.frozen.IsZero() {
		o.frozen = o.world.server.Now()
	}
	if until := time.Now().Add(length); until.After(o.thaw) {
		o.thaw = until
	}
	o.mu.Unlock()
	o.world.tasks.Go(func() {
		for o.hold() {
			time.Sleep(100 * time.Millisecond) // less than what a key lasts beyond its waiters
		}
	})
}

// hold sets the server's clock back to where it stands still, and reports whether it does. It looks first, by the time
// that has passed: a grant may have ended in it.
func (o *observer) hold() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.frozen.IsZero() {
		return false
	}
	if behind := o.world.server.Now().Sub(o.frozen); behind > 0 {
		o.world.server.StepClock(0) // what is due expires
		o.compareAll()
		o.world.server.StepClock(-behind)
	}
	if time.Now().Before(o.thaw) {
		return true
	}
	o.frozen = time.Time{}
	return false
}

// step steps the server's clock, also while it stands still.
func (o *observer) step(by time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.back += max(-by, 0)
	if !o.frozen.IsZero() {
		o.frozen = o.frozen.Add(by)
	}
	o.world.server.StepClock(by)
}

// look records what has changed since it was called last, in any lock, because keys expire. args are those of the script
// that follows.
func (o *observer) look(args string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.compareAll()
	o.args = args
}

// compareAll records what has changed in any lock. The caller holds mu.
func (o *observer) compareAll() {
	for _, l := range o.locks {
		o.compare(l)
	}
}

// replace records that f deletes or replaces the server's data.
func (o *observer) replace(f func()) {
	o.look("")
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	o.record(history.ServerEvent{At: o.world.server.Now().UnixMicro(), Op: history.Deletes})
	for _, l := range o.locks {
		maps.Copy(l.left, l.tickets)
		l.tickets, l.until, l.owners = nil, nil, nil
	}
}

func (o *observer) record(e history.ServerEvent) {
	o.events = append(o.events, e)
	o.at = append(o.at, o.world.now())
}

func (o *observer) compare(l *observed) {
	m := o.world.server.Miniredis
	now := o.world.server.Now().UnixMicro()
	record := func(op history.ServerOp, token string, ticket uint64, until int64) {
		o.record(history.ServerEvent{At: now, Op: op, Lock: l.name, Token: token, Ticket: ticket, Until: until})
	}
	tickets, until, owners := map[string]uint64{}, map[string]int64{}, map[string]string{}
	if queue, err := m.SortedSet(l.keys.Queue); err == nil {
		for token, ticket := range queue {
			tickets[token] = uint64(ticket)
		}
	}
	latest := l.clock + min(max(now-l.at, 0), int64(time.Second/time.Microsecond)) // that the last script can have found
	clock := strings.Fields(m.HGet(l.keys.Heartbeats, "clock") + " 0 0")
	recorded, at := number(clock[0]), number(clock[1])
	latest = max(latest, recorded)
	for token := range tickets {
		until[token] = number(m.HGet(l.keys.Heartbeats, token[max(0, len(token)-14):]))
	}
	if l.mutex {
		if owner, err := m.Get(l.keys.Permits); err == nil {
			owner, fence, _ := strings.Cut(owner, " ")
			owners[owner] = fence
		}
	} else if permits, err := m.SortedSet(l.keys.Permits); err == nil {
		for token := range permits { // also those that have expired: no other holds them until a script removes them
			owners[token] = cmp.Or(m.HGet(l.keys.Holders, token), l.owners[token]) // that key may expire first
		}
	}
	for _, token := range slices.Sorted(maps.Keys(l.owners)) {
		if has, ok := owners[token]; !ok || has != l.owners[token] { // a lease that had ended, and another one
			record(history.Ends, token, 0, 0)
		}
	}
	// By ticket: several are granted in one script in the order of the queue, also one that comes back in this script,
	// then one that was never queued.
	granted := slices.SortedFunc(maps.Keys(owners), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.order(a), l.order(b)), cmp.Compare(a, b))
	})
	for _, token := range slices.SortedFunc(maps.Keys(l.tickets), byTicket(l.tickets)) {
		_, owns := owners[token]
		if _, ok := tickets[token]; !ok && !owns {
			left := (l.until[token] - latest) / 1000 * 1000 // a lease is of whole milliseconds
			switch {
			case strings.Contains(o.args, token) || !m.Exists(l.keys.Heartbeats): // all has expired
				record(history.Leaves, token, 0, 0)
			case left > 0 && left <= now-l.seen: // it was granted what was left of its WaiterTTL, and that has ended
				record(history.Owns, token, 0, 0)
				record(history.Ends, token, 0, 0)
			default:
				record(history.Drops, token, 0, latest)
			}
			l.left[token] = l.tickets[token]
		}
	}
	for _, token := range granted {
		if had, ok := l.owners[token]; ok && had == owners[token] {
			continue
		}
		if _, queued := l.tickets[token]; !queued && l.left[token] > 0 {
			record(history.Joins, token, l.left[token], 0) // it came back in the script that granted it the lock
		}
		record(history.Owns, token, 0, 0)
		if ticket := l.tickets[token]; ticket > 0 {
			l.left[token] = ticket // it comes back if it does not hear of this
		}
	}
	for _, token := range slices.SortedFunc(maps.Keys(tickets), byTicket(tickets)) {
		if l.tickets[token] != tickets[token] {
			record(history.Joins, token, tickets[token], 0)
		}
		if until[token] != l.until[token] {
			record(history.Keeps, token, 0, until[token])
		}
	}
	l.tickets, l.until, l.owners, l.clock, l.at, l.seen = tickets, until, owners, recorded, at, now
}

// order is the latest ticket of a token, or more than any.
func (l *observed) order(token string) uint64 {
	return cmp.Or(l.tickets[token], l.left[token], 1<<63)
}

func byTicket(tickets map[string]uint64) func(a, b string) int {
	return func(a, b string) int { return cmp.Or(cmp.Compare(tickets[a], tickets[b]), cmp.Compare(a, b)) }
}

// number is the first number in a text, 0 if there is none.
func number(text string) int64 {
	first, _, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseInt(first, 10, 64)
	return n
}
