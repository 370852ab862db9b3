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
	process, worker, call, weight int
	lock, token                   string
	ticket                        uint64 // 0 if it is not known that it queued
	state                         Op     // the last event that decides what can follow

	request, granted, failed, lost          *Event // the first; nil if there is none
	queued, renewed, used, unlocks, answers []*Event

	waits    int64 // until when it certainly waits, unless it is granted the lock before
	number   int   // among the grants of its lock by fence
	earliest int64 // when it was granted at the earliest
	until    int64 // the last recorded end of its trusted time
	end      int64 // it is known to have held the lock from granted.At until then; not at all if that is not later
	beside   int   // the weights of all that held the lock at granted.At, including its own
}

func (a *acquisition) String() string {
	text := fmt.Sprintf("client %d worker %d call %d", a.process, a.worker, a.call)
	if a.ticket != 0 {
		text += fmt.Sprintf(" ticket %d", a.ticket)
	}
	if a.granted != nil {
		text += fmt.Sprintf(" fence %d", a.granted.Fence)
	}
	return text
}

// held are the states of an acquisition that was granted the lock.
var held = []Op{Granted, Unlock, Ambiguous, Released, NotHeld}

// follows says on which states an event can follow.
var follows = map[Op][]Op{
	Request: {""}, Queued: {Request}, Granted: {Request}, Failed: {Request}, Renewed: append(held, Request), Used: held, Lost: held,
	Unlock: {Granted, Ambiguous}, Released: {Unlock}, NotHeld: {Unlock}, Ambiguous: {Unlock},
}

// add adds the next event, and returns what is wrong with it.
func (a *acquisition) add(e *Event) string {
	switch {
	case e.At <= 0, e.Process < 0, e.Lock == "", (e.Op == Queued || e.Op == Granted) && e.Token == "",
		e.Op == Queued && e.Ticket == 0, e.Op == Granted && e.Fence == 0, (e.Op == Granted || e.Op == Renewed) && e.Until == 0:
		return "is incomplete"
	case !slices.Contains(follows[e.Op], a.state):
		return fmt.Sprintf("cannot follow on %q", a.state)
	case e.Lock != a.lock, e.Worker != a.worker, e.Token != "" && a.token != "" && e.Token != a.token:
		return "is of another lock, worker or token"
	}
	if e.Token != "" {
		a.token = e.Token
	}
	switch e.Op {
	case Request:
		a.state, a.request, a.weight = e.Op, e, max(1, e.Weight)
	case Queued:
		a.queued = append(a.queued, e)
		a.ticket = a.queued[0].Ticket
	case Granted:
		a.state, a.granted = e.Op, e
		if a.ticket == 0 {
			a.ticket = e.Ticket
		}
	case Failed:
		a.state, a.failed = e.Op, e
	case Renewed:
		a.renewed = append(a.renewed, e)
	case Used:
		a.used = append(a.used, e)
	case Lost:
		if a.lost == nil {
			a.lost = e
		}
	case Unlock:
		a.state, a.unlocks = e.Op, append(a.unlocks, e)
	default:
		a.state, a.answers = e.Op, append(a.answers, e)
	}
	return ""
}

// conclude computes what follows from all events of an acquisition.
func (c *checker) conclude(a *acquisition) {
	if a.waits = never; a.granted == nil {
		a.waits = c.waitsUntil(a)
		return
	}
	a.until = a.trustedUntil(never)
	kill := cmp.Or(c.kills[a.process], &Span{From: never, To: never})
	for _, e := range a.used {
		if kill.To-e.At < stall { // its last renewal may not have been recorded
			a.until = max(a.until, e.At)
		}
	}
	if a.end = a.unlockedAt(); a.state != Released { // otherwise it held the lock, whatever it knew
		a.end = min(a.end, a.until, kill.From)
		if a.lost != nil {
			a.end = min(a.end, a.lost.At)
		}
	}
}

// latest is when Redis granted it at the latest. Granted may be recorded long after, but no lease begins after its end.
func (a *acquisition) latest() int64 { return min(a.granted.At, a.granted.Until) }

// holds reports whether it is known to have held the lock. Granted may be recorded after the end of the lease.
func (a *acquisition) holds() bool { return a.granted.At < a.end }

// trustedUntil is the last end of its trusted time that it had recorded by then.
func (a *acquisition) trustedUntil(by int64) (until int64) {
	for _, e := range append([]*Event{a.granted}, a.renewed...) {
		if e.At <= by {
			until = max(until, e.Until)
		}
	}
	return until
}

// unlockedAt is when Unlock was first called; never if it was not.
func (a *acquisition) unlockedAt() int64 {
	if len(a.unlocks) == 0 {
		return never
	}
	return a.unlocks[0].At
}

// knownAt is when it knew its ticket.
func (a *acquisition) knownAt() int64 {
	if len(a.queued) > 0 {
		return a.queued[0].At
	}
	return a.granted.At
}

// byRedis reports whether Redis said that a lease is over: not the client's clock, nor its Close.
func byRedis(e *Event) bool { return e.Err == "" || strings.Contains(e.Err, fairlock.ErrTaken.Error()) }

func byClose(e *Event) bool { return strings.Contains(e.Err, fairlock.ErrClosed.Error()) }
