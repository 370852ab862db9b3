package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// conversation is what a process sends and what it is told, as its Redis client sees it: the rules for clients that go by
// that are here. It also lets requests hang, or run twice.
type conversation struct {
	process *process

	twice atomic.Int64 // after how long its next acquire runs again; 0: not at all
	hangs atomic.Int64 // for how long each request hangs that is sent now; 0: not at all

	renewalHangs atomic.Int64 // for how long the next renewal hangs

	mu       sync.Mutex
	told     map[string]int64     // guarded by mu: by token: the TTL of the latest holder that a reply to its waiter named, ms
	returned map[string]bool      // guarded by mu: tokens of waiters that were sent with a ticket, or twice
	reported map[string]bool      // guarded by mu: tokens whose loss was reported
	learned  map[string]time.Time // guarded by mu: by token: when a reply last said that it does not hold the lock, by its clock
	waiting  map[string]waiting   // guarded by mu: by token: waiters that were told that they are queued
	missed   map[string]time.Time // guarded by mu: by the lock's first key: when a reply last said that it may have lost data
	over     map[string]bool      // guarded by mu: tokens whose waiters were granted the lock, or have left
	expected map[string]expected  // guarded by mu: by token
	overdue  []suspect            // guarded by mu: what was not sent in time
	leaving  map[string]time.Time // guarded by mu: by token: since when a waiter leaves that was queued, by its clock
}

// waiting is a waiter that is queued.
type waiting struct {
	key   string // the lock's first
	since time.Time
	asks  time.Time // by the process's clock: when it has to request the lock again, because that can help; 0: not known
}

// expected is a request that a client has to send at once because of what it was told.
type expected struct {
	since int64 // as Event.At
	verbs string
	what  string // what is wrong if it does not
}

func newConversation(p *process) *conversation {
	return &conversation{
		process: p, told: map[string]int64{}, returned: map[string]bool{}, reported: map[string]bool{}, learned: map[string]time.Time{},
		leaving: map[string]time.Time{}, waiting: map[string]waiting{}, missed: map[string]time.Time{}, over: map[string]bool{}, expected: map[string]expected{},
	}
}

// exchange is a request of a verb, and its reply, by words: what a nested reply has follows what is before it.
type exchange struct {
	verb  string
	key   string // the lock's first
	args  []string
	reply []string
}

// request reads a command.
func (c *conversation) request(cmd redis.Cmder) (e exchange) {
	args := cmd.Args()
	o := c.process.world.observer
	switch cmd.Name() {
	case "evalsha":
		e.verb = o.verbs[args[1].(string)]
	case "eval":
		e.verb = o.verbs[o.hashes[args[1].(string)]]
	}
	if e.verb != "" {
		e.key = fmt.Sprint(args[3])
		e.args = words(args[3+args[2].(int):])
	}
	return e
}

func words(values []any) (all []string) {
	for _, v := range values {
		if nested, ok := v.([]any); ok {
			all = append(all, words(nested)...)
			continue
		}
		all = append(all, strings.Fields(fmt.Sprint(v)+" ")...)
	}
	return all
}

// expect notes that a token has to be named at once by a request of one of these verbs. The caller holds mu.
func (c *conversation) expect(token, verbs, what string) {
	c.expected[token] = expected{c.process.world.now(), verbs, what}
}

// lost notes that a lease is lost that is trusted: that has to be reported, or a later lease of its token given back.
func (c *conversation) lost(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.expected[token]; !ok {
		c.expect(token, "acquire release", "its loss is not reported")
	}
}

// asksAfter notes after how many ms a waiter was told that another request can help; negative: it is not known. The caller
// holds mu.
func (c *conversation) asksAfter(token, told string) {
	w, waits := c.waiting[token]
	after := numbers(told)[0]
	if waits && after >= 0 {
		w.asks = c.process.clock.Now().Add(time.Duration(after) * time.Millisecond)
		c.waiting[token] = w
	}
}

// ended notes that a waiter was granted the lock, or has left.
func (c *conversation) ended(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, token)
	delete(c.expected, token)
	c.over[token] = true
}

// leaves notes that a waiter has to leave, if it is queued.
func (c *conversation) leaves(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, queued := c.waiting[token]; queued {
		c.leaving[token] = c.process.clock.Now()
	}
}

// checkLeft fails if a waiter has returned, and Redis was not told, though it may know of it.
func (c *conversation) checkLeft() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, since := range c.leaving {
		if c.process.clock.Now().Sub(since) < 11*time.Minute {
			c.process.world.fail("client: %s has given up leaving", token)
		}
	}
}

// hasReturned reports whether a token's waiter was sent with a ticket, or twice.
func (c *conversation) hasReturned(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.returned[token]
}

// sent applies the rules to a request.
func (c *conversation) sent(e exchange) {
	p := c.process
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, x := range c.expected {
		late := p.world.now()-x.since > int64(atOnce)
		if late { // its process may have become unreachable since
			c.overdue = append(c.overdue, suspect{token, x.since + int64(atOnce), x.what, 0})
		}
		if late || strings.Contains(x.verbs, e.verb) && slices.Contains(e.args, token) {
			delete(c.expected, token)
		}
	}
	for token, w := range c.waiting {
		latest := w.asks.Add(atOnce)
		late := !w.asks.IsZero() && p.clock.Now().After(latest)
		if late {
			c.overdue = append(c.overdue, suspect{token, p.until(latest), "it does not request the lock when that can help", 0})
		}
		if late || e.verb == "acquire" && token == e.args[1] {
			w.asks = time.Time{}
			c.waiting[token] = w
		}
	}
	if e.verb != "acquire" || e.args[4] == "0" {
		return
	}
	token, waits, lost := e.args[1], e.args[2] != "0", numbers(e.args[5])[0]
	if waits {
		c.returned[token] = true
		if lost > 0 && lost < c.told[token] {
			p.world.fail("client: at %v, %s asks for a quarantine of %d ms, and was told of a lease of %d ms",
				time.Duration(p.world.now()), token, lost, c.told[token])
		}
		return
	}
	if made, ok := p.byToken.Load(token); ok && !c.reported[token] { // a report without a reply is sent again, later
		if lease := made.(*call).lease.Load(); lease != nil && c.learned[token].Round(0).After(lease.Deadline().Round(0)) {
			p.world.fail("client: at %v, %s reports the loss of a lease that was over by the wall clock",
				time.Duration(p.world.now()), token)
		}
	}
	c.reported[token] = true
}

// answered notes what a process was told.
func (c *conversation) answered(e exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.verb == "renew" && e.reply[0] == "lost" || e.verb == "release" && e.reply[0] == "0" {
		c.learned[e.args[1]] = c.process.clock.Now()
	}
	if e.verb == "leave" && e.reply[0] != "error" {
		delete(c.leaving, e.args[1])
	}
	now := time.Now()
	switch {
	case e.verb == "acquire" && len(e.reply) > 4 && e.reply[0] == "queued":
		if _, ok := c.waiting[e.args[1]]; !ok && !c.over[e.args[1]] {
			c.waiting[e.args[1]] = waiting{key: e.key, since: now}
		}
		c.asksAfter(e.args[1], e.reply[3])
		if ttl := ttlOf(e.reply[4]) / 1000; ttl > 0 {
			c.told[e.args[1]] = ttl
		}
		if strings.Contains(e.reply[4], "quarantined") {
			c.missed[e.key] = now
		}
	case e.verb == "renew" && e.reply[0] == "lost" && e.reply[1] != "0":
		c.expect(e.args[1], "release", "a later lease of its token is not given back")
	case e.verb == "heartbeat" && e.reply[0] != "error":
		missed := false
		if first := slices.Index(e.reply, "queued"); first >= 0 {
			c.asksAfter(e.args[first+1], e.reply[0])
		}
		for i, state := range e.reply[1:] {
			_, ok := c.waiting[e.args[2+i]]
			missed = missed || ok && (state == "not_queued" || state == "holding")
		}
		if !missed {
			return
		}
		if last, ok := c.missed[e.key]; !ok || now.Sub(last) > 2*waiterTTL {
			for token, w := range c.waiting {
				if w.key == e.key && now.Sub(w.since) > time.Millisecond && !slices.Contains(e.args, token) {
					c.expect(token, "heartbeat acquire leave", "no heartbeat of it follows, though data may have been lost")
				}
			}
		}
		c.missed[e.key] = now
	}
}

// suspects returns what was not sent in time.
func (c *conversation) suspects() []suspect {
	c.sent(exchange{}) // what is late
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overdue
}

func (c *conversation) send(cmds []redis.Cmder, next func() error) error {
	requests := make([]exchange, len(cmds))
	for i, cmd := range cmds {
		requests[i] = c.request(cmd)
		if requests[i].verb != "" {
			c.sent(requests[i])
		}
	}
	d := time.Duration(c.hangs.Load())
	if slices.ContainsFunc(requests, func(r exchange) bool { return r.verb == "renew" }) {
		d = max(d, time.Duration(c.renewalHangs.Swap(0)))
	}
	if d > 0 && requests[0].verb != "" {
		for _, r := range requests {
			if r.verb == "renew" || r.verb == "acquire" && r.args[4] == "0" {
				continue
			}
			// A lease may end, and a heartbeat be missed, before it arrives. After a loss of data, a waiter with a ticket is
			// not queued until its acquire arrives.
			for _, arg := range r.args {
				c.process.world.observer.ignore(arg)
			}
		}
		c.process.pause(d)
	}
	err := next()
	for i, cmd := range cmds {
		if r := requests[i]; r.verb == "acquire" && r.args[4] == "0" && replyOf(cmd)[0] == "queued" { // the first of its waiter
			err = c.again(requests, next, err)
			break
		}
	}
	for i, cmd := range cmds {
		if requests[i].verb != "" {
			requests[i].reply = replyOf(cmd)
			c.answered(requests[i])
		}
	}
	return err
}

func replyOf(cmd redis.Cmder) []string {
	reply := cmd.(*redis.Cmd).Val()
	if cmd.Err() != nil || reply == nil {
		return []string{"error"}
	}
	return words([]any{reply})
}

// again sends an acquire that has queued a waiter again after a while, as go-redis does when the reply was lost. What the
// server sends meanwhile, such as notifications, arrives later still.
func (c *conversation) again(requests []exchange, next func() error, err error) error {
	p := c.process
	late := time.Duration(c.twice.Swap(0))
	if late == 0 || p.world.isEnding() {
		return err
	}
	p.world.away(p.number, 2*late+ttl)
	p.client.Link.Delay(0, late+2*ttl/5) // the next heartbeat is earlier
	p.pause(late)
	p.mend()
	c.mu.Lock()
	for _, r := range requests {
		if r.verb == "acquire" {
			c.returned[r.args[1]] = true
		}
	}
	c.mu.Unlock()
	return next()
}

func (c *conversation) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *conversation) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c.send([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (c *conversation) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.send(cmds, func() error { return next(ctx, cmds) })
	}
}
