// Package dispatch is the library's only way to Redis. It sends requests by the user's client, and watches them.
//
// # The problem
//
// A caller may end its wait at any time, a connection may hang, and thousands of goroutines may send requests at once.
// go-redis does not interrupt a command when its ctx is cancelled.
//
// The obvious way is to call go-redis on the caller's goroutine. It fails for three reasons. A cancelled Lock returns
// only after the client's ReadTimeout and its retries. Each of 10,000 callers takes a connection and a round trip of
// its own, so that renewals are late and leases are lost. A connection that a firewall has dropped costs its caller
// many seconds, although another connection would be answered at once.
//
// # The outline
//
// Send queues a request and waits for its reply or the end of ctx. In the second case it returns an *AbandonedError,
// and the request goes on. Goroutines of the Dispatcher, its senders, take batches from the queue. On a plain
// *redis.Client (plain) a batch is a pipeline of up to maxBatch requests. Other clients have several servers that
// should not wait for each other, so each request is sent alone. A lane bounds its batches in flight (senders) and its
// requests in flight (maxInFlight). The user's client and its hooks see every command once: alone with its caller's
// ctx, or in a pipeline without it. An idle sender (idle) waits for work, because its stack has grown already. With the
// system's clock, a sender lets the callers of a pipeline run first (yields), so that their next requests share one
// again.
//
// Urgent requests have a lane of their own while there are many others. In one queue with all others, renewals would
// wait behind thousands of Locks that begin at once. To put them first in that queue is not enough, because all replies
// of a pipeline come with its last one. While there are few requests, one queue makes larger pipelines.
//
// The batches in flight are all that can hang. Only look, which the one timer calls (timer, at), watches them:
//
//   - After 50 ms, another sender may take the place of one that waits for Redis, if requests are queued.
//   - After 500 ms, and then each second, a Cluster's slots are read again (slots, reloaded), as after a request
//     without a reply. go-redis itself does so only after a reply, or with a request after 10 s. Until then it sends
//     requests to a failed master.
//   - After 500 ms, a connection is made beside the pool if that has none (connect), to learn why it cannot be made.
//     Requests that their ctx ends name that. go-redis 9.23 reports it only after it has dialled five times, by default
//     after 2 s.
//   - After 1 s, a request that may be sent twice is queued again, before all others, because the connection may be
//     half-open. If that attempt hangs as well, it is queued again after 1, 2, 4, 8 and 16 s more, as the server may be
//     slow. The first outcome counts. A later reply is dropped; grants in it reach their waiters by notifications and
//     heartbeats. go-redis keeps the sender of a hanging batch until it gives up. So a batch whose requests are all
//     queued again does not count as in flight, up to a bound.
//   - After 2 s, a request without a reply counts as failed, and note is called.
//
// A lone request is sent inline, on its caller's goroutine. That saves two switches of goroutines, half the time of a
// round trip on loopback. It is sent so if go-redis obeys the deadline of its ctx (deadlines) and nothing is in flight
// or queued. Redis must have answered the last batch (answers) within the last second (answered). Otherwise the command
// may have to dial, or its idle connection may hang, and both are left to a sender. An inline request is in flight as
// others are. go-redis notices a cancellation only between its attempts. So a cancelled inline request returns when
// Redis replies, after the client's ReadTimeout, or at its deadline, whichever is first.
//
// A panic in a hook reaches the caller if the request is sent on its goroutine. On a sender it ends the process.
package dispatch

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/clock"
)

const (
	// overdue is how long a sender waits for Redis before another one may take its place. So no request waits behind a
	// hanging command while the pool has another connection.
	overdue = 50 * time.Millisecond
	// maxOverdue is how many senders of a lane may be replaced so. It bounds the batches in flight if all requests take
	// long. On a Cluster, the renewals that one hanging server does not answer must not hold up those of the others.
	// go-redis bounds the connections to each server.
	maxOverdue, maxOverdueOfCluster = 8, 200
	// maxRepeated is how many batches of a lane may be in flight besides those, if all their requests are queued again.
	maxRepeated = 8

	maxPipelines = 2   // of a lane
	maxPipelined = 256 // requests of a lane in its pipelines
	maxSingles   = 16  // requests of a lane that are sent alone

	// step is the time between two looks at a batch.
	step = 500 * time.Millisecond
	// repeatAfter is how many steps the first attempt of a request has, and maxRepeatAfter how many the last ones have.
	repeatAfter, maxRepeatAfter = int(time.Second / step), int(16 * time.Second / step)
	// failedAfter is the number of steps without a reply after which a request has failed.
	failedAfter = int(2 * time.Second / step)
	// reloadInterval is the least time between two reloads of a Cluster's slots.
	reloadInterval = time.Second
	// recently is how long ago the last reply may be for a request to be sent inline.
	recently = time.Second
)

// Dispatcher sends scripts to Redis. It is safe for concurrent use.
type Dispatcher struct {
	rdb         redis.Scripter
	plain       *redis.Client // rdb, if it pipelines; else nil
	slots       reloadable    // rdb, if it is of a Cluster; else nil
	clock       clock.Clock
	note        func(lock string, err error)
	deadlines   bool // a command ends at the deadline of its ctx
	yields      bool // a sender does, after a pipeline
	maxBatch    int  // requests that one sends at once
	maxInFlight int  // requests of a lane; beyond that, each sender in the place of an overdue one sends one
	maxOverdue  int  // senders of a lane

	evals   evals
	life    context.Context // ends with Close
	end     context.CancelFunc
	work    chan *batch    // to idle senders; holds one for each
	senders sync.WaitGroup // and inline requests

	connecting sync.Mutex // held while connect runs; before mu

	mu             sync.Mutex
	closed         bool        // guarded by mu
	urgent, others lane        // guarded by mu
	timer          clock.Timer // guarded by mu: calls look at that time; nil while nothing is in flight
	at             time.Time   // guarded by mu
	answers        bool        // guarded by mu: Redis has replied to the last batch in flight
	answered       time.Time   // guarded by mu: time of the last reply
	reloaded       time.Time   // guarded by mu: time of the last reload of the slots
	unconnected    error       // guarded by mu: why no connection can be made; nil if that is not known
	idle           int         // guarded by mu: senders that wait for work
}

// reloadable is a *redis.ClusterClient. It can read again, in the background, which master has which slots.
type reloadable interface{ ReloadState(ctx context.Context) }

// lane has the requests that are urgent, or the others. It is guarded by the Dispatcher's mu.
type lane struct {
	senders  int       // at most, that are not overdue
	waiting  list.List // of *request, not yet taken by a sender; a list, so that each can leave at once
	inFlight []*batch  // one for each sender at work, and for each inline request, the oldest first
}

// batch is what a sender sends at once, or an inline request.
type batch struct {
	lane     *lane
	requests []*request
	since    time.Time
	steps    int  // guarded by the Dispatcher's mu: how often look has looked at it
	current  int  // guarded by the Dispatcher's mu: number of its requests that are not queued again
	answers  bool // Redis has replied
}

// due returns when look looks at the batch next.
func (b *batch) due() time.Time { return b.since.Add(time.Duration(b.steps+1) * step) }

// request is a Request under way.
type request struct {
	Request

	ctx      context.Context
	lane     *lane
	element  *list.Element // in the lane's waiting; nil when a sender has taken it; guarded by the Dispatcher's mu
	attempts int           // guarded by the Dispatcher's mu
	latest   *batch        // attempt; nil while it is queued; guarded by the Dispatcher's mu

	done  atomic.Bool
	reply any // the outcome, once over is closed
	err   error
	over  chan struct{} // nil if it is inline
}

// finish sets the outcome, unless there is one.
func (r *request) finish(reply any, err error) {
	if r.over != nil && r.done.CompareAndSwap(false, true) {
		r.reply, r.err = reply, err
		close(r.over)
	}
}

// New returns a Dispatcher on rdb. It calls note with nil or the error when a request for a lock has ended, and with
// ErrNoReply when an attempt has had no reply for 2 s. It does not call note for a request that its ctx has ended. It
// starts no goroutine before the first request.
func New(rdb redis.Scripter, c clock.Clock, note func(lock string, err error)) *Dispatcher {
	d := &Dispatcher{
		rdb: rdb, clock: c, note: note, deadlines: obeysDeadlines(rdb, c), maxBatch: 1, maxInFlight: maxSingles,
		maxOverdue: maxOverdue,
	}
	_, d.yields = c.(clock.System) // in simulated time, runs would not repeat
	if d.slots, _ = rdb.(reloadable); d.slots != nil {
		d.maxOverdue = maxOverdueOfCluster
	}
	senders := maxSingles
	if plain, ok := rdb.(*redis.Client); ok {
		d.plain, d.maxBatch, d.maxInFlight = plain, maxPipelined, maxPipelined
		senders = maxPipelines
	}
	d.urgent.senders, d.others.senders = senders, senders
	d.work = make(chan *batch, 2*senders)
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// obeysDeadlines reports whether go-redis ends commands at the deadlines of their ctx. With another clock than the
// system's, they would be wrong.
func obeysDeadlines(rdb redis.Scripter, c clock.Clock) bool {
	if _, ok := c.(clock.System); !ok {
		return false
	}
	switch rdb := rdb.(type) {
	case *redis.Client: // also of Sentinel
		return rdb.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return rdb.Options().ContextTimeoutEnabled
	default:
		return false
	}
}

// Close refuses further requests and returns when those in flight have ended.
func (d *Dispatcher) Close() {
	d.end()
	d.mu.Lock()
	if !d.closed {
		d.closed, d.idle = true, 0
		close(d.work)
	}
	d.mu.Unlock()
	d.senders.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *Dispatcher) lanes() [2]*lane { return [...]*lane{&d.urgent, &d.others} }

// Requests returns how many requests have not ended: those that wait, and those in flight.
func (d *Dispatcher) Requests() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.urgent.requestsLocked() + d.others.requestsLocked()
}

// requestsLocked returns how many requests of the lane have not ended.
func (l *lane) requestsLocked() int {
	n := l.waiting.Len()
	for _, b := range l.inFlight {
		n += len(b.requests)
	}
	return n
}

// Send sends a request and returns when Redis has replied, or with an *AbandonedError when ctx has ended. An inline
// request returns when go-redis does, and is never abandoned.
func (d *Dispatcher) Send(ctx context.Context, r Request) (any, error) {
	return d.evals.send(r, func(r Request) (any, error) { return d.once(&request{Request: r, ctx: ctx}) })
}

// evals knows by which command scripts are sent to a server.
type evals struct{ lackReadOnly atomic.Bool }

// send calls once to send r by its hash, and by its text if the server does not have the script. So it is after SCRIPT
// FLUSH, a restart or a failover. After the first refusal of EVALSHA_RO it uses EVALSHA: servers before Redis 7 have no
// EVALSHA_RO, and a user may lack the right to it. If Redis refuses both, the error is that of EVALSHA_RO, which
// suffices.
func (e *evals) send(r Request, once func(Request) (any, error)) (any, error) {
	r.ReadOnly = r.ReadOnly && !e.lackReadOnly.Load()
	var refused error
	for {
		reply, err := once(r)
		switch {
		case r.ReadOnly && err != nil && noReadOnly.MatchString(err.Error()):
			refused, r.ReadOnly = err, false
		case !r.byText && strings.HasPrefix(ReplyIn(err), "NOSCRIPT"):
			r.written(-1) // the script was not run
			r.byText = true
		case refused != nil && redis.HasErrorPrefix(refused, "NOPERM") && redis.HasErrorPrefix(err, "NOPERM"):
			return nil, refused
		default:
			if refused != nil {
				e.lackReadOnly.Store(true)
			}
			if strings.Contains(ReplyIn(err), " -READONLY ") {
				_, _ = once(Request{Lock: r.Lock, Script: leaveReplica, Keys: []string{r.Keys[0] + ":absent"}, byText: true})
			}
			return reply, err
		}
	}
}

// leaveReplica makes go-redis close a connection to a replica, so that the next one leads to the new primary. Version
// 9.7 closes it after an error that begins with READONLY. In errors of scripts of Redis 6.2 and KeyDB, other words come
// first. The key does not exist, because the server may be a primary again.
var leaveReplica = NewScript(`local r = redis.pcall('DEL', KEYS[1])
return type(r) == 'table' and redis.error_reply(r.err:match('READONLY.*') or r.err) or r`)

// noReadOnly finds a refusal of EVALSHA_RO. Miniredis takes TIME for a command that writes.
var noReadOnly = regexp.MustCompile(`(?i)eval(sha)?_ro|in read-only scripts`)

// once sends a request by one command. If it hangs, the command is sent again.
func (d *Dispatcher) once(r *request) (any, error) {
	if b := d.alone(r); b != nil {
		return d.inline(r, b)
	}
	r.over = make(chan struct{})
	if !d.add(r) {
		return nil, ErrClosed
	}
	select {
	case <-r.over:
		if ended := r.ctx.Err(); ended == nil || !errors.Is(r.err, ended) {
			return r.reply, r.err
		}
	case <-r.ctx.Done():
	}
	return nil, d.withdraw(r)
}

func (d *Dispatcher) add(r *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	r.lane = &d.others
	if r.Urgent && r.lane.requestsLocked() > d.maxInFlight/2 {
		r.lane = &d.urgent
	}
	r.element = r.lane.waiting.PushBack(r)
	if b := d.takeLocked(r.lane); b != nil {
		d.startLocked(b)
	}
	return true
}

// withdraw ends a request that waits. It returns the error for the caller, whose ctx has ended.
func (d *Dispatcher) withdraw(r *request) *AbandonedError {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.element != nil {
		r.lane.waiting.Remove(r.element)
		r.element = nil
		r.finish(nil, nil)
	}
	return &AbandonedError{r.over, r.attempts > 0, d.unconnected}
}

// takeLocked returns the next batch of a lane, or nil if none is queued or the bounds do not allow it. The caller sends
// it.
func (d *Dispatcher) takeLocked(l *lane) *batch {
	if l.waiting.Len() == 0 {
		return nil
	}
	n, room, now := 0, d.maxInFlight, d.clock.Now()
	for _, b := range l.inFlight {
		room -= b.current
		n += min(b.current, 1)
	}
	if n >= l.senders+d.maxOverdue || len(l.inFlight) >= l.senders+d.maxOverdue+maxRepeated {
		return nil
	}
	if n >= l.senders || room <= 0 {
		if until := l.currentLocked(max(0, n-l.senders)).since.Add(overdue); until.After(now) { // too many are not overdue
			d.setTimerLocked(now, until)
			return nil
		}
		room = max(room, 1) // no full pipelines: Redis may be slow rather than hang
	}
	room = min(l.waiting.Len(), d.maxBatch, room)
	b := &batch{lane: l, requests: make([]*request, 0, room), since: now}
	for l.waiting.Len() > 0 && len(b.requests) < room {
		r := l.waiting.Remove(l.waiting.Front()).(*request)
		r.element = nil
		if !r.done.Load() { // Redis has not replied to an earlier attempt
			b.requests = append(b.requests, r)
			r.attempts++
			r.latest = b
		}
	}
	if len(b.requests) == 0 {
		return nil
	}
	d.flyLocked(b)
	return b
}

// flyLocked puts a batch in flight.
func (d *Dispatcher) flyLocked(b *batch) {
	b.current = len(b.requests)
	b.lane.inFlight = append(b.lane.inFlight, b)
	d.setTimerLocked(b.since, b.due())
}

// currentLocked returns the i-th batch that is not repeated.
func (l *lane) currentLocked(i int) (b *batch) {
	for _, b = range l.inFlight {
		if i -= min(b.current, 1); i < 0 {
			break
		}
	}
	return b
}

// setTimerLocked schedules a call of look, unless it will be called sooner.
func (d *Dispatcher) setTimerLocked(now, at time.Time) {
	if d.timer != nil {
		if !at.Before(d.at) {
			return
		}
		d.timer.Stop()
	}
	d.timer, d.at = d.clock.AfterFunc(at.Sub(now), d.look), at
}

// look does what is due for the batches in flight.
func (d *Dispatcher) look() {
	d.mu.Lock()
	if d.timer != nil { // it may have been replaced
		d.timer.Stop()
		d.timer = nil
	}
	now := d.clock.Now()
	var failed []string // the locks whose requests have failed
	hangs, first := false, false
	for _, l := range d.lanes() {
		var again []*request
		for _, b := range l.inFlight {
			for ; !b.due().After(now); b.steps++ {
				hangs, first = true, first || b.steps == 0
				failed, again = d.stepLocked(b, b.steps+1, failed, again)
			}
		}
		for _, r := range slices.Backward(again) {
			r.element = l.waiting.PushFront(r)
		}
		for b := d.takeLocked(l); b != nil; b = d.takeLocked(l) {
			d.startLocked(b)
		}
		for _, b := range l.inFlight {
			d.setTimerLocked(now, b.due())
		}
	}
	if hangs {
		d.senders.Add(1) // Close waits; one is at work
		defer d.senders.Done()
	}
	err := ErrNoReply
	if d.unconnected != nil {
		err = fmt.Errorf("%w: %w", err, d.unconnected)
	}
	d.mu.Unlock()
	if hangs {
		d.reload()
	}
	for _, lock := range failed {
		d.note(lock, err)
	}
	if first && d.plain != nil {
		d.senders.Go(d.connect)
	}
}

// connect learns why no connection can be made, unless there is one, or Redis replies meanwhile.
func (d *Dispatcher) connect() {
	if !d.connecting.TryLock() {
		return
	}
	defer d.connecting.Unlock()
	d.mu.Lock()
	answered := d.answered
	d.mu.Unlock()
	var err error
	if d.plain.PoolStats().TotalConns == 0 {
		var conn net.Conn
		options := d.plain.Options()
		if conn, err = options.Dialer(d.life, options.Network, options.Addr); err == nil {
			_ = conn.Close()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answered.Equal(answered) {
		d.unconnected = err
	}
}

// stepLocked does what is due for a batch after the given number of steps. It appends the locks of requests that have
// failed by now, and the requests to send again.
func (d *Dispatcher) stepLocked(b *batch, steps int, failed []string, again []*request) ([]string, []*request) {
	for _, r := range b.requests {
		if r.done.Load() || r.ctx.Err() != nil {
			continue
		}
		if steps == failedAfter {
			failed = append(failed, r.Lock)
		}
		limit := min(repeatAfter<<max(0, r.attempts-2), maxRepeatAfter)
		if r.Repeatable && r.over != nil && r.latest == b && steps >= limit {
			// A reader of the count after the reply finds both attempts in it, or takeLocked finds the reply.
			r.written(2)
			r.latest = nil
			b.current--
			again = append(again, r)
		}
	}
	return failed, again
}

// reload starts to read a Cluster's slots again, unless that was done less than a second ago.
func (d *Dispatcher) reload() {
	if d.slots == nil {
		return
	}
	d.mu.Lock()
	now := d.clock.Now()
	due := d.reloaded.IsZero() || now.Sub(d.reloaded) >= reloadInterval
	if due {
		d.reloaded = now
	}
	d.mu.Unlock()
	if due {
		d.slots.ReloadState(d.life)
	}
}

// startLocked passes a batch to an idle or a new sender.
func (d *Dispatcher) startLocked(b *batch) {
	if d.idle > 0 { // its stack has grown already
		d.idle--
		d.work <- b
		return
	}
	d.senders.Go(func() { d.run(b) })
}

// run is a sender. If a hook ends its goroutine, another goroutine goes on.
func (d *Dispatcher) run(b *batch) {
	defer func() {
		if b != nil {
			d.senders.Go(func() { d.run(d.next(b)) })
		}
	}()
	for b != nil {
		d.send(b)
		if len(b.requests) > 1 && d.yields {
			runtime.Gosched() // its callers are ready, and their next requests share a pipeline again
		}
		b = d.next(b)
	}
}

// next waits for the batch to send after b and returns it. It returns nil if enough senders are idle.
func (d *Dispatcher) next(b *batch) *batch {
	d.mu.Lock()
	d.landedLocked(b)
	b = d.takeLocked(b.lane)
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

// landedLocked removes a batch that is no longer in flight.
func (d *Dispatcher) landedLocked(b *batch) {
	b.lane.inFlight = slices.DeleteFunc(b.lane.inFlight, func(other *batch) bool { return other == b })
	if d.answers = b.answers; d.answers {
		d.answered, d.unconnected = d.clock.Now(), nil
	}
}

func (d *Dispatcher) send(b *batch) {
	cmds := make([]*redis.Cmd, len(b.requests))
	defer func() {
		for i, r := range b.requests {
			_, _ = r.finished(d, b, cmds[i])
		}
	}()
	if len(cmds) == 1 {
		cmds[0] = b.requests[0].call(b.requests[0].ctx, d.rdb)
		return
	}
	pipe := d.plain.Pipeline()
	queued := make([]*redis.Cmd, len(cmds))
	for i, r := range b.requests {
		queued[i] = r.call(r.ctx, pipe)
	}
	_, err := pipe.Exec(context.Background()) // each command has its own error
	for i, cmd := range queued {
		if err != nil && cmd.Err() == nil && cmd.Val() == nil {
			cmd.SetErr(err) // if Redis has refused the connection, none has one
		}
		cmds[i] = cmd
	}
}

// finished records the outcome of an attempt, and ends its request. Another attempt may be under way; the caller
// retries. cmd is nil if a hook has ended the goroutine.
func (r *request) finished(d *Dispatcher, b *batch, cmd *redis.Cmd) (any, error) {
	var reply any
	err := errEnded
	if cmd != nil {
		reply, err = cmd.Result()
	}
	if text := ReplyIn(err); d.plain != nil && (strings.HasPrefix(text, "MOVED ") || strings.HasPrefix(text, "ASK ")) {
		err = fmt.Errorf("%w: %w", ErrCluster, err)
	}
	b.answers = answered(err)
	if !b.answers {
		d.reload()
	}
	if b.answers || !r.done.Load() && r.ctx.Err() == nil {
		d.note(r.Lock, err)
	}
	r.finish(reply, err)
	return reply, err
}

// alone puts a request in flight to be sent inline. It returns nil if a sender must send it.
func (d *Dispatcher) alone(r *request) *batch {
	if _, ok := r.ctx.Deadline(); !ok || !d.deadlines {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// Nothing waits if nothing is in flight.
	now := d.clock.Now()
	if d.closed || !d.answers || now.Sub(d.answered) > recently || len(d.urgent.inFlight)+len(d.others.inFlight) > 0 {
		return nil
	}
	b := &batch{lane: &d.others, requests: []*request{r}, since: now}
	d.flyLocked(b)
	d.senders.Add(1)
	return b
}

// inline sends a request. It leaves nothing in flight, even if a hook panics or ends the goroutine. A sender takes the
// requests that have queued meanwhile. When the deadline of its ctx ends the request, ctx has ended before inline
// returns.
func (d *Dispatcher) inline(r *request, b *batch) (reply any, err error) {
	var cmd *redis.Cmd
	defer func() {
		if cmd != nil && !answered(cmd.Err()) {
			d.awaitDeadline(r.ctx)
		}
		reply, err = r.finished(d, b, cmd)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.landedLocked(b)
		if next := d.takeLocked(b.lane); next != nil {
			d.startLocked(next)
		}
		d.senders.Done()
	}()
	cmd = r.call(r.ctx, d.rdb)
	return reply, err
}

// awaitDeadline waits for the end of ctx if its deadline has passed. The timer of the connection may fire a moment
// before that of ctx, and the caller reads the reason from ctx. It does not rely on ctx, which may be a type of the
// user.
func (d *Dispatcher) awaitDeadline(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if !ok || d.clock.Now().Before(deadline) {
		return
	}
	enough := make(chan struct{})
	timer := d.clock.AfterFunc(overdue, func() { close(enough) })
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-enough:
	}
}
