package fairlock_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
)

// texts are what a server or a proxy replies to every request: some of each class. script.TestOriginOf has all.
var texts = []string{
	readOnly, misconf, "NOREPLICAS Not enough good replicas to write.",
	"NOPERM User u has no permissions", "NOAUTH Authentication required.", "upstream failure",
	"WRONGTYPE x", "ERR user_script:12: attempt to index a nil value", "MOVED 1 127.0.0.1:6380",
}

// fault begins a fault of a client's Redis. What it returns ends it.
type fault = func(s *fairlocktest.Server, c *fairlocktest.Client) (end func())

func faults() map[string]fault {
	all := map[string]fault{
		"the link is cut": func(_ *fairlocktest.Server, c *fairlocktest.Client) func() { c.Link.Cut(); return c.Link.Mend },
		"Redis hangs":     func(_ *fairlocktest.Server, c *fairlocktest.Client) func() { c.Link.Hang(); return c.Link.Mend },
		"the Redis client is closed": func(_ *fairlocktest.Server, c *fairlocktest.Client) func() {
			_ = c.Redis.Close()
			return func() {}
		},
	}
	for _, text := range texts {
		all[text] = func(s *fairlocktest.Server, _ *fairlocktest.Client) func() {
			s.Miniredis.SetError(text)
			return func() { s.Miniredis.SetError("") }
		}
	}
	return all
}

// operation is what a client does while Redis does not serve it. Its client has used Redis before, unless it is new.
type operation struct {
	name  string
	ttl   time.Duration // of a lease that it holds; 0: it holds none
	isNew bool
	early bool // it begins before the fault
	do    func(ctx context.Context, c *fairlocktest.Client, m fairlock.Mutex, l *fairlock.Lease) error
}

// lease20 and lease10 are TTLs that last longer than a fault, and that do not.
const lease20, lease10 = 20 * time.Second, 10 * time.Second

// operations are some that wait or hold, Ping, and each method of a lock or a lease that gets a ctx.
func operations() []operation {
	lock := func(ctx context.Context, _ *fairlocktest.Client, m fairlock.Mutex, _ *fairlock.Lease) error {
		_, err := m.Lock(ctx)
		return err
	}
	keeps := func(ctx context.Context, _ *fairlocktest.Client, _ fairlock.Mutex, l *fairlock.Lease) error {
		select {
		case <-l.Done():
			return l.Err()
		case <-ctx.Done():
			return nil
		}
	}
	all := []operation{
		{name: "Lock of a new client", isNew: true, do: lock},
		{name: "waiter", early: true, do: lock},
		{name: "waiter for 2 s", early: true, do: func(
			ctx context.Context, c *fairlocktest.Client, m fairlock.Mutex, l *fairlock.Lease,
		) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return lock(ctx, c, m, l)
		}},
		{name: "lease of 20 s", ttl: lease20, early: true, do: keeps},
		{name: "lease of 10 s", ttl: lease10, early: true, do: keeps},
		{name: "Unlock of 10 s", ttl: lease10, do: func(
			ctx context.Context, _ *fairlocktest.Client, _ fairlock.Mutex, l *fairlock.Lease,
		) error {
			return l.Unlock(ctx)
		}},
		{name: "Ping", do: func(ctx context.Context, c *fairlocktest.Client, _ fairlock.Mutex, _ *fairlock.Lease) error {
			return c.Ping(ctx)
		}},
	}
	for kind, of := range map[string]func(c *fairlock.Client, name string, l *fairlock.Lease) any{
		"Mutex":     func(c *fairlock.Client, name string, _ *fairlock.Lease) any { return c.Mutex(name) },
		"RWMutex":   func(c *fairlock.Client, name string, _ *fairlock.Lease) any { return c.RWMutex(name) },
		"Semaphore": func(c *fairlock.Client, name string, _ *fairlock.Lease) any { return c.Semaphore(name, 2) },
		"Lease":     func(_ *fairlock.Client, _ string, l *fairlock.Lease) any { return l },
	} {
		for method := range methods(of(new(fairlock.Client), "", nil)) {
			o := operation{name: kind + "." + method, do: func(
				ctx context.Context, c *fairlocktest.Client, m fairlock.Mutex, l *fairlock.Lease,
			) error {
				handle := fairlock.Handle("")
				if l != nil {
					handle = l.Handle()
				}
				return methods(of(c.Client, m.Name(), l), 1, handle, nothing)[method](ctx)
			}}
			switch {
			case kind == "Lease":
				o.ttl = lease20
			case method == "Resume":
				o.ttl = time.Hour // it needs no renewal
			}
			if kind == "Mutex" || method != "Resume" { // the leases are of mutexes
				all = append(all, o)
			}
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.name, b.name) })
	return all
}

// The outcome of each operation while Redis does not serve its client for 12 s, and after how many seconds it comes.
// Also what Stats says after 11 s, and what is logged. Faults with the same outcome share an entry. The expected
// outcomes are in testdata/faults.txt; -update writes it.
//
//fairlock:fault The user lacks rights, the password was changed, the server is full, or a proxy replies by itself: a call without a ticket or a lease returns ErrRefused at once; queued waiters, renewals and releases go on once a second, while ctx or the lease lasts; Stats.RefusedSince and a line of the log tell it
//fairlock:fault A server cannot serve a first request (READONLY, LOADING, …), or does not answer any more: Lock, Do and Acquire wait for as long as ctx lasts
//fairlock:fault A first request cannot connect: Lock gives up after 10 s, if no server has ever answered the client
//fairlock:fault Redis does not serve a call that does not wait for the lock (Try…, Waiting, Resume): it tries for 3 s
//fairlock:fault The Redis client is one of a single server, and the server is a node of a Cluster; or the Redis client is closed: an error at once
//fairlock:fault Redis is down for a while
//fairlock:fault Redis cannot save its data (MISCONF): a waiter keeps its ticket, and Unlock releases the lock as soon as Redis accepts writes
//fairlock:fault Redis refuses writes for a while when a lock is released (READONLY, LOADING, NOREPLICAS, …): Unlock retries with back-off, and the next waiter has the lock as soon as Redis accepts it
//fairlock:fault Redis refuses to release a lock (rights, password, memory, a proxy): Unlock tries for 3 s, then returns ErrRefused; the release goes on each second until the lease would have ended, and Unlock may be called again
//fairlock:fault Unlock cannot reach Redis: it tries until the lease would have ended, then returns an error that is not ErrLost; an error that no retry cures is returned at once, and Unlock may be called again
//fairlock:fault Redis or a proxy refuses for some seconds (a user is off, a right is missing, the server is full, any text): a first Lock, TryLock, Inspect or Ping returns ErrRefused at once; calls with a ticket and leases go on, and so do leaders, candidates and fairlock run
//fairlock:fault The address is a replica's, or the primary lacks replicas (READONLY, NOREPLICAS): Lock waits; Stats and one line say since when Redis does not serve the client, and one line when it is over
//fairlock:promise Ping
func TestFaults(t *testing.T) {
	var mu sync.Mutex
	like := map[string][]string{} // faults, by what becomes of the operations
	t.Run("of", func(t *testing.T) {
		for name, f := range faults() {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *fairlocktest.Server) {
					text := under(t, s, f)
					mu.Lock()
					defer mu.Unlock()
					like[text] = append(like[text], name)
				})
			})
		}
	})
	var all []string
	for text, names := range like {
		slices.Sort(names)
		all = append(all, strings.Join(names, "\n")+"\n"+text)
	}
	slices.Sort(all)
	golden.Equal(t, "faults.txt", strings.Join(all, "\n"))
}

// under returns what becomes of each operation under a fault.
func under(t *testing.T, s *fairlocktest.Server, begins fault) string {
	t.Helper()
	const lasts = 12 * time.Second
	type trial struct {
		operation
		*fairlocktest.Client
		log   logged
		start func()
		q     *acquisition
	}
	var all []*trial
	holder := s.Client(fairlock.Config{TTL: time.Hour})
	var held []*fairlock.Lease
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, o := range operations() {
		tr := &trial{operation: o}
		tr.Client = clientWith(t, s, fairlock.Config{TTL: o.ttl, WaiterTTL: time.Minute, Logger: tr.log.logger()},
			func(ro *redis.Options) { ro.MaxRetries, ro.ReadTimeout = -1, 1200*time.Millisecond }) // not a limit of the library
		m := tr.Mutex(o.name)
		var lease *fairlock.Lease
		switch {
		case strings.HasPrefix(o.name, "waiter"):
			unlock(t, hold(t, m.Lock))
			held = append(held, hold(t, holder.Mutex(o.name).Lock))
		case o.ttl > 0:
			lease = hold(t, m.Lock)
		case !o.isNew:
			unlock(t, hold(t, m.Lock))
		}
		tr.start = func() {
			tr.q = begin(ctx, func(ctx context.Context) (*fairlock.Lease, error) { return nil, o.do(ctx, tr.Client, m, lease) })
		}
		if all = append(all, tr); o.early {
			tr.start()
		}
	}
	pass(interval / 2)
	start := time.Now()
	var ends []func()
	for _, tr := range all {
		if ends = append(ends, begins(s, tr.Client)); !tr.early {
			tr.start()
		}
	}
	pass(lasts - time.Second)
	stats := map[*trial]string{}
	for _, tr := range all {
		st := tr.Stats()
		for name, since := range map[string]time.Time{"outage": st.OutageSince, "refused": st.RefusedSince} {
			if !since.IsZero() {
				stats[tr] = fmt.Sprintf("%s since %.0fs", name, since.Sub(start).Truncate(6*time.Second).Seconds())
			}
		}
	}
	pass(time.Second - time.Millisecond)
	for _, end := range ends {
		end()
	}
	back := time.Now()
	pass(2 * time.Second)
	for _, l := range held {
		unlock(t, l)
	}
	pass(time.Minute)
	var text strings.Builder
	for _, tr := range all {
		became := "goes on"
		if !tr.q.pending() {
			after := tr.q.at.Sub(start).Truncate(time.Second).String()
			if !tr.q.at.Before(back) {
				after = "then"
			}
			became = strings.TrimSpace(after + " " + fairlock.ErrorType(tr.q.err))
		}
		_, _ = tr.Mutex("other").TryLock(t.Context()) // which may find that it is over
		synctest.Wait()
		if now := tr.Stats(); len(tr.log.sofar()) > 1 {
			assert.Zero(t, now.OutageSince)
			assert.Zero(t, now.RefusedSince)
		}
		var logs []string
		for _, line := range tr.log.sofar() {
			if found := messageOf.FindString(line); found != "" {
				logs = append(logs, found)
			}
		}
		fmt.Fprintln(&text, strings.TrimRight(fmt.Sprintf("   %-22s%-26s%-20s%s", tr.name, became, stats[tr],
			strings.Join(logs, ", ")), " "))
	}
	return text.String()
}

// messageOf finds what is told of an outage, of a loss, and of a subscription.
var messageOf = regexp.MustCompile(`outage begins|outage is over|refusals begin|refusals are over|lock lost|subscription is (down|up again)`)
