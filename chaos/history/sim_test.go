package history_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/chaos/history"
	"github.com/fairlock/fairlock-go/fairlock"
)

// A sim is a small world in which processes use fair locks with leases: a server, its clients, and the messages between
// them, which take time and get lost. Time is virtual, and everything follows from the seed. What the workers write
// down is a right history.

// simConfig is what a world is like. Times are ns.
type simConfig struct {
	seed               uint64
	locks              int
	processes, workers int     // workers in each process
	calls              int     // acquisitions in all
	unknown            float64 // how many Unlocks are not answered
	astray             float64 // how many other calls are not
	impatient          float64 // how many calls of Lock have a ctx that ends
	kills, stops, cuts int     // one in so much of the time; 0 for none
	losses             int
}

const (
	simTTL      = 300 * time.Millisecond
	simPatience = 200 * time.Millisecond
	simMargin   = simTTL/100 + 2*time.Millisecond
	us          = int64(time.Microsecond)
	ms          = int64(time.Millisecond)
)

type sim struct {
	simConfig
	*rand.Rand
	now     int64
	due     simHeap
	order   int
	events  []history.Event
	run     history.Run
	servers []*simLock
	living  []*simProcess
	number  int // of the last process
	calls   int // still to be made
}

type simTask struct {
	at    int64
	order int
	f     func()
}

type simHeap []simTask

func (h simHeap) Len() int { return len(h) }
func (h simHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h simHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *simHeap) Push(x any)   { *h = append(*h, x.(simTask)) }
func (h *simHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// simulate returns what was written down, and what was done to the processes.
func simulate(cfg simConfig) ([]history.Event, history.Run) {
	s := &sim{simConfig: cfg, Rand: rand.New(rand.NewPCG(cfg.seed, 1)), now: int64(time.Hour), calls: cfg.calls}
	s.run = history.Run{TTL: simTTL, Patience: simPatience}
	for i := range cfg.locks {
		s.servers = append(s.servers, &simLock{sim: s, name: fmt.Sprintf("lock %d", i)})
	}
	for range cfg.processes {
		s.start()
	}
	s.trouble(cfg.kills, func() { s.pick().kill() })
	s.trouble(cfg.stops, func() { s.pick().stop() })
	s.trouble(cfg.cuts, func() { s.pick().cut() })
	s.trouble(cfg.losses, s.lose)
	for len(s.due) > 0 {
		task := heap.Pop(&s.due).(simTask)
		s.now = task.at
		task.f()
	}
	slices.SortStableFunc(s.events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	return s.events, s.run
}

// after does f after d, whatever happens to processes.
func (s *sim) after(d int64, f func()) {
	s.order++
	heap.Push(&s.due, simTask{s.now + d, s.order, f})
}

// trouble does f again and again, about so often in a second, while there are calls to be made.
func (s *sim) trouble(perSecond int, f func()) {
	if perSecond == 0 {
		return
	}
	var again func()
	again = func() {
		s.after(int64(s.ExpFloat64()*1e9/float64(perSecond)), func() {
			if s.calls > 0 {
				f()
				again()
			}
		})
	}
	again()
}

func (s *sim) chance(p float64) bool { return s.Float64() < p }

// wire is how long a message takes.
func (s *sim) wire() int64 { return 20*us + s.Int64N(80*us) }

func (s *sim) pick() *simProcess { return s.living[s.IntN(len(s.living))] }

func (s *sim) lose() {
	s.run.Losses = append(s.run.Losses, history.Loss{From: s.now - us, To: s.now + us})
	for _, l := range s.servers {
		for _, c := range l.queue {
			c.queued = false
		}
		l.queue, l.owner, l.fence = nil, nil, 0
	}
	s.run.Witness = append(s.run.Witness, history.Witness{At: s.now / us, Op: history.Wiped})
}

// simProcess is a process with its client.
type simProcess struct {
	*sim
	number int
	dead   bool
	stands int64 // until when it stands still
	silent int64 // until when its messages get lost
	call   int
}

func (s *sim) start() {
	s.number++
	p := &simProcess{sim: s, number: s.number}
	s.living = append(s.living, p)
	for i := range s.workers {
		p.soon(func() { p.work(i) })
	}
}

// after does f after d, unless it is dead then; if it stands still then, when it goes on.
func (p *simProcess) after(d int64, f func()) {
	p.sim.after(d, func() {
		switch {
		case p.dead:
		case p.now < p.stands:
			p.after(p.stands-p.now, f)
		default:
			f()
		}
	})
}

func (p *simProcess) soon(f func()) { p.after(1+p.Int64N(100*us), f) }

func (p *simProcess) kill() {
	p.dead = true
	p.living = slices.DeleteFunc(p.living, func(q *simProcess) bool { return q == p })
	p.run.Kills = append(p.run.Kills, history.Span{Process: p.number, From: p.now, To: p.now + 100*us})
	p.start()
}

func (p *simProcess) stop() {
	if p.stands > p.now {
		return
	}
	p.stands = p.now + int64(p.ExpFloat64()*float64(simTTL)/2)
	p.run.Stops = append(p.run.Stops, history.Span{Process: p.number, From: p.now, To: p.stands})
}

func (p *simProcess) cut() {
	p.silent = max(p.silent, p.now+int64(p.ExpFloat64()*float64(simTTL)/2))
	p.run.Silences = append(p.run.Silences, history.Span{Process: p.number, From: p.now, To: p.silent})
}

// send carries a question to the server and its answer back, or fails. Either may have got lost then.
func (p *simProcess) send(astray float64, ask func() simAnswer, heard func(simAnswer), failed func()) {
	sent := p.now
	lost := func() bool { return p.now < p.silent || p.chance(astray/2) }
	fail := func() {
		p.run.Silences = append(p.run.Silences, history.Span{Process: p.number, From: sent, To: p.now + 50*ms})
		p.after(50*ms, failed)
	}
	if lost() {
		fail()
		return
	}
	p.sim.after(p.wire(), func() {
		answer := ask()
		if lost() {
			fail()
			return
		}
		p.after(p.wire(), func() { heard(answer) })
	})
}

func (p *simProcess) work(worker int) {
	if p.calls == 0 {
		return
	}
	p.calls--
	p.call++
	c := &simCall{
		simProcess: p, id: p.call, worker: worker, on: p.servers[p.IntN(len(p.servers))], began: p.now,
		token: fmt.Sprintf("p%d:%022d", p.number, p.number*1000000+p.call),
	}
	ask := history.Event{Op: history.Ask}
	if p.chance(p.impatient) {
		limit := int64(p.ExpFloat64() * 20 * float64(ms))
		if p.chance(0.5) {
			ask.Until = p.now + limit
		}
		p.after(limit, c.giveUp)
	}
	c.write(ask)
	c.ask()
	c.beat()
}

// simCall is an acquisition.
type simCall struct {
	*simProcess
	id, worker int
	on         *simLock
	token      string
	began      int64

	// As the client knows it.
	ticket   uint64
	since    int64  // when the last question was sent that found it queued
	floor    uint64 // the last fence then
	asking   bool
	over     bool // it waits no more
	deadline int64
	failure  string // why its lease is over
	unlocked bool
	unsure   bool // an Unlock was not answered

	// As the server knows it.
	queued   bool
	stood    uint64 // its ticket
	patience int64  // until when it keeps its place
	buried   bool
}

func (c *simCall) write(e history.Event) {
	e.At, e.Process, e.Call, e.Worker, e.Lock = c.now, c.number, c.id, c.worker, c.on.name
	if e.Op != history.Ask {
		e.Token = c.token
	}
	c.events = append(c.events, e)
}

// ask asks until there is an answer.
func (c *simCall) ask() {
	if c.over || c.asking {
		return
	}
	c.asking = true
	sent := c.now
	c.send(c.astray, func() simAnswer { return c.on.acquire(c, c.ticket) }, func(a simAnswer) {
		c.asking = false
		switch {
		case c.over:
		case a.granted:
			c.begin(a.fence, sent, int64(simTTL))
		default:
			if c.ticket == 0 || a.joined {
				c.ticket = a.ticket
				c.write(history.Event{Op: history.Queued, Ticket: c.ticket, Position: 1})
			}
			c.since, c.floor = max(c.since, sent), max(c.floor, a.fence)
		}
	}, func() {
		c.asking = false
		c.ask()
	})
}

// beat keeps its place while it waits.
func (c *simCall) beat() {
	c.after(int64(simPatience)/3, func() {
		if c.over {
			return
		}
		c.beat()
		if c.ticket == 0 {
			return
		}
		sent := c.now
		c.send(c.astray, func() simAnswer { return c.on.beat(c) }, func(a simAnswer) {
			switch {
			case c.over:
			case a.granted:
				c.after(10*ms, c.ask)
			case a.joined:
				c.since, c.floor = max(c.since, sent), max(c.floor, a.fence)
			default:
				c.ask()
			}
		}, func() {})
	})
}

// handed hears that it was granted the lock.
func (c *simCall) handed(fence uint64, given int64) {
	switch {
	case c.over || fence <= c.floor || c.since == 0:
	case c.since+given-int64(simMargin)-c.now >= int64(simTTL)/6:
		c.begin(fence, c.since, given)
	default:
		c.ask()
	}
}

func (c *simCall) giveUp() {
	if c.over {
		return
	}
	c.over = true
	var leave func()
	leave = func() {
		c.send(0, func() simAnswer { return c.on.leave(c) }, func(simAnswer) {}, leave)
	}
	leave()
	c.after(c.Int64N(2*ms), func() {
		c.write(history.Event{Op: history.Failed, Err: "context deadline exceeded"})
		c.next()
	})
}

func (c *simCall) next() { c.soon(func() { c.work(c.worker) }) }

// begin begins the lease, unless it is over already.
func (c *simCall) begin(fence uint64, sent, given int64) {
	until := sent + given - int64(simMargin)
	if c.now >= until {
		c.soon(c.ask)
		return
	}
	c.over, c.deadline = true, until
	c.soon(func() {
		c.write(history.Event{Op: history.Granted, Fence: fence, Ticket: c.ticket, Until: c.deadline})
		hold := int64(c.ExpFloat64() * 500 * float64(us))
		if c.chance(0.02) {
			hold = int64(c.ExpFloat64() * float64(simTTL))
		}
		c.after(hold/2, c.use)
		c.after(hold, c.unlock)
	})
	c.renew()
}

// expired looks at the clock.
func (c *simCall) expired() bool {
	if c.failure == "" && c.now >= c.deadline {
		c.failure = fmt.Sprintf("%v: %v", fairlock.ErrLost, fairlock.ErrExpired)
	}
	return c.failure != ""
}

func (c *simCall) renew() {
	c.after(max((c.deadline-c.now)/3, int64(simTTL)/30), func() {
		if c.unlocked || c.expired() {
			return
		}
		sent := c.now
		c.send(c.astray, func() simAnswer { return c.on.renew(c) }, func(a simAnswer) {
			ended := c.unlocked || c.failure != ""
			switch {
			case !a.granted && !ended:
				c.failure = fmt.Sprintf("%v: %v", fairlock.ErrLost, fairlock.ErrTaken)
			case a.granted && !ended:
				c.deadline = max(c.deadline, sent+int64(simTTL-simMargin))
				fallthrough
			case a.granted:
				c.write(history.Event{Op: history.Renewed, Until: c.deadline})
			}
		}, func() {})
		c.renew()
	})
}

func (c *simCall) use() {
	if c.expired() {
		c.write(history.Event{Op: history.Lost, Err: c.failure})
		return
	}
	e := history.Event{Op: history.Used}
	if c.chance(0.5) {
		e.Until = c.deadline
	}
	c.write(e)
}

func (c *simCall) unlock() {
	c.write(history.Event{Op: history.Unlock})
	if c.expired() {
		c.soon(func() {
			c.write(history.Event{Op: history.Denied, Err: c.failure})
			c.next()
		})
		return
	}
	c.unlocked = true
	c.send(c.unknown, func() simAnswer { return c.on.release(c) }, func(a simAnswer) {
		e := history.Event{Op: history.Released}
		if !a.granted && !c.unsure {
			e = history.Event{Op: history.Denied, Err: fmt.Sprintf("%v: %v", fairlock.ErrLost, fairlock.ErrTaken)}
		}
		c.write(e)
		c.next()
	}, func() {
		c.write(history.Event{Op: history.Unknown, Err: "i/o timeout"})
		c.unsure = true
		if c.chance(0.5) {
			c.soon(c.unlock)
		} else {
			c.next()
		}
	})
}

// simAnswer is what the server says.
type simAnswer struct {
	granted bool // or renewed, or released
	joined  bool // it was put into the queue by this, or is in it
	ticket  uint64
	fence   uint64
}

// simLock is a lock in the server.
type simLock struct {
	*sim
	name     string
	owner    *simCall
	deadline int64
	queue    []*simCall
	fence    uint64
}

// nobody has what rests.
var nobody = &simCall{token: "nobody:resting"}

func (l *simLock) see(op history.Sight, c *simCall, ticket uint64, until int64) {
	l.run.Witness = append(l.run.Witness, history.Witness{
		At: l.now / us, Op: op, Lock: l.name, Token: c.token, Ticket: ticket, Until: until,
	})
}

func (l *simLock) expire() {
	if l.owner != nil && l.now >= l.deadline {
		l.owner = nil
	}
}

func (l *simLock) hold(d int64) {
	if l.now+d > l.deadline {
		l.deadline = l.now + d
		l.after(d+us, func() {
			l.expire()
			l.admit(nil)
		})
	}
}

func (l *simLock) grant(c *simCall, d int64) {
	l.fence = max(uint64(l.now/us), l.fence+1)
	l.owner, l.deadline = c, 0
	l.hold(d)
	l.see(history.Given, c, 0, 0)
}

func (l *simLock) leaveQueue(c *simCall) {
	l.queue = slices.DeleteFunc(l.queue, func(q *simCall) bool { return q == c })
	c.queued = false
}

func (l *simLock) admit(asker *simCall) {
	for l.owner == nil && len(l.queue) > 0 {
		head := l.queue[0]
		left := head.patience - l.now
		if head == asker {
			left = int64(simTTL)
		}
		l.leaveQueue(head)
		if left < ms {
			l.see(history.Dropped, head, 0, 0)
			continue
		}
		given := min(left, int64(simTTL))
		l.grant(head, given)
		fence := l.fence
		switch {
		case head == asker:
		case l.now >= head.silent && !l.chance(l.astray):
			head.after(l.wire(), func() { head.handed(fence, given) })
		default:
			beat := int64(simPatience) / 3
			l.run.Silences = append(l.run.Silences, history.Span{Process: head.number, From: l.now, To: l.now + beat})
		}
	}
}

func (l *simLock) join(c *simCall, ticket uint64) {
	c.queued = true
	at, _ := slices.BinarySearchFunc(l.queue, ticket, func(q *simCall, t uint64) int { return cmp.Compare(q.stood, t) })
	c.stood = ticket
	l.queue = slices.Insert(l.queue, at, c)
	l.see(history.Joins, c, ticket, 0)
}

func (l *simLock) heard(c *simCall) {
	c.patience = l.now + int64(simPatience)
	l.see(history.Heard, c, 0, c.patience/us)
}

func (l *simLock) acquire(c *simCall, ticket uint64) simAnswer {
	l.expire()
	if l.owner == c {
		l.hold(int64(simTTL))
		return simAnswer{granted: true, fence: l.fence}
	}
	if c.buried {
		return simAnswer{}
	}
	if ticket > 0 && l.owner == nil && l.fence == 0 {
		l.grant(nobody, int64(simTTL))
		l.fence = max(l.fence, ticket)
	}
	joined := false
	if ticket > 0 && !c.queued && l.owner == nil {
		l.join(c, ticket)
		joined = true
	}
	l.admit(c)
	if l.owner == nil && len(l.queue) == 0 {
		l.grant(c, int64(simTTL))
	}
	if l.owner == c {
		return simAnswer{granted: true, fence: l.fence}
	}
	if !c.queued {
		if ticket == 0 {
			ticket = max(uint64(l.now/us), l.fence+1)
			if n := len(l.queue); n > 0 {
				ticket = max(ticket, l.queue[n-1].stood+1)
			}
		}
		l.join(c, ticket)
		joined = true
	}
	l.heard(c)
	return simAnswer{joined: joined, ticket: c.stood, fence: l.fence}
}

func (l *simLock) beat(c *simCall) simAnswer {
	l.expire()
	if l.owner == c {
		return simAnswer{granted: true}
	}
	if c.queued {
		l.heard(c)
	}
	fence := l.fence
	l.admit(nil)
	return simAnswer{granted: l.owner == c, joined: c.queued, fence: fence}
}

func (l *simLock) renew(c *simCall) simAnswer {
	l.expire()
	if l.owner != c {
		return simAnswer{}
	}
	l.hold(int64(simTTL))
	return simAnswer{granted: true}
}

func (l *simLock) release(c *simCall) simAnswer {
	l.expire()
	mine := l.owner == c
	if mine {
		l.owner = nil
	}
	l.admit(nil)
	return simAnswer{granted: mine}
}

func (l *simLock) leave(c *simCall) simAnswer {
	if c.queued {
		l.leaveQueue(c)
		l.see(history.Leaves, c, 0, 0)
	}
	c.buried = true
	return l.release(c)
}
