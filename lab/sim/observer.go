package sim

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/rules"
	"github.com/fairlock/fairlock-go/token"
)

// observer sees every change of the locks' data in the server, in order. It compares the data before and after each
// script.
type observer struct {
	world *world

	mu        sync.Mutex
	locks     []*observed           // guarded by mu
	events    []history.ServerEvent // guarded by mu
	verbs     map[string]string     // by the hash of a script
	hashes    map[string]string     // by the text of a script
	last      step                  // guarded by mu: what changes until the next look is done by it
	restoring bool                  // guarded by mu: what is found next was restored
	frozen    time.Time             // guarded by mu: the server's time, if it stands still
	thaw      time.Time             // guarded by mu: until when it does
	back      time.Duration         // guarded by mu: by how much its clock has stepped back and stood still, in all

	noPublish atomic.Int32 // scripts may not publish
	full      atomic.Int32 // the server has no memory left

	departed map[string]int64 // guarded by mu: when tokens have left
	restored map[string]bool  // guarded by mu: tokens that were restored after they may have left
	suspects []suspect        // guarded by mu

	subscribed map[string]int64 // guarded by mu: by client: when its latest subscription came up, as Event.At

	rare []int // guarded by mu: how often each of the rare states was reached

	minimums map[string]*minimum // guarded by mu: by token, of leases with a minimum hold
	took     map[string]string   // guarded by mu: token → the one whose lease it has taken over
	untold   map[string]bool     // guarded by mu: tokens of waiters that a message may not have reached
}

// observed is what was last seen of a lock.
type observed struct {
	name string
	keys map[string]string // by the ends of their names
	seen map[string]int64  // when the latest script named a token that is queued, as Event.At

	contents
	lastLeft string // the token that has left last
	resized  int    // the number of permits that a resize has set last
	permits  int    // the largest number that tokens say

	forgotten map[string]int64 // waiters whose queue was forgotten, and that are not back: since when, as Event.At

	last rules.Holder // whose lease has ended last, by itself or by a script
	// when the number that a resize had set was lost, in µs of the server: more may fit, without a notification
	grew      int64
	headSince int64 // when the first waiter became that, as Event.At
}

// observe begins to observe the server of a world.
func observe(w *world) *observer {
	o := &observer{
		world: w, verbs: map[string]string{}, hashes: map[string]string{}, departed: map[string]int64{},
		restored: map[string]bool{},
		rare: make([]int, len(
			rare)), subscribed: map[string]int64{}, minimums: map[string]*minimum{}, took: map[string]string{},
		untold: map[string]bool{},
	}
	for hash, source := range script.Sources() {
		text := source.Text
		other := w.other.hashes[hash]
		o.hashes[text], o.hashes[w.other.texts[text]] = hash, other
		o.verbs[hash], o.verbs[other] = source.Verb, source.Verb
	}
	for _, t := range w.targets {
		l := &observed{name: t.name, keys: map[string]string{}, seen: map[string]int64{}, forgotten: map[string]int64{},
			permits: max(t.permits, t.others, 1)}
		for _, key := range script.KeysOf(t.kind, bounds.DefaultNamespace, t.name) {
			l.keys[key.Part] = key.Name
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

// byObserver is the name of the peer for which the observer runs a script.
const byObserver = "observer"

// before is called before each command of a client, and before each of a script. It runs scripts itself, to see the
// data before and after.
func (o *observer) before(peer *server.Peer, command string, args ...string) bool {
	if command == "PUBLISH" { // of a script
		o.last.sent = append(o.last.sent, args[1])
		o.publishedLocked(args[1])
		if o.noPublish.Load() > 0 {
			peer.WriteError("NOPERM No permissions to access a channel")
			return true
		}
		return false
	}
	if effect, ok := writes[command]; ok && o.last.verb != "" { // of a script
		if o.full.Load() > 0 && effect == takesMemory && !o.last.wrote {
			o.last.refused = true
			peer.WriteError("OOM command not allowed when used memory > 'maxmemory'.")
			return true
		}
		o.last.wrote = true
		return false
	}
	if command == "SUBSCRIBE" {
		o.subscribe(args[0][strings.LastIndexByte(args[0], ':')+1:], o.world.now())
	}
	if command != "EVALSHA" && command != "EVAL" || peer.ClientName == byObserver {
		return false
	}
	o.hold()
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	hash := args[0]
	if command == "EVAL" {
		hash = o.hashes[hash]
	}
	n, _ := strconv.Atoi(args[1])
	for _, l := range o.locks {
		if verb := o.verbs[hash]; verb != "" && lockOf(args[2]) == lockOf(l.keys["number"]) {
			o.runLocked(peer, l, step{verb: verb, args: args[2+n:], text: strings.Join(args[2+n:], " ")},
				append([]string{command}, args...))
			return true
		}
	}
	return false
}

// lockOf is what all keys of a lock begin with, and those of no other.
func lockOf(key string) string {
	lock, _, _ := strings.Cut(key, "}")
	return lock
}

// writes are the commands of scripts that write. A full server refuses those that take memory, unless the script has
// written.
var writes = map[string]effect{
	"SET": takesMemory, "HSET": takesMemory, "HINCRBY": takesMemory, "ZADD": takesMemory,
	"DEL": takesNone, "UNLINK": takesNone, "ZREM": takesNone, "HDEL": takesNone, "PEXPIRE": takesNone,
}

type effect int

const (
	takesNone effect = iota
	takesMemory
)

// never stands for the subscription of a client that receives no notifications.
const never = int64(math.MaxInt64)

// subscribe notes when a subscription has come up. After never, it has not, until 0 is given.
func (o *observer) subscribe(client string, at int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if had := o.subscribed[client]; at == never || at == 0 && had == never || at > 0 && had != never {
		o.subscribed[client] = at
	}
	for _, l := range o.locks {
		for _, w := range l.Waiters {
			// by a message that is under way
			o.untold[w.Token] = o.untold[w.Token] || at == never && strings.HasPrefix(w.Token, client+":")
		}
	}
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
			o.world.sleep(100 * time.Millisecond) // less than what a key lasts beyond its waiters
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
		o.compareAllLocked()
		o.world.server.StepClock(-behind)
	}
	if time.Now().Before(o.thaw) {
		return true
	}
	o.frozen = time.Time{}
	return false
}

// step steps the server's clock, even while it stands still.
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
	o.compareAllLocked()
}

// compareAllLocked records what has changed in any lock, by the last run or because keys have expired.
func (o *observer) compareAllLocked() {
	for _, l := range o.locks {
		o.compareLocked(l)
	}
	o.last = step{}
}

// replace records that f deletes or replaces what some locks have in the server.
func (o *observer) replace(f func(), locks ...*observed) {
	o.world.server.StepClock(0) // what is due expires
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	o.forgetDepartedLocked()
	o.restoring = true
	for _, l := range locks {
		o.record(history.ServerEvent{At: o.world.server.Now().UnixMicro(), Op: history.Deletes, Lock: l.name})
		l.contents = contents{}
		clear(l.forgotten)
		o.compareLocked(l)
		for _, h := range l.Holders { // of a replica that has not heard of the minimum yet
			if m := o.minimum(h); m != nil && m.ends() > h.Expires {
				m.known = false
			}
		}
	}
	o.restoring = false
}

// forgetDepartedLocked notes that tombstones were lost. A late acquire of a token that has left may be queued again, or
// granted the lock, for nobody.
func (o *observer) forgetDepartedLocked() {
	for token := range o.departed {
		o.restored[token] = true
	}
	clear(o.departed)
}

// evict deletes one key of a lock.
func (o *observer) evict(l *observed, key script.RedisKey) {
	o.world.server.StepClock(0) // what is due expires
	o.look()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.world.server.Miniredis.Del(key.Name)
	switch key.Part {
	case "tombstones":
		o.forgetDepartedLocked()
	case "lock", "permits", "holders":
		for _, h := range l.Holders {
			delete(o.minimums, h.Token)
		}
	case "resized":
		l.grew = o.world.server.Now().UnixMicro()
	case "queue":
		if len(l.Waiters) > 0 {
			o.forgetLocked(l)
		}
	}
	o.compareLocked(l)
}

// forgetLocked records that the queue of a lock is forgotten.
func (o *observer) forgetLocked(l *observed) {
	o.record(history.ServerEvent{At: o.world.server.Now().UnixMicro(), Op: history.Forgets, Lock: l.name})
	for _, w := range l.Waiters {
		l.forgotten[w.Token] = o.world.now()
	}
	l.Waiters, l.Heartbeats = nil, nil
}

// expireTombstones has every lock that has tombstones have one that is over.
func (o *observer) expireTombstones() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.locks {
		db := o.world.server.Miniredis.DB(0)
		if db.Exists(l.keys["tombstones"]) {
			_, _ = db.ZAdd(l.keys["tombstones"], 1, "over")
		}
	}
}

// ignore has the rules for clients not apply to a token from now on.
func (o *observer) ignore(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.restored[token] = true
}

// known returns the contents of a lock, and a token that has a tombstone. No rule applies to that token from now on.
func (o *observer) known(lock string) (c contents, left token.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.locks {
		if l.name == lock {
			if l.Tombstones[l.lastLeft] > o.world.server.Now().Add(ttl).UnixMicro() {
				left, _ = token.Parse(l.lastLeft)
				o.restored[l.lastLeft] = true
			}
			return l.contents, left
		}
	}
	return c, left
}

// holds reports whether a token that begins like that holds a lock.
func (o *observer) holds(prefix string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.locks, func(l *observed) bool {
		return slices.ContainsFunc(l.Holders, func(h rules.Holder) bool { return strings.HasPrefix(h.Token, prefix) })
	})
}

func (o *observer) record(e history.ServerEvent) {
	e.Seen = o.world.now()
	o.events = append(o.events, e)
}

// compareLocked records what has changed in a lock.
func (o *observer) compareLocked(l *observed) {
	now := o.world.server.Now()
	record := func(op history.ServerOp, token string, ticket uint64, until int64) {
		o.record(history.ServerEvent{At: now.UnixMicro(), Op: op, Lock: l.name, Token: o.first(token),
			Key: rules.Terms(token).Key, Ticket: ticket, Until: until})
	}
	if by, token := o.last.takesOver(); by != "" {
		o.took[by] = token
	}
	next := o.load(l)
	resized := func(n int) {
		if n != l.resized {
			l.resized = n
			record(history.Resizes, "", uint64(n), 0)
		}
	}
	if o.restoring { // it may have been resized while more permits were held; ended leases are found as well
		all := 0
		for _, h := range next.Holders {
			all += parse(h.Token).Weight()
		}
		resized(max(all, l.permits))
	} else {
		resized(next.Resized)
	}
	for _, h := range l.Holders {
		if o.successor(h, &next) == nil { // perhaps a lease that had ended, and another one
			record(history.Ends, h.Token, 0, 0)
			o.ended(l, h, now.UnixMicro())
		}
	}
	if l.forgets(o.last, &next) {
		o.forgetLocked(l)
	}
	// The queue's clock that the last run can have found.
	before := l.State
	before.Now = now.UnixMicro()
	latest := max(next.Clock, before.QueueClock())
	if l.Last == 0 {
		latest = before.Now
	}
	for _, w := range l.Waiters {
		if next.Waiter(w.Token) == nil && next.Holder(w.Token) == nil {
			expired := len(next.Waiters) == 0 && o.last.verb == "" // the queue as a whole
			tooHeavy := o.last.verb != "" && next.Resized > 0 && parse(w.Token).Weight() > next.Resized
			if strings.Contains(o.last.text, w.Token) || expired || tooHeavy {
				record(history.Leaves, w.Token, 0, 0)
			} else {
				record(history.Drops, w.Token, 0, latest)
				o.suspect(w.Token, o.world.now(), "dropped from the queue", 1)
			}
		}
	}
	granted := slices.SortedFunc(slices.Values(next.Holders), func(a, b rules.Holder) int { // several in one script
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Token, b.Token))
	})
	for _, h := range granted {
		if o.successor(h, &l.contents) != nil {
			continue
		}
		had := l.Waiter(h.Token)
		if ticket := o.last.brings(h.Token); ticket > 0 && (had == nil || ticket < had.Ticket) {
			record(history.Joins, h.Token, ticket, 0) // it came back to its place in the script that granted it the lock
		}
		record(history.Owns, h.Token, 0, 0)
	}
	resized(next.Resized)
	for _, h := range granted {
		if next.ends[h.Token] != l.ends[h.Token] {
			record(history.Lasts, h.Token, h.Fence, next.ends[h.Token])
			if had := o.successor(h, &l.contents); had != nil {
				o.lasts(*had, h, next.ends[h.Token])
			}
		}
	}
	for _, w := range next.Waiters {
		had := l.Waiter(w.Token)
		if had != nil && had.Ticket != w.Ticket { // the queue was removed, and it came back without a ticket
			record(history.Leaves, w.Token, 0, 0)
		}
		if had == nil || had.Ticket != w.Ticket {
			record(history.Joins, w.Token, w.Ticket, 0)
		}
		if had == nil || l.Heartbeats[w.Token] != next.Heartbeats[w.Token] {
			record(history.Keeps, w.Token, 0, next.Heartbeats[w.Token])
		}
	}
	o.checkLocked(l, next)
	l.contents = next
}

// successor returns the same lease in other contents, or the one that has taken it over, or been taken over.
func (o *observer) successor(h rules.Holder, in *contents) *rules.Holder {
	by, token := o.last.takesOver()
	return find(in.Holders, func(other rules.Holder) bool {
		passed := by != "" && (h.Token == by && other.Token == token || h.Token == token && other.Token == by)
		return passed || other.Token == h.Token && other.Fence == h.Fence
	})
}

// first returns the first token of an acquisition by that of its lease. Resume and the rest of a minimum hold change
// the token. To package history they are one acquisition.
func (o *observer) first(token string) string {
	for o.took[token] != "" {
		token = o.took[token]
	}
	return token
}

// takesOver returns the token that a script has take over a lease, and the one whose lease that is; nothing for another
// script.
func (s step) takesOver() (by, token string) {
	switch s.verb {
	case "resume", "release":
		return s.args[4], s.args[1]
	case "leave":
		return s.args[2], s.args[4]
	}
	return "", ""
}

// forgets reports whether a script that left next has forgotten the queue: a part of it was lost before.
func (l *observed) forgets(s step, next *contents) bool {
	return !l.Whole() && s.verb != "" && len(l.Waiters) > 0 &&
		!slices.ContainsFunc(next.Waiters, func(w rules.Waiter) bool {
			return l.Waiter(w.Token) != nil && !strings.Contains(s.text, w.Token)
		})
}
