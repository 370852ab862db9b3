package fairlocktest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Lock is what a test does to a lock and asks of it, beside its clients: levers that put it into a state at once, waits
// for a state, and assertions. It is a value; copies are the same lock. What fails fails the test, so its methods must be
// called from the test's goroutine; no fault of a Link keeps them from the server.
type Lock struct {
	server    *Server
	kind      kind
	namespace string
	name      string
	permits   int // of a semaphore
}

type kind int

const (
	mutex kind = iota
	semaphore
	rwMutex
)

func (k kind) String() string { return [...]string{"mutex", "semaphore", "rwmutex"}[k] }

// Mutex returns the levers of the mutex with that name.
func (s *Server) Mutex(name string) Lock { return s.lock(mutex, name, 0) }

// Semaphore returns the levers of the semaphore with that name and number of permits.
func (s *Server) Semaphore(name string, permits int) Lock { return s.lock(semaphore, name, permits) }

// RWMutex returns the levers of the read-write lock with that name.
func (s *Server) RWMutex(name string) Lock { return s.lock(rwMutex, name, 0) }

func (s *Server) lock(k kind, name string, permits int) Lock {
	return Lock{server: s, kind: k, namespace: lua.DefaultNamespace, name: name, permits: permits}
}

// In returns the levers of the lock with the same name in another namespace than the default one.
func (l Lock) In(namespace string) Lock {
	l.namespace = cmp.Or(namespace, lua.DefaultNamespace)
	return l
}

// HoldAs takes the lock as somebody else, who keeps it until the lease's Unlock: one permit of a semaphore, a
// read-write lock to write. It fails the test if the lock is not free.
func (l Lock) HoldAs(client string) *fairlock.Lease {
	l.server.tb.Helper()
	return l.hold(client, 1, true)
}

// HoldPermitsAs is HoldAs for n permits of a semaphore.
func (l Lock) HoldPermitsAs(client string, n int) *fairlock.Lease {
	l.server.tb.Helper()
	return l.hold(client, n, true)
}

// ReadAs takes a read-write lock to read, as somebody else, who keeps it until the lease's Unlock.
func (l Lock) ReadAs(client string) *fairlock.Lease {
	l.server.tb.Helper()
	return l.hold(client, 1, false)
}

func (l Lock) hold(client string, n int, write bool) *fairlock.Lease {
	s := l.server
	s.tb.Helper()
	switch {
	case client == "":
		s.tb.Fatalf("fairlocktest: hold as whom? The name is empty")
	case n > 1 && l.kind != semaphore:
		s.tb.Fatalf("fairlocktest: hold %d permits as %s: a %v has none", n, client, l.kind)
	case !write && l.kind != rwMutex:
		s.tb.Fatalf("fairlocktest: read as %s: nobody reads under a %v", client, l.kind)
	}
	c := s.other(l.namespace, client)
	ctx := context.Background()
	var lease *fairlock.Lease
	var err error
	switch {
	case l.kind == semaphore:
		lease, err = c.Semaphore(l.name, l.permits).TryAcquire(ctx, n)
	case l.kind == rwMutex && write:
		lease, err = c.RWMutex(l.name).TryLock(ctx)
	case l.kind == rwMutex:
		lease, err = c.RWMutex(l.name).TryRLock(ctx)
	default:
		lease, err = c.Mutex(l.name).TryLock(ctx)
	}
	if err != nil {
		l.server.tb.Fatalf("fairlocktest: hold as %s: %v; %s", client, err, l.describe())
	}
	l.server.touch()
	return lease
}

// DieHolding leaves the lock as a client does that crashed just after it was granted: held for ttl, and neither renewed
// nor released. (One permit of a semaphore; a read-write lock to write.) It fails the test if the lock is not free.
func (l Lock) DieHolding(client string, ttl time.Duration) token.Token {
	l.server.tb.Helper()
	t, answer := l.ask(client, lua.Ask{TTL: ttl, Try: true})
	if answer.Outcome != lua.Granted {
		l.server.tb.Fatalf("fairlocktest: die holding as %s: the lock is not free; %s", client, l.describe())
	}
	return t
}

// QueueGhost leaves a waiter in the queue that crashed just after it came: it keeps its place for patience and is never
// heard of again. It fails the test if the lock is free, for then nobody waits.
func (l Lock) QueueGhost(client string, patience time.Duration) token.Token {
	l.server.tb.Helper()
	t, answer := l.ask(client, lua.Ask{TTL: fairlock.DefaultTTL, Patience: patience})
	switch answer.Outcome {
	case lua.Queued:
	case lua.Granted:
		l.server.tb.Fatalf("fairlocktest: queue %s as a ghost: the lock was free, and it has it now", client)
	default:
		l.server.tb.Fatalf("fairlocktest: queue %s as a ghost: it was refused; %s", client, l.describe())
	}
	return t
}

func (l Lock) ask(client string, a lua.Ask) (token.Token, lua.Answer) {
	s := l.server
	s.tb.Helper()
	if a.TTL <= 0 || !a.Try && a.Patience <= 0 || l.kind == semaphore && l.permits < 1 {
		s.tb.Fatalf("fairlocktest: as %s: durations and permits must be above 0", client)
	}
	var err error
	if a.Token, err = token.New(client); err != nil {
		s.tb.Fatalf("fairlocktest: %v", err)
	}
	redis := lua.Mutex(s.inspector().Redis, l.namespace, l.name)
	switch a.Weight = 1; l.kind {
	case semaphore:
		redis = lua.Semaphore(s.inspector().Redis, l.namespace, l.name, l.permits)
	case rwMutex:
		redis, a.Weight = lua.RWMutex(s.inspector().Redis, l.namespace, l.name), lua.Everybody
	}
	answer, err := redis.Acquire(context.Background(), a)
	if err != nil {
		s.tb.Fatalf("fairlocktest: ask as %s: %v", client, err)
	}
	s.touch()
	return a.Token, answer
}

// Expire ends every lease of the lock in Redis now, as if its TTL had passed there before its holder renewed it. The
// holders are not told; the first waiter gets in at a beat or when its client knows that a lease must have ended, as after
// every lease that expires.
func (l Lock) Expire() {
	s := l.server
	s.tick()
	switch l.kind {
	case mutex:
		s.Miniredis.Del(lua.MutexKeys(l.namespace, l.name).Lock)
	default:
		keys := lua.SemaphoreKeys(l.namespace, l.name)
		if l.kind == rwMutex {
			keys = lua.RWMutexKeys(l.namespace, l.name)
		}
		members, _ := s.Miniredis.ZMembers(keys.Permits) // an error: there is none
		for _, member := range members {
			_, _ = s.Miniredis.ZAdd(keys.Permits, float64(s.Now().UnixMicro()), member)
		}
	}
	s.touch()
}

// Steal takes the lock from whoever holds it and gives it to a thief, who keeps it until the lease's Unlock. Who was robbed
// is not told, and finds out at its next renewal. It fails the test if somebody waits: the first waiter would get it.
func (l Lock) Steal(thief string) *fairlock.Lease {
	l.server.tb.Helper()
	if st := l.State(); st.Waiting > 0 {
		l.server.tb.Fatalf("fairlocktest: steal as %s: others wait, who would get the lock; %s", thief, l.describe())
	}
	l.ForceRelease()
	return l.HoldAs(thief)
}

// ForceRelease takes the lock from whoever holds it and hands it to the first waiter, as the method of the same name of
// fairlock's locks does.
func (l Lock) ForceRelease() {
	l.server.tb.Helper()
	ctx, c := context.Background(), l.server.other(l.namespace, "operator")
	var err error
	switch l.kind {
	case semaphore:
		_, err = c.Semaphore(l.name, l.permits).ForceRelease(ctx)
	case rwMutex:
		_, err = c.RWMutex(l.name).ForceRelease(ctx)
	default:
		_, err = c.Mutex(l.name).ForceRelease(ctx)
	}
	if err != nil {
		l.server.tb.Fatalf("fairlocktest: force-release: %v", err)
	}
	l.server.touch()
}

// State is who holds the lock and who waits, once everything has come to rest that goes on now (by the system's time it
// waits for that 50 ms at most).
func (l Lock) State() fairlock.State {
	l.server.tb.Helper()
	l.server.settle()
	return l.look()
}

func (l Lock) look() fairlock.State {
	l.server.tb.Helper()
	st, err := l.inspect()
	if err != nil {
		l.server.tb.Fatalf("fairlocktest: inspect: %v", err)
	}
	if l.kind == semaphore && st.Permits != 0 && st.Permits != l.permits {
		l.server.tb.Fatalf("fairlocktest: %s is in use with %d permits, not %d", l.name, st.Permits, l.permits)
	}
	return st
}

func (l Lock) inspect() (fairlock.State, error) {
	ctx, c := context.Background(), l.server.other(l.namespace, "")
	switch l.kind {
	case semaphore:
		return c.Semaphore(l.name, max(l.permits, 1)).Inspect(ctx)
	case rwMutex:
		return c.RWMutex(l.name).Inspect(ctx)
	default:
		return c.Mutex(l.name).Inspect(ctx)
	}
}

// WaitFree waits until nobody holds the lock and nobody waits for it.
func (l Lock) WaitFree() {
	l.server.tb.Helper()
	l.WaitFor("to be free", func(st fairlock.State) bool { return !st.Held && st.Waiting == 0 })
}

// WaitHeldBy waits until exactly these clients hold the lock, in any order.
func (l Lock) WaitHeldBy(clients ...string) {
	l.server.tb.Helper()
	l.WaitFor("to be held by "+list(clients), func(st fairlock.State) bool { return same(holders(st), clients) })
}

// WaitQueued waits until n wait for the lock.
func (l Lock) WaitQueued(n int) {
	l.server.tb.Helper()
	l.WaitFor(fmt.Sprintf("to have %d waiting", n), func(st fairlock.State) bool { return st.Waiting == n })
}

// For so long a state is waited for; by a Clock, which stands meanwhile, there is less to wait for.
const (
	impatience      = time.Minute
	clockImpatience = 10 * time.Second
)

// WaitFor waits until cond is true of the lock's state; it looks whenever the server has done something, and when a lease
// or the patience of a waiter ends. When it returns, what that set off has come to rest, as for State. After a minute of
// the system's time, or of a bubble's, it fails the test; by a Clock, whose time does not pass meanwhile, after 10 s.
func (l Lock) WaitFor(what string, cond func(fairlock.State) bool) {
	s := l.server
	s.tb.Helper()
	limit, hint := impatience, ""
	if _, ok := s.clock.(*Clock); ok {
		limit, hint = clockImpatience, " (the Clock stood meanwhile: does it take an Advance?)"
	}
	over := false                           // guarded by s.mu
	timer := time.AfterFunc(limit, func() { //nolint:forbidigo // a test's patience
		s.mu.Lock()
		defer s.mu.Unlock()
		over = true
		s.changed()
	})
	defer timer.Stop()
	for {
		s.mu.Lock()
		seen, late := s.count, over
		s.mu.Unlock()
		st := l.look()
		if cond(st) {
			s.settle() // who has come, or got in, knows it
			return
		}
		if late {
			s.tb.Fatalf("fairlocktest: waited %v for the lock %s%s; %s", limit, what, hint, l.describe())
		}
		var until time.Time
		for _, h := range st.Holders {
			until = s.ends(until, h.TTL)
		}
		for _, w := range st.Waiters {
			until = s.ends(until, w.Patience)
			until = s.ends(until, w.Patience+queueLasts)
		}
		s.mu.Lock()
		for s.count == seen && !over && (until.IsZero() || s.clock.Now().Before(until)) {
			s.wait(s.change, until)
		}
		s.mu.Unlock()
	}
}

// queueLasts is for how long the queue of those who are all silent outlasts their patience.
const queueLasts = 500 * time.Millisecond

// ends is the earlier of a time and of when something has ended that lasts so long. Redis tells that in whole
// milliseconds, what is left over cut off.
func (s *Server) ends(until time.Time, left time.Duration) time.Time {
	if left < 0 {
		return until
	}
	return earliest(until, s.clock.Now().Add(left+time.Millisecond))
}

// AssertFree fails the test unless nobody holds the lock and nobody waits for it.
func (l Lock) AssertFree() {
	l.server.tb.Helper()
	if st := l.State(); st.Held || st.Waiting > 0 {
		l.server.tb.Errorf("want the lock free; %s", l.describe())
	}
}

// AssertHeldBy fails the test unless exactly these clients hold the lock, in any order. A client that holds it twice is
// named twice.
func (l Lock) AssertHeldBy(clients ...string) {
	l.server.tb.Helper()
	if !same(holders(l.State()), clients) {
		l.server.tb.Errorf("want the lock held by %s; %s", list(clients), l.describe())
	}
}

// AssertQueue fails the test unless exactly these clients wait, in that order.
func (l Lock) AssertQueue(clients ...string) {
	l.server.tb.Helper()
	if !slices.Equal(waiters(l.State()), clients) {
		l.server.tb.Errorf("want %s to wait, in that order; %s", list(clients), l.describe())
	}
}

// AssertNothingLeft fails the test if a lock of the server is held or waited for. (What keeps the order of fences stays
// for a day, and traces of waiters for some seconds.)
func (s *Server) AssertNothingLeft() {
	s.tb.Helper()
	s.settle()
	s.tick()
	for _, key := range s.Miniredis.Keys() {
		if !strings.Contains(key, ":{") {
			continue // the user's own
		}
		var who []string
		switch key[strings.LastIndexByte(key, ':')+1:] {
		case "lock":
			text, _ := s.Miniredis.Get(key)
			who = []string{text}
		case "queue":
			who, _ = s.Miniredis.ZMembers(key)
		case "permits":
			ends, _ := s.Miniredis.SortedSet(key)
			for text, end := range ends {
				if end > float64(s.Now().UnixMicro()) {
					who = append(who, text)
				}
			}
		}
		var clients []string
		for _, text := range who {
			if t, err := token.Parse(text); err == nil { // not a key of the user's own that is called like ours
				clients = append(clients, t.Client())
			}
		}
		if len(clients) > 0 {
			s.tb.Errorf("left behind in %s: %s", key, list(clients))
		}
	}
}

// describe tells a lock's state in words.
func (l Lock) describe() string {
	st, err := l.inspect()
	if err != nil {
		return fmt.Sprintf("%s: %v", l.name, err)
	}
	name := fmt.Sprintf("%v %s", l.kind, l.name)
	if l.namespace != lua.DefaultNamespace {
		name += " in " + l.namespace
	}
	return fmt.Sprintf("%s is held by %s, and %s", name, list(holders(st)), queue(st))
}

func queue(st fairlock.State) string {
	if st.Waiting == 0 {
		return "nobody waits"
	}
	return "in the queue: " + list(waiters(st))
}

func holders(st fairlock.State) []string {
	var names []string
	for _, h := range st.Holders {
		names = append(names, h.Client)
	}
	return names
}

func waiters(st fairlock.State) []string {
	var names []string
	for _, w := range st.Waiters {
		names = append(names, w.Client)
	}
	return names
}

func list(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

// same reports whether two lists hold the same names.
func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// other returns a client of the kit's own: the one that a lever acts as, or that looks if the name is empty. No fault
// reaches it, and what it does is no change that anybody waits for.
func (s *Server) other(namespace, client string) *Client {
	s.tb.Helper()
	key := namespace + "\x00" + client
	s.mu.Lock()
	c := s.others[key]
	s.mu.Unlock()
	if c != nil {
		return c
	}
	cfg := fairlock.Config{Namespace: namespace, Name: client}
	if client == "" {
		cfg.Name = "fairlocktest"
	}
	link := s.link(cfg.Name)
	link.immune, link.silent = true, client == ""
	c = s.client(cfg, link)
	s.mu.Lock()
	s.others[key] = c
	s.mu.Unlock()
	return c
}

// inspector is the client that looks.
func (s *Server) inspector() *Client { return s.other(lua.DefaultNamespace, "") }
