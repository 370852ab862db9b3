// Package dispatch is the library's only way to Redis.
//
// go-redis does not interrupt a command when its ctx is cancelled. So the goroutines of a Dispatcher, its senders, send
// the commands, and a caller returns as soon as its ctx ends. The command that it abandons goes on, and still counts as
// in flight. A command that is alone is sent on its caller's goroutine, if the caller may be blocked (see inline.go).
//
// Commands that are waiting when a sender is ready go into one pipeline, on a plain *redis.Client. Other clients have
// servers that should not wait for each other: there each command is sent alone. The user's client and its hooks see
// every command once, alone with its caller's ctx, or in a pipeline, which cannot carry the ctx of each of its
// commands.
//
// Urgent commands have a lane of their own while there are many others. In one queue with all others, the renewals of a
// client wait behind thousands of Locks that begin at once, until leases are lost. To put them first in that queue is
// not enough: the reply to the first command of a pipeline comes with the last one. While there are few, one queue
// makes the larger pipelines.
//
// A command that has had no reply for a second may be on a connection that somebody on the way has forgotten, and
// go-redis waits for its ReadTimeout. If it may be sent twice, a copy goes out on another connection, and the first
// reply counts (see copies.go).
//
// A panic in a hook reaches the caller if the command is sent on its goroutine. On a sender it ends the process.
package dispatch

import (
	"container/list"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
)

const (
	// overdue is how long a sender waits for Redis until another one may take its place: nothing waits behind a
	// command that hangs while the pool has another connection.
	overdue = 50 * time.Millisecond
	// maxOverdue is how many senders of a lane may be replaced so. It bounds what is in flight, also where each takes
	// longer.
	maxOverdue = 8

	maxPipelines = 2   // of a lane
	maxPipelined = 256 // commands of a lane in its pipelines
	maxSingles   = 16  // commands of a lane that are sent alone
	maxCopies    = 4   // copies that are sent alone
)

// ErrClosed is the error of a command after Close.
var ErrClosed = errors.New("dispatcher is closed")

// errEnded is the error of a command whose sender has ended: a hook of the user's client has called runtime.Goexit.
var errEnded = errors.New("a hook of the Redis client has ended the goroutine")

// AbandonedError is the error of a command whose ctx ended before Redis had replied. Its text does not speak of ctx:
// the caller of a lock may not know that one, which ends with MaxWait, for example. It does not wrap the cause of that
// ctx, which may be any error: also what Redis has replied to another command.
type AbandonedError struct {
	Over <-chan struct{} // closed when the command has ended; until then Redis may still execute it
	sent bool
}

// Error says that there is no reply.
func (e *AbandonedError) Error() string { return "Redis did not reply" }

// Sent is false if the command was not sent, and will not be.
func (e *AbandonedError) Sent() bool { return e.sent }

// Dispatcher sends scripts to Redis. It is safe for concurrent use.
type Dispatcher struct {
	rdb         redis.Scripter
	plain       *redis.Client // rdb, if it pipelines; else nil
	clock       clock.Clock
	deadlines   bool // a command ends at the deadline of its ctx
	yields      bool // a sender does, after a pipeline
	maxBatch    int  // commands that one sends at once
	maxInFlight int  // commands of a lane; beyond that, each sender in the place of an overdue one sends one

	work    chan *batch    // to idle senders; holds one for each
	senders sync.WaitGroup // and inline commands

	mu             sync.Mutex
	closed         bool      // guarded by mu
	urgent, others lane      // guarded by mu
	copies         copies    // guarded by mu
	answers        bool      // guarded by mu: Redis has replied to what was last in flight
	answered       time.Time // guarded by mu: when it has replied last
	idle           int       // guarded by mu: senders that wait for work
}

// lane has the commands that are urgent, or the others, or copies. It is guarded by the Dispatcher's mu.
type lane struct {
	senders  int         // at most, that are not overdue
	overdue  int         // at most, that may be replaced
	waiting  list.List   // of *request, not yet taken by a sender; a list, so that each can leave at once
	inFlight []*batch    // one for each sender at work, and for each inline command, the oldest first
	timer    clock.Timer // calls check when a batch is overdue, while requests wait for that; may be nil
}

// batch is what a sender sends at once, or an inline command.
type batch struct {
	lane     *lane
	requests []*request // none for an inline command
	since    time.Time
	answers  bool // Redis has replied
	first    bool // and a copy was the first that it has replied to
}

// command is a script with its arguments, and the method that sends it.
type command struct {
	method func(r redis.Scripter, ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	ctx    context.Context
	script string
	keys   []string
	args   []any
}

func (c *command) send(r redis.Scripter) *redis.Cmd {
	return c.method(r, c.ctx, c.script, c.keys, c.args...)
}

// request is a command for a sender.
type request struct {
	command

	lane    *lane
	element *list.Element // in the lane's waiting, and nil when a sender has taken it; guarded by the Dispatcher's mu
	copies  int           // guarded by the Dispatcher's mu: that were made of it
	of      *request      // of which it is a copy; nil: it is none

	done atomic.Bool
	cmd  *redis.Cmd // the outcome, once over is closed; nil if its sender has ended
	over chan struct{}
}

// finish sets the outcome, unless there is one.
func (r *request) finish(cmd *redis.Cmd) bool {
	if !r.done.CompareAndSwap(false, true) {
		return false
	}
	r.cmd = cmd
	close(r.over)
	return true
}

// New returns a Dispatcher on rdb. It starts no goroutine before the first command.
func New(rdb redis.Scripter, c clock.Clock) *Dispatcher {
	d := &Dispatcher{rdb: rdb, clock: c, deadlines: obeysDeadlines(rdb, c), maxBatch: 1, maxInFlight: maxSingles}
	_, d.yields = c.(clock.System) // in simulated time, what Go's scheduler leaves to chance would not repeat
	senders, copies := maxSingles, maxCopies
	d.copies.overdue, d.copies.most = maxOverdue, maxCopies+maxOverdue
	if plain, ok := rdb.(*redis.Client); ok {
		d.plain, d.maxBatch, d.maxInFlight = plain, maxPipelined, maxPipelined
		senders, copies = maxPipelines, 1
		d.copies.overdue, d.copies.most = maxCopiesOfOne-1, maxCopiesOfOne
	}
	d.urgent.senders, d.urgent.overdue = senders, maxOverdue
	d.others.senders, d.others.overdue = senders, maxOverdue
	d.copies.senders, d.copies.off = copies, poolOfOne(rdb)
	d.work = make(chan *batch, 2*senders+copies)
	return d
}

// Close refuses further commands and returns when those in flight have ended.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	if !d.closed {
		d.closed, d.idle = true, 0
		close(d.work)
	}
	d.mu.Unlock()
	d.senders.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lanes() {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	if d.copies.timer != nil {
		d.copies.timer.Stop()
	}
}

// lanes returns those of commands that are no copies.
func (d *Dispatcher) lanes() [2]*lane { return [...]*lane{&d.urgent, &d.others} }

// Trait is a property of a command, a value in its ctx.
type Trait uint8

// The traits of commands.
const (
	Urgent     Trait = 1 << iota // it does not wait behind those that are not
	Repeatable                   // it may run twice for one request: it may be sent again if Redis does not reply
)

type traitsKey struct{}

// With returns a copy of ctx for a command that has these traits. A ctx that is derived from the copy has them too.
func With(ctx context.Context, traits Trait) context.Context {
	if b, ok := ctx.(blocking); ok {
		return blocking{With(b.Context, traits)}
	}
	return context.WithValue(ctx, traitsKey{}, traits|traitsOf(ctx))
}

func traitsOf(ctx context.Context) Trait {
	traits, _ := ctx.Value(traitsKey{}).(Trait)
	return traits
}

// EvalSha sends EVALSHA and returns when Redis has replied, or with an *AbandonedError when ctx has ended. An inline
// command (see Blocking) returns when go-redis does, and is never abandoned.
func (d *Dispatcher) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return d.do(command{redis.Scripter.EvalSha, ctx, sha, keys, args})
}

// Eval sends EVAL, as EvalSha does EVALSHA.
func (d *Dispatcher) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return d.do(command{redis.Scripter.Eval, ctx, script, keys, args})
}

// EvalShaRO sends EVALSHA_RO, as EvalSha does EVALSHA.
func (d *Dispatcher) EvalShaRO(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return d.do(command{redis.Scripter.EvalShaRO, ctx, sha, keys, args})
}

// EvalRO sends EVAL_RO, as EvalSha does EVALSHA.
func (d *Dispatcher) EvalRO(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return d.do(command{redis.Scripter.EvalRO, ctx, script, keys, args})
}

// Requests returns how many commands have not ended: those that wait, and those in flight.
func (d *Dispatcher) Requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.urgent.commands() + d.others.commands()
}

// commands returns how many commands of the lane have not ended. The caller holds the Dispatcher's mu.
func (l *lane) commands() int {
	n := l.waiting.Len()
	for _, b := range l.inFlight {
		n += max(len(b.requests), 1) // an inline command has none
	}
	return n
}

func (d *Dispatcher) do(c command) *redis.Cmd {
	if d.mayBlock(c.ctx) {
		if b := d.alone(); b != nil {
			return d.inline(c, b)
		}
	}
	r := &request{command: c, over: make(chan struct{})}
	if !d.add(r) {
		return failed(c.ctx, ErrClosed)
	}
	select {
	case <-r.over:
		if r.cmd == nil {
			return failed(c.ctx, errEnded)
		}
		return r.cmd
	case <-c.ctx.Done():
		return failed(c.ctx, &AbandonedError{r.over, !d.withdraw(r)})
	}
}

func failed(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

func (d *Dispatcher) add(r *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	r.lane = &d.others
	if traitsOf(r.ctx)&Urgent != 0 && r.lane.commands() > d.maxInFlight/2 {
		r.lane = &d.urgent
	}
	r.element = r.lane.waiting.PushBack(r)
	if b := d.take(r.lane); b != nil {
		d.start(b)
	}
	return true
}

// withdraw ends a request that no sender has taken, and reports whether it did.
func (d *Dispatcher) withdraw(r *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.element == nil {
		return false
	}
	r.lane.waiting.Remove(r.element)
	r.finish(nil)
	return true
}

// take returns the next batch of a lane; nil if nothing waits there, or the bounds do not allow it. The caller holds
// mu, and sends it.
func (d *Dispatcher) take(l *lane) *batch {
	n, room, now := len(l.inFlight), d.maxInFlight, d.clock.Now()
	if l.waiting.Len() == 0 || n >= l.senders+l.overdue {
		return nil
	}
	for _, b := range l.inFlight {
		room -= len(b.requests)
	}
	if n >= l.senders || room <= 0 {
		wait := l.inFlight[max(0, n-l.senders)].since.Add(overdue).Sub(now)
		if wait > 0 { // too many are not overdue
			if l.timer == nil {
				l.timer = d.clock.AfterFunc(wait, func() { d.check(l) })
			}
			return nil
		}
		room = max(room, 1) // no full pipelines: Redis may be slow rather than hang
	}
	room = min(l.waiting.Len(), d.maxBatch, room)
	b := &batch{lane: l, requests: make([]*request, 0, room), since: now}
	for l.waiting.Len() > 0 && len(b.requests) < room {
		r := l.waiting.Remove(l.waiting.Front()).(*request)
		r.element = nil
		if r.of != nil && r.of.done.Load() { // Redis has replied meanwhile
			r.finish(nil)
			continue
		}
		b.requests = append(b.requests, r)
	}
	if len(b.requests) == 0 {
		return nil
	}
	l.inFlight = append(l.inFlight, b)
	if l != &d.copies.lane {
		d.watch()
	}
	return b
}

// check starts another sender in the place of one that is overdue.
func (d *Dispatcher) check(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.timer = nil
	for b := d.take(l); b != nil; b = d.take(l) {
		d.start(b)
	}
}

// start has a sender send a batch. The caller holds mu.
func (d *Dispatcher) start(b *batch) {
	if d.idle > 0 { // its stack has grown already, which a new goroutine's would have to
		d.idle--
		d.work <- b
		return
	}
	d.senders.Go(func() { d.run(b) })
}

// run is a sender. If a hook ends its goroutine, another one goes on.
func (d *Dispatcher) run(b *batch) {
	defer func() {
		if b != nil {
			d.senders.Go(func() { d.run(d.next(b)) })
		}
	}()
	for b != nil {
		d.send(b)
		if len(b.requests) > 1 && d.yields {
			runtime.Gosched() // its callers are ready: their next commands go into one pipeline, too
		}
		b = d.next(b)
	}
}

// next returns what a sender is to send after b, and waits for it. It returns nil if enough senders are idle.
func (d *Dispatcher) next(b *batch) *batch {
	d.mu.Lock()
	d.ended(b)
	b = d.take(b.lane)
	idle := b == nil && !d.closed && d.idle < cap(d.work)
	if idle {
		d.idle++
	}
	d.mu.Unlock()
	if idle {
		b = <-d.work
	}
	return b
}

// ended removes what is not in flight any more. The caller holds mu.
func (d *Dispatcher) ended(b *batch) {
	l, now := b.lane, d.clock.Now()
	i := slices.Index(l.inFlight, b)
	l.inFlight = slices.Delete(l.inFlight, i, i+1)
	if d.answers = b.answers; d.answers {
		d.answered = now
	}
	d.learn(b, now)
}

// answered reports whether Redis has replied.
func answered(cmd *redis.Cmd) bool {
	var reply redis.Error
	return cmd != nil && (cmd.Err() == nil || errors.As(cmd.Err(), &reply))
}

func (d *Dispatcher) send(b *batch) {
	cmds := make([]*redis.Cmd, len(b.requests))
	defer func() {
		b.answers = answered(cmds[len(cmds)-1])
		for i, r := range b.requests {
			if r.of != nil && answered(cmds[i]) && r.of.finish(cmds[i]) {
				b.first = true
			}
			r.finish(cmds[i])
		}
	}()
	if len(cmds) == 1 {
		cmds[0] = b.requests[0].send(d.rdb)
		return
	}
	pipe := d.plain.Pipeline()
	queued := make([]*redis.Cmd, len(cmds))
	for i, r := range b.requests {
		queued[i] = r.send(pipe)
	}
	_, err := pipe.Exec(context.Background()) // each command has its own error
	for i, cmd := range queued {
		if err != nil && cmd.Err() == nil && cmd.Val() == nil {
			cmd.SetErr(err) // or none has one, if Redis has refused the connection
		}
		cmds[i] = cmd
	}
}
