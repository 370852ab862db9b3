package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/fairlock"
)

// never is later than every event.
const never = int64(math.MaxInt64)

// acquisition is one call of Lock with everything that was recorded of it.
type acquisition struct {
	process      *process
	worker, call int
	lock         *lock
	token        string
	state        Op // the last event that decides what can follow
	events       []*Event
	first        map[Op]*Event
	ticket       uint64       // 0 if it is not known that it queued
	after        *acquisition // the one with the highest ticket that knew it before the request; nil if there is none

	request, granted *Event // nil if there is none
	weight, permits  int    // that it requests, and its limit
	key              string // of a keyed semaphore
	limit            int    // of its key, as it says
	losses           int    // of data before the request, if fences may fall across them
	waits            int64  // until when it certainly waits, unless it is granted the lock before
	gone             bool   // it was granted the lock, or does not certainly wait any more
	earliest         int64  // when it was granted at the earliest
	until            int64  // the last recorded end of its trusted time
	// it is known to have held the lock from granted.At until then; not at all if that is not later
	end    int64
	beside int // the weights of all that held the lock at granted.At, including its own
}

func (a *acquisition) String() string {
	return fmt.Sprintf("client %d worker %d call %d", a.process.number, a.worker, a.call)
}

// held are the states of an acquisition that was granted the lock.
var held = []Op{Granted, Unlock, Ambiguous, Released, NotHeld}

// follows says on which states an event can follow.
var follows = map[Op][]Op{
	Request: {""}, Queued: {Request}, Granted: {Request}, Failed: {Request}, Renewed: append(held, Request),
	Used: held, Lost: held, Unlock: {Granted, Ambiguous}, Released: {Unlock}, NotHeld: {Unlock}, Ambiguous: {Unlock},
}

// add adds the next event, and returns what is wrong with it.
func (a *acquisition) add(e *Event) string {
	switch {
	case e.At <= 0, e.Process < 0, e.Lock == "", (e.Op == Queued || e.Op == Granted) && e.Token == "",
		e.Op == Queued && e.Ticket == 0, e.Op == Granted && e.Fence == 0, (e.Op == Granted || e.Op == Renewed) &&
			e.Until == 0:
		return "is incomplete"
	case !slices.Contains(follows[e.Op], a.state):
		return fmt.Sprintf("cannot follow on %q", a.state)
	case e.Op == Queued && a.first[Queued] != nil:
		return "comes twice"
	case e.Lock != a.lock.name, e.Worker != a.worker, e.Token != "" && a.token != "" && e.Token != a.token:
		return "is of another lock, worker or token"
	}
	a.token, a.ticket = cmp.Or(a.token, e.Token), cmp.Or(a.ticket, e.Ticket)
	if e.Op != Queued && e.Op != Renewed && e.Op != Used && e.Op != Lost {
		a.state = e.Op
	}
	a.events = append(a.events, e)
	a.first[e.Op] = cmp.Or(a.first[e.Op], e)
	if l := a.lock; e.Op == Request {
		l.all = append(l.all, a)
		a.after = l.highest
	} else if e.Op == Queued && (l.highest == nil || l.highest.ticket < a.ticket) {
		l.highest = a
	}
	return ""
}

// conclude computes what follows from all events of an acquisition.
func (c *checker) conclude(a *acquisition) {
	a.request, a.granted = a.first[Request], a.first[Granted]
	a.key, a.limit = a.request.Key, cmp.Or(a.request.KeyLimit, math.MaxInt)
	a.weight, a.permits = max(1, a.request.Weight), cmp.Or(a.request.Permits, a.lock.capacity)
	c.byToken[a.token] = a
	if a.waits = never; a.granted == nil {
		a.waits = a.waitsUntil()
	}
	for s := range a.lock.sizesIn(a.request.At, a.waits) {
		if s.permits > 0 && s.permits < a.weight { // it is dropped when it is the head
			a.waits = min(a.waits, max(s.at, a.request.At))
		}
	}
	if a.granted == nil {
		return
	}
	a.earliest, a.until = a.request.At, a.trustedUntil(never)
	for _, loss := range c.Losses {
		if c.ClockBack && loss.concerns(a.lock, Numbers) && loss.To < a.request.At {
			a.losses++
		}
	}
	unlock := a.time(Unlock)
	a.end = min(a.until, unlock, a.time(Lost), a.process.kill.From)
	if a.state == Released { // it held the lock until then, whatever it knew
		a.end = unlock
	}
}

// time is when the first event of a kind was recorded; never if there is none.
func (a *acquisition) time(op Op) int64 {
	if e := a.first[op]; e != nil {
		return e.At
	}
	return never
}

// latest is when Redis granted it at the latest. Granted may be recorded long after, but no lease begins after its end.
func (a *acquisition) latest() int64 { return min(a.granted.At, a.granted.Until) }

// trustedUntil is the last end of its trusted time that it had recorded by then.
func (a *acquisition) trustedUntil(by int64) (until int64) {
	for _, e := range a.events {
		switch {
		case e.At > by:
		case e.Op == Granted || e.Op == Renewed:
			until = e.Until // a renewal never lowers it; a Resume for a shorter time does
		case e.Op == Used && a.process.kill.To-e.At < stall: // its last renewal may not have been recorded
			until = max(until, e.At)
		}
	}
	return until
}

// waitsUntil returns until when an acquisition that was not granted the lock certainly waits. That is its deadline.
// Without one, it is a second of running time of its process before its end was recorded.
func (a *acquisition) waitsUntil() int64 {
	end := min(a.time(Failed), a.process.kill.From)
	if deadline := cmp.Or(a.request.Until, never); deadline <= end {
		return deadline
	}
	at := end - stall
	for _, s := range slices.Backward(a.process.absences) {
		if s.To >= at && s.From < end {
			at = min(at, s.From-stall)
		}
	}
	return at
}

// byRedis reports whether a lease ended because of a reply of Redis, and not by the client's clock or its Close.
func byRedis(e *Event) bool {
	return e.Err == "" || strings.Contains(e.Err, fairlock.ErrRevoked.Error())
}

func byClose(e *Event) bool { return strings.Contains(e.Err, fairlock.ErrClosed.Error()) }
