package history

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// deed is what an operation of the linear history does.
type deed int

const (
	grants deed = iota // Lock is granted the lock
	renews             // a renewal succeeds
	ends               // Unlock releases it, or it expires, or Redis forgets it
	loses              // Unlock or a renewal finds it over
)

// operation is one of the linear history: at some moment between from and to it is done.
type operation struct {
	deed     deed
	by       *acquisition
	prev     uint64 // of a grant: the fence before it
	from, to int64
	why      string // how it is told
}

// state is that of a mutex.
type state struct {
	owner int // the number of a grant; 0 if nobody holds it
	fence uint64
}

// step is what a mutex does in a state, if it can.
func (o *operation) step(s state) (bool, state) {
	switch o.deed {
	case grants:
		return s.owner == 0 && s.fence == o.prev, state{o.by.number, o.by.granted.Fence}
	case renews:
		return s.owner == o.by.number, s
	case ends:
		return s.owner == o.by.number, state{0, s.fence}
	case loses:
		return s.owner != o.by.number && s.fence >= o.by.granted.Fence, s
	}
	panic("no such deed")
}

// model is a mutex that was last granted with that fence and is free.
func model(fence uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{0, fence} },
		Step: func(s, in, _ any) (bool, any) {
			ok, next := in.(*operation).step(s.(state))
			return ok, next
		},
		Hash: func(s any) uint64 { return s.(state).fence*31 + uint64(s.(state).owner) },
		DescribeOperation: func(in, _ any) string {
			o := in.(*operation)
			return fmt.Sprintf("%s, by %v", o.why, o.by)
		},
		DescribeState: func(s any) string {
			if s.(state).owner == 0 {
				return fmt.Sprintf("free, last fence %d", s.(state).fence)
			}
			return fmt.Sprintf("held, fence %d", s.(state).fence)
		},
	}
}

// piece is a part of a lock's linear history that begins and ends with nobody holding it.
type piece struct {
	lock  string
	fence uint64 // the last one before it
	list  []*operation
}

// pieceLen is the grants in a piece: what porcupine needs grows with the square of its history.
const pieceLen = 250

// linear: every operation was done at one moment between its call and its answer, such that all of them together, in
// the order of these moments, are what a mutex with leases does. The operations of a lock are
//
//   - a grant, between Ask and the answer: if nobody holds it, and next after the grant with the next lower fence;
//   - the end of each grant: by an Unlock that was answered with Released, between the two; or else by one whose
//     outcome is unknown, from its call on; by expiry, from the last end of belief on; or by a loss of Redis's data.
//     Each takes effect some day or never, so of all that could have ended a grant one is enough, and the earliest
//     allows all;
//   - a renewal, between TTL before the end of belief that it told, before which it cannot have been sent, and then: if
//     it is held. The last of an acquisition stands for all;
//   - a refusal by Redis (Denied or Lost) that is told before the end of belief: if it was granted and is not held.
//
// A call of Lock that failed, or was never answered, may have been granted the lock for a while. It is left out, for
// where an order with it is right the same order without it is: nobody else does anything in its while that needs it.
//
// Because the fences give the order of the grants, and nobody holds it between two of them, the history can be cut
// there: porcupine judges each piece, and between pieces it is enough that nothing is called after something later was
// answered.
func (c *checker) linear() {
	deadline := time.Now().Add(c.Limit)
	var pieces []piece
	for _, name := range slices.Sorted(maps.Keys(c.locks)) {
		cut := c.pieces(c.locks[name])
		c.acrossPieces(cut)
		pieces = append(pieces, cut...)
	}
	results := make([]porcupine.CheckResult, len(pieces))
	next := make(chan int, len(pieces))
	for i, p := range pieces {
		next <- i
		c.judge(Linear, len(p.list))
	}
	close(next)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				if left := time.Until(deadline); left > 0 {
					results[i] = porcupine.CheckOperationsTimeout(model(pieces[i].fence), operations(pieces[i].list), left)
				} else {
					results[i] = porcupine.Unknown
				}
			}
		})
	}
	workers.Wait()
	for i, p := range pieces {
		switch results[i] {
		case porcupine.Ok:
		case porcupine.Illegal:
			c.explain(p)
		default:
			c.violate(Undecided, p.lock, nil, "no linear order was found within %v, nor that there is none, from %s to fence %d",
				c.Limit, c.at(p.list[0].from), p.list[len(p.list)-1].by.granted.Fence)
		}
	}
}

// pieces returns the operations of a lock, in the one order in which they can have been done.
func (c *checker) pieces(l *one) (list []piece) {
	var fence uint64
	for i, a := range l.grants {
		if i%pieceLen == 0 {
			list = append(list, piece{lock: l.name, fence: fence})
		}
		p := &list[len(list)-1]
		p.list = append(p.list, c.deeds(a, fence)...)
		fence = a.granted.Fence
	}
	return list
}

// deeds are the operations of one acquisition.
func (c *checker) deeds(a *acquisition, prev uint64) []*operation {
	list := []*operation{{deed: grants, prev: prev, from: a.ask.At, to: a.latest(), why: "granted"}}
	var last *Event
	for _, e := range a.renewed {
		if last == nil || e.Until > last.Until {
			last = e
		}
	}
	if last != nil {
		from := max(a.ask.At, last.Until-int64(c.TTL))
		list = append(list, &operation{deed: renews, from: from, to: last.At, why: "renewed"})
	}
	list = append(list, c.ending(a))
	refusal := func(e *Event) {
		if e != nil && (e.Op == Denied || e.Op == Lost) && byServer(e) && e.At < a.until-grain {
			list = append(list, &operation{deed: loses, from: a.ask.At, to: e.At, why: "refused as over"})
		}
	}
	refusal(a.lost)
	for _, try := range a.tries {
		refusal(try.answer)
	}
	for _, o := range list {
		o.by = a
	}
	return list
}

// ending is the end of a grant.
func (c *checker) ending(a *acquisition) *operation {
	o := &operation{deed: ends, from: a.until, to: never, why: "expires"}
	if e := a.released(); e != nil {
		o.from, o.to, o.why = a.unlock(), e.At, "released"
	} else {
		for _, try := range a.tries {
			if (try.answer == nil || try.answer.Op == Unknown) && try.unlock.At < o.from {
				o.from, o.why = try.unlock.At, "expires, or released by an Unlock of unknown outcome"
			}
		}
	}
	if loss, ok := c.lost(a.lock, a.ask.At, o.to); ok && loss.From < o.from {
		o.from, o.why = max(loss.From, a.ask.At), o.why+", or forgotten by Redis"
	}
	return o
}

// acrossPieces: nothing is called after something of a later piece was answered.
func (c *checker) acrossPieces(list []piece) {
	answered := make([]*operation, len(list)+1) // the first of this piece and the later ones
	for i := len(list) - 1; i >= 0; i-- {
		answered[i] = answered[i+1]
		for _, o := range list[i].list {
			if answered[i] == nil || o.to < answered[i].to {
				answered[i] = o
			}
		}
	}
	var called, told *operation // called: the last so far
	for i, p := range list {
		for _, o := range p.list {
			if called == nil || o.from > called.from {
				called = o
			}
		}
		if o := answered[i+1]; o != nil && o != told && o.to < called.from {
			told = o
			of := func(o *operation) []*operation { return list[(o.by.number-1)/pieceLen].list }
			c.contradict(called, o, slices.Concat(of(called), of(o)))
		}
	}
}

// explain says why there is no linear order in a piece: the first operation that was answered before one was called
// that has to be done before.
func (c *checker) explain(p piece) {
	var called *operation
	for _, o := range p.list {
		if called != nil && o.to < called.from {
			c.contradict(called, o, p.list)
			return
		}
		if called == nil || o.from > called.from {
			called = o
		}
	}
	c.draw(c.violate(Linear, p.lock, nil, "what was done with it cannot be put into one order"), p.list)
}

func (c *checker) contradict(first, then *operation, among []*operation) {
	v := c.violate(Linear, first.by.lock, []*Event{first.by.granted, then.by.granted},
		"%v: %s at %s at the earliest; %v: %s by %s, which has to come later",
		first.by, first.why, c.at(first.from), then.by, then.why, c.at(then.to))
	c.draw(v, slices.DeleteFunc(slices.Clone(among), func(o *operation) bool {
		return !o.by.near(first.by) && !o.by.near(then.by)
	}))
}

// near reports whether the grant of b is among the twenty before and after that of a.
func (a *acquisition) near(b *acquisition) bool {
	return max(a.number-b.number, b.number-a.number) <= 20
}

// mostDrawn is how many pictures are drawn, each of which may take drawing.
const (
	mostDrawn = 10
	drawing   = 10 * time.Second
)

// draw draws these operations and how far an order goes. The first grant may follow on any other.
func (c *checker) draw(v *Violation, list []*operation) {
	if v == nil || c.Pictures == "" || c.drawn == mostDrawn {
		return
	}
	c.drawn++
	own := make([]*operation, len(list))
	var fence uint64
	for i, o := range list {
		copied := *o
		if o.deed == grants {
			copied.prev, fence = fence, o.by.granted.Fence
		}
		own[i] = &copied
	}
	m := model(0)
	_, info := porcupine.CheckOperationsVerbose(m, operations(own), drawing)
	v.Picture = filepath.Join(c.Pictures, fmt.Sprintf("linear-%d.html", c.drawn))
	if err := porcupine.VisualizePath(m, info, v.Picture); err != nil {
		v.Picture = err.Error()
	}
}

// operations is a history for porcupine. Each worker has a row, and another one for how what it held ends.
func operations(list []*operation) []porcupine.Operation {
	type row struct {
		process, worker int
		end             bool
	}
	rows := map[row]int{}
	all := make([]porcupine.Operation, len(list))
	for i, o := range list {
		r := row{o.by.process, o.by.worker, o.deed != grants}
		if _, ok := rows[r]; !ok {
			rows[r] = len(rows)
		}
		all[i] = porcupine.Operation{ClientId: rows[r], Input: o, Call: o.from, Return: o.to}
	}
	return all
}
