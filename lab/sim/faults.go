package sim

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/token"
)

// Bounds of what faults do.
const (
	longestFault = 2 * ttl // long enough that leases and waiters expire
	longestStep  = 2 * ttl // of the server's clock
	latest       = 3 * ttl // what a fault delays arrives within so long of its end, and waiters have sent a heartbeat
)

// fault is a kind of fault. occur lets one occur; it ends by itself, in a task of the world.
type fault struct {
	name  string
	occur func(w *world, random *rand.Rand)
}

var faults = []*fault{
	{"request lost", func(w *world, random *rand.Rand) {
		p := w.any(random)
		p.client.Link.DropRequest()
		w.occurred("the next request of client %d is lost", p.number)
	}},
	{"reply lost", func(w *world, random *rand.Rand) {
		p := w.any(random)
		p.client.Link.DropReply()
		w.occurred("the next reply to client %d is lost", p.number)
	}},
	{"connections break", func(w *world, random *rand.Rand) {
		p := w.any(random)
		p.client.Link.Break()
		w.occurred("the connections of client %d break", p.number)
	}},
	{"link slow", func(w *world, random *rand.Rand) {
		p, request, reply := w.any(random), upTo(random, ttl/2), upTo(random, ttl/2)
		length := upTo(random, longestFault)
		w.unreachable(p, length, "has a slow link: requests take %v and replies %v", request, reply)
		p.client.Link.Delay(request, reply)
	}},
	{"late", func(w *world, random *rand.Rand) {
		p, request, reply := w.any(random), upTo(random, 2*waiterTTL), upTo(random, 2*waiterTTL)
		w.unreachable(p, upTo(random, longestHold), "delays what is sent now by %v and %v", request, reply)
		w.away(p.number, request+reply)
		p.client.Link.Delay(request, reply)
	}},
	{"requests run twice", func(w *world, random *rand.Rand) {
		for _, p := range w.live() {
			late := ttl + upTo(random, ttl)
			w.occurred("the next acquire of client %d runs again after %v, and notifications come after that", p.number, late)
			p.talk.twice.Store(int64(late))
		}
	}},
	{"requests hang", func(w *world, random *rand.Rand) {
		// Each on a connection of its own: what is sent after them does not wait for them.
		p := w.any(random)
		w.occurred("what client %d sends within a millisecond takes %v", p.number, longestFault)
		p.talk.hangs.Store(int64(longestFault))
		w.after(time.Millisecond, func() { p.talk.hangs.Store(0) })
	}},
	{"a renewal hangs", func(w *world, random *rand.Rand) {
		p, late := w.any(random), ttl/2+upTo(random, ttl)
		w.occurred("the next renewal of client %d takes %v, and its holders go on for longer than their TTL", p.number, late)
		p.talk.renewalHangs.Store(int64(late))
		p.busy.Store(true)
		w.after(2*ttl, func() { p.busy.Store(false) })
	}},
	{"link hangs", func(w *world, random *rand.Rand) {
		p, length := w.any(random), upTo(random, longestFault)
		w.unreachable(p, length, "has a link that hangs")
		p.client.Link.Hang()
		p.busy.Store(true)
		w.after(length, func() { p.busy.Store(false) })
	}},
	{"link cut", func(w *world, random *rand.Rand) {
		p, length := w.any(random), upTo(random, longestFault)
		if random.IntN(3) == 0 {
			length += ttl + waiterTTL // what a waiter that leaves meanwhile has left in Redis is over
		}
		w.unreachable(p, length, "is cut off")
		p.client.Link.Cut()
	}},
	{"notifications lost", func(w *world, random *rand.Rand) {
		p, length := w.any(random), upTo(random, longestFault)
		p.client.Link.DropNotifications()
		w.observer.subscribe(p.name(), never)
		w.occurred("client %d receives no notifications for %v", p.number, length)
		w.after(length, p.mend)
	}},
	{"process paused", func(w *world, random *rand.Rand) {
		w.any(random).pauseFor(upTo(random, longestFault))
	}},
	{"machine suspended", func(w *world, random *rand.Rand) {
		for _, p := range w.live() {
			if w.holds(p) {
				continue // it would trust its leases for too long (docs/promises.md)
			}
			p.clock.SetRate(0)
			p.halt(upTo(random, longestFault), "is suspended, and its monotonic clock stands still")
			return
		}
	}},
	{"machine suspended that holds a lock", func(w *world, random *rand.Rand) {
		// It trusts its leases for too long (docs/promises.md). So it has crashed, as far as the history goes.
		for _, p := range w.live() {
			if p.leases.Load() == 0 || p.longLeases.Load() > 0 || p.lent.Load() > 0 {
				continue
			}
			length := ttl + upTo(random, ttl) // its leases are over then
			w.occurred("client %d is suspended for %v while it holds a lock, and ends %v later", p.number, length, ttl)
			w.killed(p)
			w.launch(p.slot)
			p.client.Link.Hang()
			p.clock.SetRate(0)
			w.after(length, func() {
				p.clock.SetRate(p.rate)
				p.client.Link.Mend()
				w.sleep(ttl)
				p.crash()
			})
			return
		}
	}},
	{"process crashes", func(w *world, random *rand.Rand) {
		p := w.any(random)
		if p.lent.Load() > 0 {
			return
		}
		w.occurred("client %d crashes", p.number)
		w.killed(p)
		p.crash()
		w.launch(p.slot)
	}},
	{"client closed", func(w *world, random *rand.Rand) {
		p := w.any(random)
		w.occurred("client %d closes its client", p.number)
		p.finish()
		p.close()
		w.launch(p.slot)
	}},
	{"forced release", func(w *world, random *rand.Rand) {
		p, t := w.any(random), w.targets[random.IntN(len(w.targets))]
		w.occurred("client %d releases %s by force", p.number, t.name)
		w.after(0, func() {
			from := w.now()
			ctx, cancel := context.WithTimeout(context.Background(), longestFault)
			defer cancel()
			id := fairlock.ID{Kind: fairlock.Kind(t.kind), Name: t.name}
			_, _ = admin.New(p.client.Redis, "").ForceRelease(ctx, id)
			w.loss(t.name, from, w.now()+int64(latest)) // a request that got no reply may still arrive
		})
	}},
	{"scripts flushed", func(w *world, _ *rand.Rand) {
		w.occurred("the scripts are flushed")
		w.after(0, func() { _ = w.admin.ScriptFlush(context.Background()).Err() })
	}},
	{"data lost", func(w *world, random *rand.Rand) {
		w.loseData()
		for _, t := range w.targets {
			w.after(upTo(random, 2*ttl), func() { w.stray(t) })
		}
	}},
	{"data lost and then a stall", func(w *world, random *rand.Rand) {
		w.loseData()
		w.sleep(upTo(random, ttl)) // until waiters are back
		w.standStill(ttl+upTo(random, ttl), random)
	}},
	{"data lost while the clock stands still", func(w *world, random *rand.Rand) {
		length := upTo(random, longestFault)
		w.freeze(length)
		w.loseData()
		w.sleep(upTo(random, ttl/2)) // numbers are given
		w.loseData()                 // and given again
	}},
	{"key lost", func(w *world, random *rand.Rand) {
		i := random.IntN(len(w.targets))
		l, all := w.observer.locks[i], script.KeysOf(w.targets[i].kind, bounds.DefaultNamespace, w.targets[i].name)
		key := all[random.IntN(len(all))]
		w.occurred("the key %s is lost", key.Name)
		w.observer.evict(l, key)
		loss := history.Loss{Lock: l.name, From: w.now(), To: w.now()}
		switch key.Part {
		case "number":
			loss.Part = history.Numbers
		case "lock", "permits", "holders":
			loss.Part = history.Holders
		case "tombstones":
			loss.Part = history.Tombstones
		default: // that of a queue excuses what the server is seen to forget, and no more
			return
		}
		w.update(func(r *history.Run) { r.Losses = append(r.Losses, loss) })
	}},
	{"no right to publish", func(w *world, random *rand.Rand) {
		length := upTo(random, longestFault)
		w.occurred("for %v, scripts may not publish", length)
		w.observer.noPublish.Add(1)
		w.after(length, func() { w.observer.noPublish.Add(-1) })
	}},
	{"server full", func(w *world, random *rand.Rand) {
		length := upTo(random, longestFault)
		if w.now() < w.fullAgain {
			return
		}
		w.fullAgain = w.now() + 2*int64(length)
		w.occurred("for %v, the server has no memory left", length)
		w.observer.full.Add(1)
		w.after(length, func() { w.observer.full.Add(-1) })
	}},
	{"granted anew", func(w *world, _ *rand.Rand) {
		w.after(0, func() {
			for _, t := range w.targets {
				w.grantAnew(t)
			}
		})
	}},
	{"stray requests", func(w *world, random *rand.Rand) {
		t := w.targets[random.IntN(len(w.targets))]
		w.occurred("late and bogus requests arrive for %s", t.name)
		w.after(0, func() { w.stray(t) })
	}},
	{"tombstones expire", func(w *world, random *rand.Rand) {
		w.occurred("a tombstone of each lock is over")
		w.observer.expireTombstones()
		w.visit(random)
	}},
	{"all are away", func(w *world, random *rand.Rand) {
		const longest = 12*time.Minute + time.Second // longer than the queues are kept
		for _, p := range w.live() {
			p.client.Link.Break() // so that no request arrives 12 min late
			p.pauseFor(longest - upTo(random, time.Second))
		}
		w.asleep += longest
		w.sleep(longest) // no other fault occurs
	}},
	{"failover", func(w *world, random *rand.Rand) {
		lag := upTo(random, ttl)
		from, saved := w.now(), snapshot(w.server)
		w.occurred("a replica that lags takes over after %v", lag)
		w.after(lag, func() {
			w.server.Stop()
			w.observer.replace(func() { restore(w.server, saved) }, w.observer.locks...)
			w.excuse()
			w.sleep(time.Millisecond) // clients that connect again at once find no server
			w.loss("", from, w.now())
			w.server.Start()
		})
	}},
	{"server restarts", func(w *world, random *rand.Rand) {
		length := upTo(random, longestFault)
		w.serverAway(length, "is down")
		w.server.Stop()
		w.after(length, w.server.Start)
	}},
	{"server stands still", func(w *world, random *rand.Rand) {
		w.standStill(upTo(random, longestFault), random)
	}},
	{"clock steps back", func(w *world, random *rand.Rand) {
		by := upTo(random, ttl/2)
		w.occurred("the server's clock steps back by %v", by)
		w.update(func(r *history.Run) { r.ClockBack = true })
		w.observer.step(-by)
		w.visit(random)
	}},
	{"clock stands still", func(w *world, random *rand.Rand) {
		w.freeze(upTo(random, longestFault))
	}},
	{"clock steps forward", func(w *world, random *rand.Rand) {
		by := upTo(random, longestStep)
		w.occurred("the server's clock steps forward by %v", by)
		w.observer.step(by)
		w.loss("", w.now(), w.now())
		w.jump(0)
	}},
	{"semaphore resized", func(w *world, random *rand.Rand) {
		permits, t := random.IntN(2*w.cfg.Permits), w.targets[random.IntN(len(w.targets))]
		for t.others == 0 { // it is no semaphore
			t = w.targets[random.IntN(len(w.targets))]
		}
		w.occurred("the lock %s is resized to %d", t.name, permits)
		w.after(0, func() { _ = w.resize(t, permits) }) // a failover may have broken the connection
	}},
}

// choose draws the kinds of faults of a run: each with a probability of its own.
func (w *world) choose() (chosen []*fault) {
	random := w.random("choose")
	share := 0.05 + 0.85*random.Float64()*random.Float64() // often few, which then occur often
	for _, f := range faults {
		take := random.Float64() < share
		if w.cfg.Faults != nil {
			take = slices.Contains(w.cfg.Faults, f.name)
		}
		if take {
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// any draws a live process.
func (w *world) any(random *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current[random.IntN(len(w.current))]
}

func (w *world) live() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.current)
}

// after does something a while later, before the liveness phase.
func (w *world) after(d time.Duration, f func()) {
	w.tasks.Add(1)
	w.clock.AfterFunc(d, func() {
		defer w.tasks.Done()
		f()
	})
}

// unreachable notes that a process cannot reach the server, or the server it, for a while, and mends its link then.
func (w *world) unreachable(p *process, length time.Duration, format string, args ...any) {
	w.occurred("for %v, client %d "+format, append([]any{length, p.number}, args...)...)
	w.away(p.number, length)
	w.after(length, p.mend)
}

// away notes that for a while requests or replies do not arrive, or late.
func (w *world) away(process int, length time.Duration) {
	w.update(func(r *history.Run) {
		r.Unreachable = append(r.Unreachable, history.Span{
			Process: process, From: w.now(), To: w.now() + int64(length+latest),
		})
	})
}

// killed ends the recording of a process.
func (w *world) killed(p *process) {
	w.update(func(r *history.Run) {
		r.Kills = append(r.Kills, history.Span{Process: p.number, From: w.now(), To: w.now()})
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crashed, p.endedAt = true, w.now()
}

func (w *world) loseData() {
	w.occurred("all data are lost")
	w.observer.replace(w.server.LoseData, w.observer.locks...)
	w.loss("", w.now(), w.now())
}

func (w *world) standStill(length time.Duration, random *rand.Rand) {
	w.serverAway(length, "stands still")
	for _, p := range w.live() {
		p.client.Link.Hang()
		w.after(length+upTo(random, time.Millisecond), p.mend)
	}
}

func (w *world) freeze(length time.Duration) {
	w.occurred("for %v, the server's clock stands still", length)
	w.update(func(r *history.Run) { r.ClockBack = true })
	w.observer.freeze(length)
}

// serverAway is away for the whole server.
func (w *world) serverAway(length time.Duration, what string) {
	w.occurred("for %v, the server %s", length, what)
	w.away(history.All, length)
	w.jump(length)
}

// jump notes that the server's clock jumps forward in a while, as the scripts see it, until every waiter has sent a
// heartbeat since.
func (w *world) jump(length time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jumps = append(w.jumps, history.Span{From: w.now(), To: w.now() + int64(length+latest)})
}

// excuse notes that the server has lost the heartbeats of a while: waiters may be dropped that are alive.
func (w *world) excuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excuses = append(w.excuses, history.Span{From: w.now(), To: w.now() + int64(latest)})
}

func (w *world) loss(lock string, from, to int64) {
	w.update(func(r *history.Run) { r.Losses = append(r.Losses, history.Loss{Lock: lock, From: from, To: to}) })
}

// pauseFor has a process stand still.
func (p *process) pauseFor(length time.Duration) {
	p.clock.Pause()
	p.mu.Lock()
	p.paused = true
	p.mu.Unlock()
	p.halt(length, "stands still")
}

// halt stops a process for a while: it sends and receives nothing. Its clock, which the caller has stopped, goes on
// when the last of several such faults is over.
func (p *process) halt(length time.Duration, what string) {
	p.world.unreachable(p, length, what)
	p.client.Link.Hang()
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(length); until.After(p.haltedUntil) {
		p.haltedUntil = until
	}
	p.world.after(length, func() {
		if !p.isHalted() {
			p.clock.Resume()
			p.clock.SetRate(p.rate)
		}
	})
}

func (p *process) isHalted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.haltedUntil)
}

// stray sends requests that arrive late or are bogus. The first may extend a lease, by as much as its token says. The
// others may change nothing. Of the rest of a minimum hold nobody has the token.
func (w *world) stray(t target) {
	l, ctx := w.lock(t), context.Background()
	seen, left := w.observer.known(t.name)
	if len(seen.Holders) > 0 && !isReleased(seen.Holders[0].Token) {
		holder, fence := parse(seen.Holders[0].Token), seen.Holders[0].Fence
		_, _ = l.Renew(ctx, holder, longTTL, fence)
		_, _ = l.Renew(ctx, holder, ttl, fence-1)
		_, _ = l.Release(ctx, holder, fence-1, script.Rest{})
		terms := holder.Terms()
		terms.TTL, terms.Flags = ttl, 0
		by, _ := token.Parse(tokens.New("stray", terms))
		_, _, _ = l.Resume(ctx, holder, fence-1, ttl, by)
	}
	_, _ = l.ForceRelease(ctx, 1, 0)
	bogus, _ := token.Parse(tokens.New("stray", t.terms()))
	_, _ = l.Acquire(ctx, script.Request{Token: bogus, WaiterTTL: waiterTTL, Ticket: 1 << 52})
	if !left.IsZero() {
		_, _ = l.Acquire(ctx, script.Request{Token: left, WaiterTTL: waiterTTL})
	}
}

// lock is a lock as an operator has it.
func (w *world) lock(t target) script.Lock {
	l, _ := script.Of(dispatch.NewDirect(w.admin), t.kind, bounds.DefaultNamespace, t.name)
	return l.WithFenceTTL(fenceTTL)
}

// resize sets the number of permits of a semaphore for all clients; 0: there are again as many as their tokens say.
func (w *world) resize(t target, permits int) error {
	if t.others == 0 {
		return nil // it is none
	}
	_, err := w.lock(t).Resize(context.Background(), permits)
	return err
}

// visit has a new waiter, perhaps with a long TTL, request each lock, and leave at once. It leaves no tombstone, with
// which no acquire would be a common case any more.
func (w *world) visit(random *rand.Rand) {
	length := []time.Duration{waiterTTL, visitorTTL}[random.IntN(2)]
	w.after(0, func() {
		for _, t := range w.targets {
			l, ctx := w.lock(t), context.Background()
			visitor, _ := token.Parse(tokens.New("visitor", t.terms()))
			w.observer.ignore(visitor.Text())
			_, _ = l.Acquire(ctx, script.Request{Token: visitor, WaiterTTL: length})
			_, _ = l.Leave(ctx, script.Rest{}, script.Leaving{Token: visitor})
		}
	})
}

// grantAnew takes a lock from its holders, and grants it to one of them again, as an acquire does that arrives late.
// Nothing happens if others wait.
func (w *world) grantAnew(t target) {
	seen, _ := w.observer.known(t.name)
	if len(seen.Holders) == 0 || len(seen.Waiters) > 0 || isReleased(seen.Holders[0].Token) {
		return
	}
	w.occurred("%s is released by force, and granted to its holder again", t.name)
	l, ctx, from := w.lock(t), context.Background(), w.now()
	holder := parse(seen.Holders[0].Token)
	w.observer.ignore(holder.Text()) // its client may have released it, or may not renew it
	_, _ = l.ForceRelease(ctx, seen.Last, 0)
	_, _ = l.Acquire(ctx, script.Request{Token: holder, Try: true})
	w.loss(t.name, from, w.now())
}

// holds reports whether a process holds a lock, or may be granted one by a request that it has sent.
func (w *world) holds(p *process) bool {
	w.mu.Lock()
	away := slices.ContainsFunc(w.run.Unreachable, func(s history.Span) bool {
		return (s.Process == p.number || s.Process == history.All) && s.From <= w.now() && w.now() <= s.To
	})
	w.mu.Unlock()
	return away || p.leases.Load() > 0 || w.observer.holds(p.name()+":")
}

// mend ends the faults of a process's link, unless it has crashed, or is suspended or paused.
func (p *process) mend() {
	halted := p.isHalted()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.crashed && !halted {
		p.client.Link.Mend()
		p.world.observer.subscribe(p.name(), 0)
	}
}

// saved are the server's data at one moment.
type saved struct {
	strings map[string]string
	zsets   map[string]map[string]float64
	hashes  map[string]map[string]string
	ends    map[string]time.Time // when keys expire, by the server's clock
}

// snapshot returns the server's data, as a replica has them.
func snapshot(s *fairlocktest.Server) saved {
	m := s.Miniredis
	d := saved{map[string]string{}, map[string]map[string]float64{}, map[string]map[string]string{},
		map[string]time.Time{}}
	for _, key := range m.Keys() {
		switch m.Type(key) {
		case "string":
			d.strings[key], _ = m.Get(key)
		case "zset":
			members, _ := m.SortedSet(key)
			d.zsets[key] = maps.Clone(members) // of the server's own
		case "hash":
			fields, _ := m.HKeys(key)
			d.hashes[key] = map[string]string{}
			for _, field := range fields {
				d.hashes[key][field] = m.HGet(key, field)
			}
		}
		if left := m.TTL(key); left > 0 {
			d.ends[key] = s.Now().Add(left)
		}
	}
	return d
}

// restore puts saved data in the place of what is there.
func restore(s *fairlocktest.Server, d saved) {
	m := s.Miniredis
	s.LoseData()
	s.StepClock(0) // else the time that has passed while the server was down would be taken from each TTL
	for key, value := range d.strings {
		_ = m.Set(key, value)
	}
	for key, members := range d.zsets {
		for member, score := range members {
			_, _ = m.ZAdd(key, score, member)
		}
	}
	for key, fields := range d.hashes {
		for field, value := range fields {
			m.HSet(key, field, value)
		}
	}
	for key, end := range d.ends {
		if left := end.Sub(s.Now()); left > 0 {
			m.SetTTL(key, left)
		} else {
			m.Del(key)
		}
	}
}
