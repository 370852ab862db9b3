package history

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/fairlock"
)

// never is after everything.
const never = int64(math.MaxInt64)

// acquisition is one call of Lock with all that came of it.
type acquisition struct {
	process, call, worker int
	lock, token           string
	ticket                uint64 // 0 if it is not known that it queued

	ask, granted, failed, lost *Event // nil if not told; the first one
	queued, renewed, used      []*Event
	tries                      []try

	number int   // among the grants of its lock, by fence, from 1; 0 if it was not granted
	until  int64 // the last end of belief that was told; belief may have gone on if its process was killed
	end    int64 // of what is proved of its belief, which begins at granted.At; not after that if nothing is
}

// try is one call of Unlock.
type try struct {
	unlock *Event
	answer *Event // nil if it was not told
}

func (a *acquisition) String() string {
	text := fmt.Sprintf("process %d worker %d call %d", a.process, a.worker, a.call)
	switch {
	case a.granted != nil && a.ticket != 0:
		text += fmt.Sprintf(" (ticket %d, fence %d)", a.ticket, a.granted.Fence)
	case a.granted != nil:
		text += fmt.Sprintf(" (no ticket, fence %d)", a.granted.Fence)
	case a.ticket != 0:
		text += fmt.Sprintf(" (ticket %d)", a.ticket)
	}
	return text
}

// latest is when it was granted at the latest: the line is written after Lock has returned, perhaps long after, but no
// lease begins after its deadline.
func (a *acquisition) latest() int64 { return min(a.granted.At, a.granted.Until) }

// believed reports whether it is proved that it believed in its lease at all. Its log may have come to write that it
// was granted when the lease was over.
func (a *acquisition) believed() bool { return a.granted.At < a.end }

// told is the last end of belief that it told by then.
func (a *acquisition) told(by int64) (until int64) {
	if a.granted.At <= by {
		until = a.granted.Until
	}
	for _, e := range a.renewed {
		if e.At <= by {
			until = max(until, e.Until)
		}
	}
	return until
}

// unlock is when Unlock was first called; never if it was not.
func (a *acquisition) unlock() int64 {
	if len(a.tries) == 0 {
		return never
	}
	return a.tries[0].unlock.At
}

// released is when Unlock told that it has released it; nil if it did not.
func (a *acquisition) released() *Event {
	if len(a.tries) > 0 {
		if e := a.tries[len(a.tries)-1].answer; e != nil && e.Op == Released {
			return e
		}
	}
	return nil
}

// byServer reports whether somebody knows from Redis that a lease is over, and not from the clock, nor from the end of
// the Client.
func byServer(e *Event) bool {
	return e.Err == "" || strings.Contains(e.Err, fairlock.ErrTaken.Error())
}

func byClose(e *Event) bool { return strings.Contains(e.Err, fairlock.ErrClosed.Error()) }

// gather sorts events by acquisition, and holds each log to its form. What has no form is left out.
func (c *checker) gather(events []Event) []*acquisition {
	type key struct{ process, call int }
	byKey := map[key]*acquisition{}
	var all []*acquisition
	for i := range events {
		e := &events[i]
		k := key{e.Process, e.Call}
		a := byKey[k]
		if a == nil {
			a = &acquisition{process: e.Process, call: e.Call, worker: e.Worker, lock: e.Lock}
			byKey[k] = a
			all = append(all, a)
		}
		if fault := a.add(e); fault != "" {
			c.violate(Form, e.Lock, []*Event{e}, "%v: %q at %s %s", a, e.Op, c.at(e.At), fault)
		}
	}
	c.judge(Form, len(all))
	all = slices.DeleteFunc(all, func(a *acquisition) bool { return a.ask == nil })
	for _, a := range all {
		c.conclude(a)
	}
	return all
}

// add adds the next event, and tells what is wrong with it.
func (a *acquisition) add(e *Event) (fault string) {
	if err := e.check(); err != nil {
		return "has " + strings.ReplaceAll(err.Error(), "\n", ", ")
	}
	switch {
	case (a.ask == nil) != (e.Op == Ask):
		return "does not follow on one ask"
	case e.Lock != a.lock:
		return fmt.Sprintf("is about another lock than %q", a.lock)
	case e.Worker != a.worker:
		return "is of another worker"
	case e.Token != "" && a.token != "" && e.Token != a.token:
		return "has another token"
	}
	if e.Token != "" {
		a.token = e.Token
	}
	waiting := a.granted == nil && a.failed == nil
	held := a.granted != nil
	var open *try // the Unlock that has not been answered
	if n := len(a.tries); n > 0 && a.tries[n-1].answer == nil {
		open = &a.tries[n-1]
	}
	ok := true
	switch e.Op {
	case Ask:
		a.ask = e
	case Queued:
		if ok = waiting; ok {
			a.queued = append(a.queued, e)
			a.ticket = a.queued[0].Ticket
		}
	case Granted:
		if ok = waiting; ok {
			a.granted = e
		}
	case Failed:
		if ok = waiting; ok {
			a.failed = e
		}
	case Renewed:
		if ok = a.failed == nil; ok {
			a.renewed = append(a.renewed, e)
		}
	case Used:
		if ok = held; ok {
			a.used = append(a.used, e)
		}
	case Lost:
		if ok = held; ok && a.lost == nil {
			a.lost = e
		}
	case Unlock:
		ok = held && open == nil && (len(a.tries) == 0 || a.tries[len(a.tries)-1].answer.Op == Unknown)
		if ok {
			a.tries = append(a.tries, try{unlock: e})
		}
	case Released, Denied, Unknown:
		if ok = open != nil; ok {
			open.answer = e
		}
	}
	if !ok {
		return "cannot come here"
	}
	return ""
}

// conclude reckons what follows from all its events.
func (c *checker) conclude(a *acquisition) {
	if a.granted == nil {
		return
	}
	if a.ticket == 0 {
		a.ticket = a.granted.Ticket
	}
	a.until = a.told(never)
	for _, e := range a.used {
		a.until = max(a.until, e.Until)
	}
	a.end = min(a.until, a.unlock())
	if a.lost != nil {
		a.end = min(a.end, a.lost.At)
	}
	if kill, ok := c.kills[a.process]; ok {
		a.end = min(a.end, kill.From)
	}
}
