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

	"github.com/fairlock/fairlock-go/internal/tools/rules"
)

// conversation has the requests and replies of a process, as its Redis client sees them, and the rules about them. It
// also lets requests hang, or run twice.
type conversation struct {
	process *process

	twice atomic.Int64 // after how long its next acquire runs again; 0: not at all
	hangs atomic.Int64 // how long each request hangs that is sent now; 0: not at all

	renewalHangs atomic.Int64 // how long the next renewal hangs

	mu sync.Mutex
	// guarded by mu: by token: when a waiter that was told that it is queued has to request the lock again, because that
	// can help, by its clock; zero: that is not known, or a Resume has sent the token
	waiting map[string]time.Time
	latest  map[string]queuedAt // guarded by mu: by token: the latest request that found it queued
	over    map[string]bool     // guarded by mu: tokens whose waiters were granted the lock, or have left
	// guarded by mu: tokens of leases that were unlocked or detached: a renewal may be under way
	done     map[string]bool
	expected map[string]expected  // guarded by mu: by token
	overdue  []suspect            // guarded by mu: what was not sent in time
	leaving  map[string]time.Time // guarded by mu: by token: since when a waiter leaves that was queued, by its clock
	// guarded by mu: by token: until when its holder keeps a lost lease to stop, by its clock
	kept map[string]time.Time
}

// queuedAt is a request that found a waiter queued: when it was sent, and the lock's last number then.
type queuedAt struct {
	sent int64 // as Event.At
	last uint64
}

// expected is a request that a client has to send because of what happened.
type expected struct {
	by    int64 // as Event.At
	verbs string
	what  string // what is wrong if it does not
}

func newConversation(p *process) *conversation {
	return &conversation{
		process: p, waiting: map[string]time.Time{}, latest: map[string]queuedAt{},
		over: map[string]bool{}, done: map[string]bool{}, expected: map[string]expected{}, leaving: map[string]time.Time{},
		kept: map[string]time.Time{},
	}
}

// exchange is a request of a verb, and its reply, by words: what a nested reply has follows what is before it.
type exchange struct {
	verb  string
	args  []string
	reply []string
	sent  int64 // as Event.At
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
		for _, arg := range args[3+args[2].(int):] {
			e.args = append(e.args, fmt.Sprint(arg)) // one may be empty
		}
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

// expectLocked notes that a token has to be named by a request of one of these verbs, at once or after a while.
func (c *conversation) expectLocked(token string, after time.Duration, verbs, what string) {
	c.expected[token] = expected{c.process.world.now() + int64(after+atOnce), verbs, what}
}

// lost notes that a lease was lost here, at its deadline. A release or leave is sent when its safety margin is over,
// and not before: a renewal of it may still arrive.
func (c *conversation) lost(token string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[token] = until
	c.expectLocked(token, time.Duration(max(c.process.until(until)-c.process.world.now(), 0)), "release leave",
		"a lease that was lost here is not given back")
}

// unlocks notes that the holder of a lease calls Unlock.
func (c *conversation) unlocks(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, token)
	c.done[token] = true
}

// detaches notes that a lease ends here, and continues elsewhere.
func (c *conversation) detaches(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[token] = true
	delete(c.expected, token)
}

// trusts reports whether a fence is above the last number that the latest request found that found its waiter queued.
func (c *conversation) trusts(token string, fence uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fence > c.latest[token].last
}

// asksAfterLocked records when another request of a waiter can help, as a reply has told it in ms. A negative time is
// unknown. It keeps the earlier of two such times.
func (c *conversation) asksAfterLocked(token, told string) {
	asks, waits := c.waiting[token]
	at := c.process.clock.Now().Add(time.Duration(rules.Numbers(told)[0]) * time.Millisecond)
	if waits && !strings.HasPrefix(told, "-") && (asks.IsZero() || at.Before(asks)) {
		c.waiting[token] = at
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

// leaves notes that a waiter has to leave, if it is queued, or a token, if Resume has sent it.
func (c *conversation) leaves(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, queued := c.waiting[token]; queued {
		c.leaving[token] = c.process.clock.Now()
	}
}

// checkLeft fails if a Lock or a Resume has returned an error, and Redis was not told, though it may know of the token.
func (c *conversation) checkLeft() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, since := range c.leaving {
		if c.process.clock.Now().Sub(since) < 11*time.Minute {
			c.process.world.fail("client: %s has given up leaving", token)
		}
	}
}

// sent applies the rules to a request.
func (c *conversation) sent(e exchange) {
	p := c.process
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, x := range c.expected {
		late := p.world.now() > x.by
		if late { // its process may have become unreachable since
			c.overdue = append(c.overdue, suspect{token, x.by, x.what, 0})
		}
		if late || strings.Contains(x.verbs, e.verb) && slices.Contains(e.args, token) {
			delete(c.expected, token)
		}
	}
	for token, until := range c.kept {
		if p.clock.Now().Before(until.Add(-grain)) && (e.verb == "release" || e.verb == "leave") &&
			slices.Contains(e.args, token) {
			p.world.fail("client: at %v, %s is given back %v before its safety margin is over", time.Duration(p.world.now()),
				token,
				until.Sub(p.clock.Now()))
		}
	}
	for token, asks := range c.waiting {
		latest := asks.Add(atOnce)
		late := !asks.IsZero() && p.clock.Now().After(latest)
		if late {
			c.overdue = append(c.overdue, suspect{token, p.until(latest), "it does not request the lock when that can help", 0})
		}
		if late || e.verb == "acquire" && token == e.args[1] {
			c.waiting[token] = time.Time{}
		}
	}
	if e.verb == "resume" && !c.over[e.args[4]] {
		c.waiting[e.args[4]] = time.Time{}
	}
}

// answered notes what a process was told.
func (c *conversation) answered(e exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(e.reply) == 0 || e.reply[0] == "error":
	case e.verb == "resume" && (e.reply[0] == "lost" || e.reply[0] == "NOSCRIPT"):
		delete(c.waiting, e.args[4])
	case e.reply[0] == "NOSCRIPT":
	case e.verb == "leave":
		for _, token := range e.args[4:] {
			delete(c.leaving, token)
		}
	case e.verb == "acquire" && e.reply[0] == "queued":
		token := e.args[1]
		if _, ok := c.waiting[token]; !ok && !c.over[token] {
			c.waiting[token] = time.Time{}
		}
		c.foundLocked(token, e, e.reply[3])
		c.asksAfterLocked(token, e.reply[4])
	case e.verb == "renew" && e.reply[0] == "lost" && !c.done[e.args[1]]:
		c.expectLocked(e.args[1], 0, "release leave", "a token that Redis does not know does not leave")
	case e.verb == "heartbeat" && len(e.reply) > 2:
		if first := strings.Index(e.reply[2], "q"); first >= 0 {
			c.asksAfterLocked(e.args[2+first], e.reply[1])
		}
		for i, state := range e.reply[2] {
			if state == 'q' {
				c.foundLocked(e.args[2+i], e, e.reply[0])
			}
		}
	}
}

// foundLocked notes that a request found a waiter queued.
func (c *conversation) foundLocked(token string, e exchange, last string) {
	if c.latest[token].sent <= e.sent {
		c.latest[token] = queuedAt{e.sent, uint64(rules.Numbers(last)[0])}
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
		requests[i].sent = c.process.world.now()
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
		// the first of its waiter
		if r := requests[i]; r.verb == "acquire" && r.args[4] == "0" && replyOf(cmd)[0] == "queued" {
			err = c.again(next, err)
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
	reply, err := cmd.(*redis.Cmd).Result()
	switch {
	case redis.HasErrorPrefix(err, "NOSCRIPT"): // it was not run
		return []string{"NOSCRIPT"}
	case err != nil || reply == nil:
		return []string{"error"}
	}
	return words([]any{reply})
}

// again sends an acquire that has queued a waiter again after a while, as go-redis does when the reply was lost. What
// the server sends meanwhile, such as notifications, arrives later still.
func (c *conversation) again(next func() error, err error) error {
	p := c.process
	late := time.Duration(c.twice.Swap(0))
	if late == 0 || p.world.isEnding() {
		return err
	}
	p.world.away(p.number, 2*late+ttl)
	p.client.Link.Delay(0, late+2*ttl/5) // the next heartbeat is earlier
	p.pause(late)
	p.mend()
	return next()
}

func (c *conversation) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *conversation) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c.send([]redis.Cmder{cmd}, func() error {
			cmd.SetErr(next(ctx, cmd)) // go-redis does so after its hooks
			return cmd.Err()
		})
	}
}

func (c *conversation) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c.send(cmds, func() error { return next(ctx, cmds) })
	}
}
