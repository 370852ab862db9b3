package fairlocktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// Lock controls one lock from the test. Its methods put the lock into a state, wait for a state, and assert one. It is
// a value; copies are the same lock. A failure fails the test, so the methods must be called from the test's goroutine.
// Faults of Links do not affect them.
type Lock struct {
	server     *Server
	kind       fairlock.Kind
	namespace  string
	name       string
	permits    int // of a semaphore
	options    []fairlock.KeyOption
	key        string // of a keyed semaphore: the key that HoldAs and the like use
	keyOptions []fairlock.KeyOption
}

// Mutex returns the mutex with that name. The options are those of the clients that HoldAs and other methods act as.
// CrashQueued ignores a bound on waiters.
func (s *Server) Mutex(name string, options ...fairlock.HoldOption) Lock {
	return s.lock(fairlock.KindMutex, name, 0, convert[fairlock.KeyOption](options))
}

// Semaphore returns the semaphore with that name and number of permits. The options are as for Mutex.
func (s *Server) Semaphore(name string, permits int, options ...fairlock.HoldOption) Lock {
	return s.lock(fairlock.KindSemaphore, name, permits, convert[fairlock.KeyOption](options))
}

// KeyedSemaphore returns the keyed semaphore with that name and number of permits. HoldAs, HoldPermitsAs, CrashHolding,
// CrashQueued and TakeAs need a Key. The options are defaults for its keys, and otherwise as for Mutex.
func (s *Server) KeyedSemaphore(name string, permits int, options ...fairlock.KeyOption) Lock {
	return s.lock(fairlock.KindKeyedSemaphore, name, permits, options)
}

// RWMutex returns the read-write lock with that name. The options are as for Mutex.
func (s *Server) RWMutex(name string, options ...fairlock.Option) Lock {
	return s.lock(fairlock.KindRWMutex, name, 0, convert[fairlock.KeyOption](options))
}

func (s *Server) lock(k fairlock.Kind, name string, permits int, options []fairlock.KeyOption) Lock {
	return Lock{server: s, kind: k, namespace: bounds.DefaultNamespace, name: name, permits: permits, options: options}
}

// convert returns the options as values of another interface, which they all implement. A nil stays nil.
func convert[To, From fairlock.KeyOption](options []From) []To {
	all := make([]To, len(options))
	for i, o := range options {
		all[i], _ = any(o).(To)
	}
	return all
}

// In returns the lock with the same name in a namespace; "" is the default one.
func (l Lock) In(namespace string) Lock {
	l.namespace = cmp.Or(namespace, bounds.DefaultNamespace)
	return l
}

// Key returns a copy of a keyed semaphore's Lock whose HoldAs and other methods act for that key, with these options,
// such as fairlock.WithKeyLimit. State covers all keys.
func (l Lock) Key(key string, options ...fairlock.KeyOption) Lock {
	l.key, l.keyOptions = key, options
	return l
}

// HoldAs locks the lock as another client, which renews the lease until Unlock. It acquires one permit of a semaphore,
// and locks a read-write lock for writing. It fails the test if the lock is not free.
func (l Lock) HoldAs(client string) *fairlock.Lease {
	l.server.tb.Helper()
	return l.hold(client, 1, true)
}

// HoldPermitsAs is HoldAs for n permits of a semaphore.
func (l Lock) HoldPermitsAs(client string, n int) *fairlock.Lease {
	l.server.tb.Helper()
	return l.hold(client, n, true)
}

// ReadAs is HoldAs for reading under a read-write lock.
func (l Lock) ReadAs(client string) *fairlock.Lease {
	l.server.tb.Helper()
	return l.hold(client, 1, false)
}

func (l Lock) hold(client string, n int, write bool, last ...fairlock.KeyOption) *fairlock.Lease {
	l.server.tb.Helper()
	lease, err := l.try(client, n, write, last...)
	if err != nil {
		l.server.tb.Fatalf("fairlocktest: hold as %s: %v; %s", client, err, l.describe())
	}
	l.server.touch()
	return lease
}

// try tries to acquire the lock as a client, with its options and then the last ones.
func (l Lock) try(client string, n int, write bool, last ...fairlock.KeyOption) (*fairlock.Lease, error) {
	s := l.server
	s.tb.Helper()
	switch {
	case client == "":
		s.tb.Fatalf("fairlocktest: hold: the name of the client is empty")
	case n != 1 && l.kind != fairlock.KindSemaphore && l.kind != fairlock.KindKeyedSemaphore:
		s.tb.Fatalf("fairlocktest: hold %d permits as %s: a %v has no permits", n, client, l.kind)
	case !write && l.kind != fairlock.KindRWMutex:
		s.tb.Fatalf("fairlocktest: read as %s: a %v has no readers", client, l.kind)
	}
	c, ctx := s.other(l.namespace, client), context.Background()
	all := slices.Concat(l.options, last)
	switch {
	case l.kind == fairlock.KindSemaphore:
		return c.Semaphore(l.name, l.permits, convert[fairlock.HoldOption](all)...).TryAcquire(ctx, n)
	case l.kind == fairlock.KindKeyedSemaphore:
		return c.KeyedSemaphore(l.name, l.permits, l.options...).Key(l.key, slices.Concat(l.keyOptions, last)...).
			TryAcquire(ctx, n)
	case l.kind == fairlock.KindRWMutex && write:
		return c.RWMutex(l.name, convert[fairlock.Option](all)...).TryLock(ctx)
	case l.kind == fairlock.KindRWMutex:
		return c.RWMutex(l.name, convert[fairlock.Option](all)...).TryRLock(ctx)
	default:
		return c.Mutex(l.name, convert[fairlock.HoldOption](all)...).TryLock(ctx)
	}
}

// CrashHolding leaves the lock as a client does that crashes just after it was granted the lock. The lock is held for
// ttl, or for a minimum hold that is longer, and is not renewed or released. It takes one permit of a semaphore, and
// holds a read-write lock for writing. It fails the test if the lock is not free.
func (l Lock) CrashHolding(client string, ttl time.Duration) token.Token {
	l.server.tb.Helper()
	lease := l.hold(client, 1, true, fairlock.WithTTL(ttl))
	if _, err := lease.Detach(); err != nil { // without it, the lease would be renewed
		l.server.tb.Fatalf("fairlocktest: crash holding as %s: %v", client, err)
	}
	return lease.Token()
}

// CrashQueued leaves a waiter in the queue as a client does that crashes just after it was queued. The waiter sends no
// heartbeat, and expires after waiterTTL, which passes only while others wait. The next request for the lock
// drops it then. CrashQueued fails the test if the lock is free, because a request is granted the lock then.
func (l Lock) CrashQueued(client string, waiterTTL time.Duration) token.Token {
	s := l.server
	s.tb.Helper()
	if waiterTTL < time.Millisecond {
		s.tb.Fatalf("fairlocktest: crash queued as %s: WaiterTTL must be at least 1 ms", client)
	}
	// A waiter of a fairlock.Client would send heartbeats. So a Try makes the token, and it is queued here.
	switch _, err := l.try(client, 1, true); {
	case err == nil:
		s.tb.Fatalf("fairlocktest: crash queued as %s: the lock was free, and was granted", client)
	case !errors.Is(err, fairlock.ErrBusy):
		s.tb.Fatalf("fairlocktest: crash queued as %s: %v", client, err)
	}
	t := s.other(l.namespace, client).tried
	lock, _ := script.Of(dispatch.NewDirect(s.inspector().Redis), string(l.kind), l.namespace, l.name)
	reply, err := lock.Acquire(context.Background(), script.Request{Token: t, WaiterTTL: waiterTTL})
	switch {
	case err != nil:
		s.tb.Fatalf("fairlocktest: crash queued as %s: %v", client, err)
	case reply.Outcome != script.Queued:
		s.tb.Fatalf("fairlocktest: crash queued as %s: the request was not queued; %s", client, l.describe())
	}
	s.touch()
	return t
}

// Expire ends every lease of the lock in Redis now, as if its TTL had passed before its holder renewed it. The holders
// find out at their next renewal. As after every expiry, the first waiter is granted the lock at its next heartbeat or
// when its client's timer for the lease's end fires.
func (l Lock) Expire() {
	s := l.server
	s.tick()
	keys := script.KeysOf(string(l.kind), l.namespace, l.name)
	if l.kind == fairlock.KindMutex {
		s.Miniredis.Del(keys.Part("lock"))
	} else {
		permits := keys.Part("permits")
		members, _ := s.Miniredis.ZMembers(permits) // an error: the key does not exist
		for _, member := range members {
			_, _ = s.Miniredis.ZAdd(permits, float64(s.Now().UnixMicro()), member)
		}
	}
	s.touch()
}

// TakeAs force-releases the lock and locks it as another client, which renews the lease until Unlock. The former holder
// finds out at its next renewal. It fails the test if the queue is not empty, because the first waiter would be granted
// the lock.
func (l Lock) TakeAs(client string) *fairlock.Lease {
	l.server.tb.Helper()
	if st := l.State(); st.Waiting+st.Expired > 0 {
		l.server.tb.Fatalf("fairlocktest: take as %s: the first waiter would be granted the lock; %s", client, l.describe())
	}
	l.ForceRelease()
	return l.HoldAs(client)
}

// ForceRelease releases the lock of any holder and hands it to the first waiter, as admin.Client's ForceRelease does.
func (l Lock) ForceRelease() {
	l.server.tb.Helper()
	if err := l.forceRelease(); err != nil {
		l.server.tb.Fatalf("fairlocktest: force-release: %v", err)
	}
}

func (l Lock) forceRelease() error {
	defer l.server.touch()
	operator := admin.New(l.server.other(l.namespace, "operator").Redis, l.namespace)
	_, err := operator.ForceRelease(context.Background(), l.id())
	return err
}

func (l Lock) id() fairlock.ID { return fairlock.ID{Kind: l.kind, Name: l.name} }

// State returns the holders and the waiters of the lock. Inside a testing/synctest bubble, State and the assertions
// first wait until all goroutines are idle, as synctest.Wait does. Outside a bubble State returns what is in Redis now.
func (l Lock) State() admin.State {
	l.server.tb.Helper()
	l.server.settle()
	return l.read()
}

func (l Lock) read() admin.State {
	l.server.tb.Helper()
	st, err := l.inspect()
	if err != nil {
		l.server.tb.Fatalf("fairlocktest: inspect: %v", err)
	}
	return st
}

func (l Lock) inspect() (admin.State, error) {
	inspector := admin.New(l.server.other(l.namespace, "").Redis, l.namespace)
	return inspector.Inspect(context.Background(), l.id(), bounds.MaxInspected, bounds.MaxInspected)
}

// WaitFree waits until the lock is free and its queue is empty.
func (l Lock) WaitFree() {
	l.server.tb.Helper()
	l.WaitFor("to be free", func(st admin.State) bool { return len(st.Holders) == 0 && st.Waiting+st.Expired == 0 })
}

// WaitHeldBy waits until exactly these clients hold the lock, in any order.
func (l Lock) WaitHeldBy(clients ...string) {
	l.server.tb.Helper()
	l.WaitFor("to be held by "+list(clients), func(st admin.State) bool { return same(holders(st), clients) })
}

// WaitQueued waits until the lock has n waiters.
func (l Lock) WaitQueued(n int) {
	l.server.tb.Helper()
	l.WaitFor(fmt.Sprintf("to have %d waiters", n), func(st admin.State) bool { return st.Waiting+st.Expired == n })
}

// How long WaitFor waits. A Clock stands still meanwhile, so no timer can change the state then.
const (
	waitTimeout      = time.Minute
	clockWaitTimeout = 10 * time.Second
)

// WaitFor waits until cond is true of the lock's state. It looks after each request to the server, and when a lease or
// a waiter expires. Inside a bubble it then waits until all goroutines are idle, as State does; outside one, the
// clients may not have received their replies yet. It fails the test after a minute of the system's or the bubble's
// time. With a Clock, which stands still meanwhile, it fails after 10 s of the system's time.
func (l Lock) WaitFor(what string, cond func(admin.State) bool) {
	s := l.server
	s.tb.Helper()
	if cond == nil {
		s.tb.Fatalf("fairlocktest: cond must not be nil")
	}
	limit, hint := waitTimeout, ""
	if _, ok := s.clock.(*Clock); ok {
		limit, hint = clockWaitTimeout, " (the Clock stood still: is an Advance missing?)"
	}
	over := false                           // guarded by s.mu
	timer := time.AfterFunc(limit, func() { //nolint:forbidigo // a Clock stands still
		s.mu.Lock()
		defer s.mu.Unlock()
		over = true
		s.touchLocked()
	})
	defer timer.Stop()
	for {
		s.mu.Lock()
		seen, late := s.count, over
		s.mu.Unlock()
		st := l.read()
		if cond(st) {
			s.settle() // so that the clients have received their replies
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
			until = s.ends(until, w.TTL)
			until = s.ends(until, w.TTL+queueSurplus)
		}
		s.mu.Lock()
		for s.count == seen && !over && (until.IsZero() || s.clock.Now().Before(until)) {
			s.waitLocked(s.change, until)
		}
		s.mu.Unlock()
	}
}

// queueSurplus is how much longer than its last waiter the queue's key lasts.
const queueSurplus = 500 * time.Millisecond

// ends returns the earlier of until and the time at which a TTL has ended. Redis rounds TTLs down to milliseconds.
func (s *Server) ends(until time.Time, left time.Duration) time.Time {
	if left < 0 {
		return until
	}
	return earliest(until, s.clock.Now().Add(left+time.Millisecond))
}

// AssertFree fails the test unless the lock is free and its queue is empty. A lock that was released is not free until
// its minimum hold is over. Expire ends the minimum hold as well.
func (l Lock) AssertFree() {
	l.server.tb.Helper()
	if st := l.State(); len(st.Holders) > 0 || st.Waiting+st.Expired > 0 {
		l.server.tb.Errorf("want the lock free; %s", l.describe())
	}
}

// AssertHeldBy fails the test unless exactly these clients hold the lock, in any order. A client with two leases is
// named twice. A client that has released the lock holds it until its minimum hold is over; State().Holders[0].Released
// tells the two apart.
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

// AssertNothingLeft fails the test if any lock of the server is held or has waiters. A released lock counts as held
// until its minimum hold is over. Keys may remain: the fence for FenceTTL, a number of permits set by Resize until
// ResetSize, others for some seconds.
func (s *Server) AssertNothingLeft() {
	s.tb.Helper()
	s.settle()
	s.tick()
	for _, key := range s.Miniredis.Keys() {
		if !strings.Contains(key, ":{") {
			continue // not a key of a lock
		}
		var texts []string
		switch key[strings.LastIndexByte(key, ':')+1:] {
		case "lock":
			text, _ := s.Miniredis.Get(key)
			owner, _, _ := strings.Cut(text, " ") // and the fence
			texts = []string{owner}
		case "queue":
			texts, _ = s.Miniredis.ZMembers(key)
		case "permits":
			ends, _ := s.Miniredis.SortedSet(key)
			for text, end := range ends {
				if end > float64(s.Now().UnixMicro()) {
					texts = append(texts, text)
				}
			}
			slices.Sort(texts)
		}
		var clients []string
		for _, text := range texts {
			t, err := token.Parse(text)
			switch {
			case err != nil: // it is not a key of a lock, and only named like one
			case t.Terms().Flags&tokens.Released != 0:
				clients = append(clients, t.Client()+" (released, its minimum hold is not over)")
			default:
				clients = append(clients, t.Client())
			}
		}
		if len(clients) > 0 {
			s.tb.Errorf("left behind in %s: %s", key, list(clients))
		}
	}
}

// describe returns a lock's state as text.
func (l Lock) describe() string {
	st, err := l.inspect()
	if err != nil {
		return fmt.Sprintf("%s: %v", l.name, err)
	}
	name := fmt.Sprintf("%v %s", l.kind, l.name)
	if l.namespace != bounds.DefaultNamespace {
		name += " in " + l.namespace
	}
	return fmt.Sprintf("%s is %s, and %s", name, held(st), queue(st))
}

// held lists the holders as text, including those that have released the lock while its minimum hold lasts.
func held(st admin.State) string {
	var parts, names []string
	for _, h := range st.Holders {
		if h.Released {
			parts = append(parts, fmt.Sprintf("released by %s, free in %v", h.Client, h.TTL.Round(10*time.Millisecond)))
		} else {
			names = append(names, h.Client)
		}
	}
	if len(names) > 0 || len(parts) == 0 {
		parts = slices.Insert(parts, 0, "held by "+list(names))
	}
	return strings.Join(parts, ", ")
}

func queue(st admin.State) string {
	if len(st.Waiters) == 0 {
		return "has no waiters"
	}
	return "has in its queue: " + list(waiters(st))
}

func holders(st admin.State) []string {
	var names []string
	for _, h := range st.Holders {
		names = append(names, h.Client)
	}
	return names
}

func waiters(st admin.State) []string {
	var names []string
	for _, w := range st.Waiters {
		names = append(names, w.Client)
	}
	return names
}

func list(names []string) string {
	if len(names) == 0 {
		return "no client"
	}
	return strings.Join(names, ", ")
}

// same reports whether two lists hold the same names.
func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// other returns a client of this package, which has no faults. A Lock's methods act as it; that with an empty name
// inspects.
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
	link.immune, link.unobserved = true, client == ""
	cfg.Trace = &fairlock.Trace{Abandoned: func(info fairlock.AbandonedInfo) { c.tried = info.Token }}
	c = s.client(cfg, link)
	s.mu.Lock()
	s.others[key] = c
	s.mu.Unlock()
	return c
}

// inspector returns the client that inspects.
func (s *Server) inspector() *Client { return s.other(bounds.DefaultNamespace, "") }
