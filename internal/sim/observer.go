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
	verbs  map[string]string     // by the hash of a script
	hashes map[string]string     // by the text of a script
	loaded map[string]bool       // guarded by mu: hashes of the scripts that Redis knows
	last   script                // guarded by mu: what changes until the next look was done by it
	revive bool                  // guarded by mu: what is found next was restored
	frozen time.Time             // guarded by mu: the server's time, if it stands still
	thaw   time.Time             // guarded by mu: until when it does
	back   time.Duration         // guarded by mu: by how much its clock has stepped back and stood still, in all

	departed map[string]bool // guarded by mu: tokens that have left
	revived  map[string]bool // guarded by mu: tokens that were restored after they may have left
	suspects []suspect       // guarded by mu
}

// script is a call of a script.
type script struct {
	verb string   // empty if it is not known, or the script may not have run
	args []string // its keys and arguments
	text string   // of args
	at   int64    // as Event.At
	time int64    // of the server, in µs
}

// observed is what was last seen of a lock.
type observed struct {
	name  string
	keys  lua.PermitKeys    // Permits of a mutex is its Lock, and Holders is empty
	left  map[string]uint64 // tickets of those that are no longer queued
	named map[string]int64  // when the latest script named a token that is queued, as Event.At

	state
}

// observe begins to observe the server of a world.
func observe(w *world) *observer {
	o := &observer{
		world: w, verbs: map[string]string{}, hashes: map[string]string{}, loaded: map[string]bool{},
		departed: map[string]bool{}, revived: map[string]bool{},
	}
	for hash, text := range lua.Texts() {
		other := w.other.hashes[hash]
		o.hashes[text], o.hashes[w.other.texts[text]] = hash, other
		o.verbs[hash], o.verbs[other] = lua.VerbOf(hash), lua.VerbOf(hash)
	}
	for _, t := range targets {
		l := &observed{name: t.name, left: map[string]uint64{}, named: map[string]int64{}}
		switch t.name {
		case "semaphore":
			l.keys = lua.SemaphoreKeys(lua.DefaultNamespace, t.name)
		case "rwmutex":
			l.keys = lua.RWMutexKeys(lua.DefaultNamespace, t.name)
		default:
			keys := lua.MutexKeys(lua.DefaultNamespace, t.name)
			l.keys = lua.PermitKeys{Number: keys.Number, Queue: keys.Queue, Heartbeats: keys.Heartbeats, Permits: keys.Lock}
		}
		o.locks = append(o.locks, l)
	}
	w.server.Miniredis.Server().SetPreHook(o.before)
	return o
}

// stop ends it.
func (o *observer) stop() {
	o.look()
	o.world.server.Miniredis.Server().SetPreHook(nil)
}

// before is called before each command of a client, and before each of a script.
func (o *observer) before(_ *server.Peer, command string, args ...string) bool {
	if command != "EVALSHA" && command != "EVAL" && command != "SCRIPT" {
		return false
	}
	o.hold()
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	if command == "SCRIPT" { // FLUSH
		clear(o.loaded)
		return false
	}
	o.last = script{args: args[2:], text: strings.Join(args[2:], " "), at: o.world.now(), time: o.world.server.Now().UnixMicro()}
	hash := args[0]
	if command == "EVAL" {
		hash = o.hashes[args[0]]
		o.loaded[hash] = true
	}
	if o.loaded[hash] {
		o.last.verb = o.verbs[hash]
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

// look records what has changed since it was called last, in any lock, because keys expire.
func (o *observer) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.compareAll()
}

// compareAll records what has changed in any lock, by the last script or because keys have expired. The caller holds mu.
func (o *observer) compareAll() {
	for _, l := range o.locks {
		o.compare(l)
	}
	o.last, o.revive = script{}, false
}

// replace records that f deletes or replaces the server's data.
func (o *observer) replace(f func()) {
	o.world.server.StepClock(0) // what is due expires
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	o.record(history.ServerEvent{At: o.world.server.Now().UnixMicro(), Op: history.Deletes})
	for _, l := range o.locks {
		maps.Copy(l.left, l.tickets)
		l.tickets, l.until, l.owners, l.ends = nil, nil, nil, nil
	}
	o.revive = true
	clear(o.departed)
}

// holds reports whether a token that begins like that holds a lock.
func (o *observer) holds(prefix string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.locks, func(l *observed) bool {
		for token := range l.owners {
			if strings.HasPrefix(token, prefix) {
				return true
			}
		}
		return false
	})
}

func (o *observer) record(e history.ServerEvent) {
	e.Seen = o.world.now()
	if e.Op == history.Lasts && o.last.at > 0 {
		e.Seen = o.last.at // the reply may have arrived since
	}
	o.events = append(o.events, e)
}

func (o *observer) compare(l *observed) {
	m := o.world.server.Miniredis
	now := o.world.server.Now().UnixMicro()
	record := func(op history.ServerOp, token string, ticket uint64, until int64) {
		o.record(history.ServerEvent{At: now, Op: op, Lock: l.name, Token: token, Ticket: ticket, Until: until})
	}
	tickets, until, owners, ends := map[string]uint64{}, map[string]int64{}, map[string]string{}, map[string]int64{}
	if queue, err := m.SortedSet(l.keys.Queue); err == nil {
		for token, ticket := range queue {
			tickets[token] = uint64(ticket)
		}
	}
	latest := l.clock + min(max(now-l.at, 0), int64(time.Second/time.Microsecond)) // that the last script can have found
	clock := strings.Fields(m.HGet(l.keys.Heartbeats, "clock") + " 0 0 0 0 0")
	recorded, at := number(clock[0]), number(clock[1])
	latest = max(latest, recorded)
	for token := range tickets {
		until[token] = number(m.HGet(l.keys.Heartbeats, token[max(0, len(token)-14):]))
	}
	if l.keys.Holders == "" {
		if owner, err := m.Get(l.keys.Permits); err == nil {
			owner, fence, _ := strings.Cut(owner, " ")
			owners[owner], ends[owner] = fence, o.world.now()+int64(m.TTL(l.keys.Permits))
		}
	} else if permits, err := m.SortedSet(l.keys.Permits); err == nil {
		for token, end := range permits { // also those that have expired: no other holds them until a script removes them
			owners[token] = cmp.Or(m.HGet(l.keys.Holders, token), l.owners[token]) // that key may expire first
			ends[token] = o.world.now() + int64(end)*1000 - o.world.server.Now().UnixNano()
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
			case strings.Contains(o.last.text, token) || !m.Exists(l.keys.Heartbeats): // all has expired
				record(history.Leaves, token, 0, 0)
			case left > 0 && left <= now-l.seen: // it was granted what was left of its WaiterTTL, and that has ended
				record(history.Owns, token, 0, 0)
				record(history.Lasts, token, 0, o.world.now()+(l.seen+left-now)*1000)
				record(history.Ends, token, 0, 0)
			default:
				record(history.Drops, token, 0, latest)
				o.suspect(token, o.world.now(), "dropped from the queue", 1)
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
			l.left[token] = ticket // it comes back if no notification of this arrives
		}
	}
	for _, token := range granted {
		if ends[token] != l.ends[token] {
			record(history.Lasts, token, fenceOf(owners[token]), ends[token])
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
	next := state{tickets: tickets, until: until, owners: owners, ends: ends, clock: recorded, at: at, quarantine: number(clock[4]), seen: now}
	o.check(l, next, latest)
	l.state = next
}

// order is the latest ticket of a token, or more than any.
func (l *observed) order(token string) uint64 {
	return cmp.Or(l.tickets[token], l.left[token], 1<<63)
}

func byTicket(tickets map[string]uint64) func(a, b string) int {
	return func(a, b string) int { return cmp.Or(cmp.Compare(tickets[a], tickets[b]), cmp.Compare(a, b)) }
}

// fenceOf is the fence in a record of permits, its last number.
func fenceOf(record string) uint64 { return uint64(number(record[strings.LastIndex(record, " ")+1:])) }

// number is the first number in a text, 0 if there is none.
func number(text string) int64 {
	first, _, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseInt(first, 10, 64)
	return n
}
