package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/machine"
)

const (
	longestHold = 30 * time.Millisecond

	fenceTTL      = 20 * time.Minute // of some clients; not the default
	otherFenceTTL = 15 * time.Minute // of others

	longTTL = 5 * time.Second // of some leases
)

// target is a lock that workers contend for.
type target struct {
	name    string
	kind    string // as script.Of has it
	permits int    // that tokens say; 0: a mutex
	others  int    // that the tokens of some requests say instead; 0: there is one number
}

// targetsOf are the targets of a run whose semaphores have the given number of permits.
func targetsOf(permits int) []target {
	return []target{
		{"mutex", "mutex", 0, 0}, {"other", "mutex", 0, 0}, {"semaphore", "semaphore", permits, permits + 2},
		{"rwmutex", "rwmutex", 1 << 30, 0}, {"keyed", "keyed", permits, permits + 2},
	}
}

// terms are those of a token that requests one permit, for no worker.
func (t target) terms() tokens.Terms {
	terms := tokens.Terms{TTL: ttl, Weight: 1, Permits: t.permits}
	if t.kind == "keyed" {
		terms.Key, terms.Share = keyName(0), 1
	}
	return terms
}

// keyName is the name of a key of the keyed semaphore.
func keyName(n int) string { return fmt.Sprint("tenant ", n) }

// process is one client with its workers. What it does after a crash is not recorded.
type process struct {
	world  *world
	number int
	slot   int
	client *fairlocktest.Client
	talk   *conversation
	leased *balance
	clock  machine.Clock
	rate   float64 // of clock

	busy       atomic.Bool  // its workers hold what they hold until their leases end
	leases     atomic.Int32 // that its workers hold
	longLeases atomic.Int32 // of them, those with longTTL
	// leases that another process has resumed: the history would not know how they end if this one crashed
	lent atomic.Int32

	workers sync.WaitGroup
	end     chan struct{} // closed when workers are to end

	byGoroutine sync.Map // goroutine → *call: calls of Lock
	byToken     sync.Map // token → *call

	mu          sync.Mutex
	crashed     bool      // guarded by mu
	paused      bool      // guarded by mu: at some time so far
	haltedUntil time.Time // guarded by mu: until when it is suspended or paused
	endedAt     int64     // guarded by mu: when it crashed, or began to close its client
	ended       bool      // guarded by mu: end is closed
	calls       int       // guarded by mu: so far
	closed      sync.Once
}

func (p *process) name() string { return fmt.Sprint("c", p.number) }

// call is one acquisition.
type call struct {
	process *process
	worker  int
	number  int
	began   time.Time
	lock    string
	weight  int
	permits int           // that its token says
	key     string        // of the keyed semaphore
	limit   int           // of the key; 0: it has none
	share   int           // of the key
	long    bool          // its lease has longTTL
	length  time.Duration // its TTL
	minHold time.Duration // 0: it has none
	lease   atomic.Pointer[fairlock.Lease]
	renewed atomic.Pointer[time.Time] // the deadline after its latest renewal, by any of its leases
	resumed atomic.Bool               // it has several leases, each with a token of its own
	gaveUp  atomic.Bool               // a Resume has given up: Redis may have taken the lease over all the same
	other   atomic.Pointer[process]   // which has its lease now; nil if that is its own

	unlocking atomic.Bool // its holder has called Unlock

	// Of the worker's goroutine.
	token   string // of its first lease, by which package history knows it
	ticket  uint64
	handoff bool // it was granted the lock by a notification
	traced  outcome
}

// margin is the part of its TTL that is not relied on.
func (c *call) margin() time.Duration { return c.length/100 + 2*time.Millisecond }

// fail notes a violation, unless a process of the call has crashed, or was paused during the call.
func (c *call) fail(format string, args ...any) {
	p, excused := c.process, false
	for _, q := range []*process{p, c.other.Load()} {
		if q != nil {
			q.mu.Lock()
			excused = excused || q.crashed || q.paused && q.haltedUntil.After(c.began)
			q.mu.Unlock()
		}
	}
	if !excused {
		p.world.fail("client %d worker %d call %d: at %v, %s",
			p.number, c.worker, c.number, time.Duration(p.world.now()), fmt.Sprintf(format, args...))
	}
}

func (c *call) record(e history.Event) {
	p := c.process
	p.mu.Lock()
	crashed := p.crashed
	p.mu.Unlock()
	if crashed {
		return
	}
	e.Process, e.Worker, e.Call, e.Lock, e.Weight = p.number, c.worker, c.number, c.lock, c.weight
	e.Token = c.token
	p.world.record(e)
}

// ended notes that Granted or Left was called, and what it says.
func (c *call) ended(queued bool) {
	c.traced.ended++
	if queued != (c.traced.queued > 0) {
		c.process.world.fail("trace: a call has %d Queued, and its end says %v", c.traced.queued, queued)
	}
}

// trace records what Lock does not return.
func (p *process) trace() *fairlock.Trace {
	current := func() *call { // nil: of a Resume
		c, _ := p.byGoroutine.Load(goroutine())
		if c == nil || c.(*call).lease.Load() != nil {
			return nil
		}
		return c.(*call)
	}
	return &fairlock.Trace{
		Queued: func(i fairlock.QueuedInfo) {
			c := current()
			c.token, c.ticket = i.Token.Text(), i.Ticket
			c.traced.queued++
			c.record(history.Event{Op: history.Queued, Ticket: i.Ticket})
		},
		Granted: func(i fairlock.GrantedInfo) {
			c := current()
			if c == nil {
				p.talk.ended(i.Token.Text())
				return
			}
			c.token, c.ticket, c.handoff = i.Token.Text(), i.Ticket, i.Handoff
			c.ended(i.Ticket != 0)
			p.byToken.Store(c.token, c)
			if c.minHold > 0 {
				p.world.observer.begins(c.token, c.minHold, i.Fence, c.handoff)
			}
			if p.talk.ended(c.token); c.handoff && !p.talk.trusts(c.token, i.Fence) {
				c.fail("a notification is trusted, and its fence %d is not above the last number that its waiter knows", i.Fence)
			}
		},
		Abandoned: func(i fairlock.AbandonedInfo) { // also one that was queued, and got no reply
			if c := current(); c != nil {
				c.ended(i.Ticket != 0)
				c.token = i.Token.Text()
			}
			p.talk.leaves(i.Token.Text())
			p.talk.ended(i.Token.Text())
		},
		Ended: func(i fairlock.EndedInfo) {
			// If Redis has not said that a lease is lost, it may still hold the lock for nobody.
			lost := errors.Is(i.Err, fairlock.ErrLost) && !errors.Is(i.Err, fairlock.ErrRevoked)
			if made, ok := p.byToken.Load(i.Token.Text()); ok && lost {
				c := made.(*call)
				if lease := c.lease.Load(); lease != nil && lease.Token() == i.Token && !c.unlocking.Load() {
					p.talk.lost(i.Token.Text(), lease.Deadline().Add(c.margin()))
				}
			}
		},
		Renewed: func(i fairlock.RenewedInfo) {
			if c, ok := p.byToken.Load(i.Token.Text()); ok && i.Err == nil {
				c := c.(*call)
				c.record(history.Event{Op: history.Renewed, Until: p.until(i.Deadline)})
				if earlier := c.renewed.Swap(&i.Deadline); earlier != nil && i.Deadline.Before(*earlier) && !c.resumed.Load() {
					c.fail("a renewal has shortened the lease by %v", earlier.Sub(i.Deadline))
				}
			}
		},
	}
}

// goroutine returns the number of the calling goroutine.
func goroutine() string {
	var buffer [40]byte
	return string(bytes.Fields(buffer[:runtime.Stack(buffer[:], false)])[1])
}

// until is the time of an Event for a time of the process's clock that is to come.
func (p *process) until(local time.Time) int64 {
	return p.world.now() + int64(float64(local.Sub(p.clock.Now()))/p.rate)
}

// work is what a worker does until the process is to end.
func (p *process) work(worker int) {
	random := p.world.random(fmt.Sprintf("process %d worker %d", p.number, worker))
	for p.sleep(exponential(random, 30*time.Millisecond)) {
		p.acquire(worker, random)
	}
}

// sleep sleeps by the process's clock, and returns false if the process is to end.
func (p *process) sleep(d time.Duration) bool {
	over := make(chan struct{})
	timer := p.clock.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	select {
	case <-over:
	case <-p.end:
		return false
	}
	select {
	case <-p.end:
		return false
	default:
		return true
	}
}

func (p *process) newCall(worker int, lock string) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	return &call{process: p, worker: worker, number: p.calls, began: time.Now(), lock: lock}
}

// draw draws what a call requests.
func (c *call) draw(t target, m mix, random *rand.Rand) {
	c.weight, c.permits = 1, t.permits
	if t.others > 0 && one(random, m.smaller) {
		c.permits = t.others
	}
	switch {
	case t.kind == "semaphore":
		c.weight = 1 + random.IntN(c.permits)
	case t.kind == "rwmutex" && random.IntN(3) == 0:
		c.weight = c.permits
	case t.kind == "keyed":
		keys := c.process.world.cfg.Keys
		c.key, c.share = keyName(random.IntN(1+random.IntN(keys))), 1 // the first ones more often
		if one(random, m.keyLimits) {
			c.limit = 1 + random.IntN(3)
		}
		if one(random, m.shares) {
			c.share = 1 + random.IntN(3)
		}
		if random.IntN(3) == 0 {
			c.weight = 1 + random.IntN(min(c.permits, cmp.Or(c.limit, c.permits)))
		}
	}
}

// acquire acquires a lock, uses it, and releases it.
func (p *process) acquire(worker int, random *rand.Rand) {
	m := p.world.mix
	t := m.locks[random.IntN(len(m.locks))]
	c := p.newCall(worker, t.name)
	c.draw(t, m, random)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, deadline := history.Event{Op: history.Request, Permits: c.permits, Key: c.key, KeyLimit: c.limit}, time.Time{}
	if one(random, m.limits) {
		timeout := upTo(random, 2*waiterTTL)
		if random.IntN(2) == 0 {
			timeout = upTo(random, 10*time.Millisecond) // perhaps while a request is in flight
		}
		deadline = p.clock.Now().Add(timeout)
		request.Until = p.until(deadline)
		timer := p.clock.AfterFunc(timeout, cancel)
		defer timer.Stop()
	}
	try := one(random, m.tries)
	id := goroutine()
	p.byGoroutine.Store(id, c)
	defer p.byGoroutine.Delete(id)
	c.length = ttl
	if c.long = one(random, map[bool]int{true: 2, false: m.long}[try]); c.long {
		c.length = longTTL
	}
	if one(random, m.minHolds) && !p.world.isEnding() && t.name != "rwmutex" {
		c.minHold = upTo(random, []time.Duration{ttl / 10, ttl / 5, longestMinHold}[random.IntN(3)])
	}
	request.TTL = max(c.length, c.minHold) // which its lease can last
	c.record(request)
	lease, err := p.lock(ctx, c, try)
	c.traced.check(p.world, err)
	if err != nil {
		c.record(history.Event{Op: history.Failed, Err: err.Error()})
		if !deadline.IsZero() && p.clock.Now().After(deadline.Add(grain)) {
			c.fail("Lock has returned %v after its deadline", p.clock.Now().Sub(deadline))
		}
		return
	}
	c.token = lease.Token().Text()
	c.lease.Store(lease)
	c.record(history.Event{
		Op: history.Granted, Fence: lease.Fence(), Ticket: c.ticket, Until: p.until(lease.Deadline()),
	})
	if left := lease.Deadline().Sub(p.clock.Now()); c.handoff && left < ttl/6 {
		c.fail("a handoff is used for the last %v", left)
	}
	defer p.holds(c.long || c.minHold > ttl)()
	p.use(c, lease, random)
}

// holds notes that a worker holds a lease, perhaps for longer than ttl, until what it returns is called.
func (p *process) holds(long bool) (over func()) {
	n := map[bool]int32{true: 1}[long]
	p.leases.Add(1)
	p.longLeases.Add(n)
	return func() {
		p.leases.Add(-1)
		p.longLeases.Add(-n)
	}
}

func (p *process) lock(ctx context.Context, c *call, try bool) (*fairlock.Lease, error) {
	switch m := p.client.RWMutex(c.lock, fairlock.WithTTL(c.length)); {
	case c.lock == "semaphore" && try:
		return p.semaphore(c, c.length).TryAcquire(ctx, c.weight)
	case c.lock == "semaphore":
		return p.semaphore(c, c.length).Acquire(ctx, c.weight)
	case c.lock == "keyed" && try:
		return p.keyed(c, c.length).TryAcquire(ctx, c.weight)
	case c.lock == "keyed":
		return p.keyed(c, c.length).Acquire(ctx, c.weight)
	case c.lock != "rwmutex" && try:
		return p.mutex(c, c.length).TryLock(ctx)
	case c.lock != "rwmutex":
		return p.mutex(c, c.length).Lock(ctx)
	case c.weight > 1 && try:
		return m.TryLock(ctx)
	case c.weight > 1:
		return m.Lock(ctx)
	case try:
		return m.TryRLock(ctx)
	default:
		return m.RLock(ctx)
	}
}

// mutex and semaphore are those of a call.
func (p *process) mutex(c *call, ttl time.Duration) fairlock.Mutex {
	return p.client.Mutex(c.lock, fairlock.WithTTL(ttl), fairlock.WithMinHold(c.minHold))
}

func (p *process) semaphore(c *call, ttl time.Duration) fairlock.Semaphore {
	return p.client.Semaphore(c.lock, c.permits, fairlock.WithTTL(ttl), fairlock.WithMinHold(c.minHold))
}

func (p *process) keyed(c *call, ttl time.Duration) fairlock.Semaphore {
	return p.allKeys(c, ttl).Key(c.key, fairlock.WithKeyLimit(c.limit), fairlock.WithShare(c.share))
}

func (p *process) allKeys(c *call, ttl time.Duration) fairlock.KeyedSemaphore {
	return p.client.KeyedSemaphore(c.lock, c.permits, fairlock.WithTTL(ttl), fairlock.WithMinHold(c.minHold))
}

// use holds the lock for a while, in rare cases for longer than its TTL, and releases it.
func (p *process) use(c *call, lease *fairlock.Lease, random *rand.Rand) {
	hold := upTo(random, longestHold)
	if (random.IntN(50) == 0 || c.minHold > 0 && random.IntN(3) == 0) && !p.world.isEnding() {
		hold = upTo(random, 2*ttl)
	}
	for range 3 {
		if lease.Err() != nil {
			c.record(history.Event{Op: history.Lost, Err: lease.Err().Error()})
			break
		}
		c.record(history.Event{Op: history.Used})
		p.waitOn(c, lease, hold/3)
	}
	if p.busy.Load() && !c.long {
		p.waitOn(c, lease, 2*ttl)
	}
	if random.IntN(5) == 0 {
		_ = lease.Renew(context.Background()) // it ends with the lease
	}
	if random.IntN(map[bool]int{true: 4, false: 20}[c.minHold > 0]) == 0 && lease.Err() == nil && !c.long {
		again, q, over := p.resume(c, lease, random)
		defer over()
		defer func(p *process, lease *fairlock.Lease) {
			p.talk.unlocks(lease.Token().Text())   // it may have been lost before
			_ = lease.Unlock(context.Background()) // it only ends its renewal
		}(p, lease)
		lease, p = again, q
	}
	for range 3 {
		c.record(history.Event{Op: history.Unlock})
		c.unlocking.Store(true)
		began := p.clock.Now()
		p.talk.unlocks(lease.Token().Text())
		err := lease.Unlock(context.Background())
		switch {
		case err == nil:
			c.record(history.Event{Op: history.Released})
			return
		case errors.Is(err, fairlock.ErrLost) && !c.gaveUp.Load():
			c.record(history.Event{Op: history.NotHeld, Err: err.Error()})
			return
		}
		c.record(history.Event{Op: history.Ambiguous, Err: err.Error()})
		// and could not be resumed, or Redis has done it all the same
		if errors.Is(err, fairlock.ErrDetached) || c.gaveUp.Load() {
			return
		}
		now := p.clock.Now()
		if left := lease.Deadline().Sub(now); left > 0 && now.Sub(began) < c.length-grain &&
			!errors.Is(err, fairlock.ErrClosed) {
			c.fail("Unlock has given up %v before the lease ends", left)
		}
	}
}

// resume resumes the lease by its handle, in this or another process, and uses it. It returns the lease to unlock, and
// the process that holds it until over is called. It is the same acquisition: it is trusted until the later of the two
// deadlines. The minimum hold goes on only if the one that resumes has one.
func (p *process) resume(c *call, lease *fairlock.Lease, random *rand.Rand) (again *fairlock.Lease, q *process,
	over func()) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer p.clock.AfterFunc(ttl, cancel).Stop()
	c.resumed.Store(true)
	q, over = p, func() {}
	if random.IntN(2) == 0 {
		q = p.world.any(random)
	}
	if q != p {
		c.other.Store(q)
		ends := q.holds(true) // when its machine is suspended, it would trust the lease for too long
		p.lent.Add(1)
		over = func() {
			ends()
			p.lent.Add(-1)
		}
		p.world.observer.ignore(lease.Token().Text()) // nobody renews it
		p.talk.detaches(lease.Token().Text())
		_, _ = lease.Detach() // it may have been lost meanwhile
	}
	if random.IntN(2) == 0 {
		c.minHold = 0
	}
	length := []time.Duration{ttl, longTTL}[random.IntN(2)]
	again, err := q.resumes(c, length).Resume(ctx, lease.Handle())
	if err != nil {
		c.gaveUp.Store(!errors.Is(err, fairlock.ErrRevoked))
		return lease, p, over
	}
	if c.minHold > 0 {
		p.world.observer.begins(again.Token().Text(), c.minHold, again.Fence(), false)
	}
	q.byToken.Store(again.Token().Text(), c)
	c.record(history.Event{Op: history.Renewed, Until: q.until(again.Deadline())})
	q.waitOn(c, again, upTo(random, longestHold))
	if p.busy.Load() {
		q.waitOn(c, again, 2*ttl)
	}
	if again.Err() == nil {
		c.record(history.Event{Op: history.Used})
	}
	return again, q, over
}

// resumes is the lock of a call, for Resume with that TTL.
func (p *process) resumes(c *call, ttl time.Duration) anyLock {
	switch c.lock {
	case "semaphore":
		return p.semaphore(c, ttl)
	case "rwmutex":
		return p.client.RWMutex(c.lock, fairlock.WithTTL(ttl))
	case "keyed":
		return p.allKeys(c, ttl)
	default:
		return p.mutex(c, ttl)
	}
}

// anyLock is what all kinds of locks have.
type anyLock interface {
	Resume(ctx context.Context, h fairlock.Handle) (*fairlock.Lease, error)
}

// pause sleeps by the process's clock, even when the process is to end.
func (p *process) pause(d time.Duration) { sleep(p.clock, d) }

// waitOn sleeps as pause does, or until the lease ends.
func (p *process) waitOn(c *call, lease *fairlock.Lease, d time.Duration) {
	over := make(chan struct{})
	defer p.clock.AfterFunc(d, func() { close(over) }).Stop()
	select {
	case <-over:
	case <-lease.Done():
		if late := p.clock.Now().Sub(lease.Deadline()); late > grain {
			c.fail("a lease has ended %v after its deadline", late)
		}
	}
}

// finish ends the workers after their present turns.
func (p *process) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended = true
		close(p.end)
	}
}

// waitUntil waits for the workers until a deadline, and reports if it has passed.
func (p *process) waitUntil(deadline time.Time, report func(string)) {
	done, late := make(chan struct{}), make(chan struct{})
	go func() {
		p.workers.Wait()
		close(done)
	}()
	defer p.world.clock.AfterFunc(time.Until(deadline), func() { close(late) }).Stop()
	select {
	case <-done:
		return
	case <-late:
	}
	report(fmt.Sprintf("a worker of client %d has not ended %v after the last fault", p.number, p.world.grantedWithin()))
}

// crash ends the process without a goodbye: its connections break, its timers stop.
func (p *process) crash() {
	p.client.Link.Cut()
	p.finish()
	p.close()
}

// close closes the client and waits for its workers.
func (p *process) close() {
	p.closed.Do(func() {
		p.mu.Lock()
		p.endedAt = cmp.Or(p.endedAt, p.world.now())
		p.mu.Unlock()
		_ = p.client.Close()
		p.workers.Wait()
	})
}
