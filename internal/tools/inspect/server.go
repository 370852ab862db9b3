package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/keyspace"
)

// Lock is a lock at one moment.
type Lock struct {
	ID
	admin.State
	Namespace string // only if locks of all namespaces were wanted
	Err       error  // why it cannot be read, a key of something else for example; the State is zero then
}

// Unknown reports whether the lock could not be read now or by this user, so that it may be in use. A lock with a key
// of another program does not count.
func (l Lock) Unknown() bool { return l.Err != nil && call.OriginOf(l.Err) != call.Permanent }

// Held reports whether somebody holds the lock.
func (l Lock) Held() bool { return len(l.Holders) > 0 }

// Holder returns the holder that has held the lock longest; zero if there is none. A mutex has no other.
func (l Lock) Holder() (first admin.Holder) {
	if l.Held() {
		first = l.Holders[0]
	}
	return first
}

// InUse reports whether somebody holds the lock or waits for it, or whether it could not be read. Waiters that have
// expired do not count.
func (l Lock) InUse() bool { return l.Held() || l.Waiting > 0 || l.Err != nil }

// Idle reports whether the lock is unused, and its number of permits is kept because a resize has set it.
func (l Lock) Idle() bool { return l.Resized && !l.InUse() }

// Leads reports whether the lock is an election's, and its holder leads.
func (l Lock) Leads() bool { return l.Holder().Leader }

// HeldFor is how long Holder has held the lock; negative if the lock is not held, or if that is unknown.
func (l Lock) HeldFor() time.Duration {
	h := l.Holder()
	if h.Released || h.Fence == 0 {
		return -1
	}
	return h.Age
}

// ByHeld orders locks: first the one that has been held longest, last those that are or may be free. Each was read at a
// time of its own, so HeldFor cannot be compared.
func ByHeld(a, b Lock) int {
	since := func(l Lock) uint64 {
		if l.HeldFor() < 0 {
			return math.MaxUint64
		}
		return l.Holder().Fence
	}
	return cmp.Compare(since(a), since(b))
}

// ByWait orders locks: first the one whose oldest wait began first, last those without waiters. Each was read at a time
// of its own, so OldestWait cannot be compared.
func ByWait(a, b Lock) int {
	since := func(l Lock) int64 {
		if l.OldestWait <= 0 {
			return math.MaxInt64
		}
		return l.At.Add(-l.OldestWait).UnixMicro()
	}
	return cmp.Compare(since(a), since(b))
}

// longestHeld orders holders: first the one that has held the lock longest, last those that have released it. The order
// of two does not change with time.
func longestHeld(a, b admin.Holder) int {
	if a.Released != b.Released {
		return map[bool]int{true: 1, false: -1}[a.Released]
	}
	return cmp.Compare(a.Fence, b.Fence)
}

// Late returns how many holders are known to have missed renewals. all reports whether it is known of every holder.
func (l Lock) Late() (n int, all bool) {
	all = l.Unlisted() == 0
	for _, h := range l.Holders {
		if h.Missed > 0 {
			n++
		}
		all = all && (h.Renewed >= 0 || h.Released)
	}
	return n, all
}

// LateFirst are the holders: first those that have missed renewals.
func (l Lock) LateFirst() []admin.Holder {
	all := slices.Clone(l.Holders)
	slices.SortStableFunc(all, func(a, b admin.Holder) int { return min(b.Missed, 1) - min(a.Missed, 1) })
	return all
}

// Living are the listed waiters that have not expired.
func (l Lock) Living() (all []admin.Waiter) {
	for _, w := range l.Waiters {
		if w.TTL > 0 {
			all = append(all, w)
		}
	}
	return all
}

// Unlisted is how many holders are not listed, because there are more than Most; of a semaphore, how many permits they
// have.
func (l Lock) Unlisted() int {
	n := l.Used
	for _, h := range l.Holders {
		n -= h.Weight
	}
	return max(n, 0)
}

// OtherLimits are the other numbers of permits that are in use: "3", or "3 to 5"; "" if there are none.
func (l Lock) OtherLimits() string {
	switch n := len(l.Others); n {
	case 0:
		return ""
	case 1:
		return strconv.Itoa(l.Others[0])
	default:
		return fmt.Sprintf("%d to %d", l.Others[0], l.Others[n-1])
	}
}

// Server is a Redis, or a cluster of them, and a namespace there. It is safe for concurrent use.
type Server struct {
	Redis     redis.UniversalClient
	Namespace string
	Admin     *admin.Client   // of the same namespace
	calls     *sync.WaitGroup // that are under way, after their ctx has ended too
	*traffic
}

// On returns the Server of a client. A process that goes on without it calls Close, before it closes the client: a call
// whose ctx has ended may still be under way.
func On(rdb redis.UniversalClient, namespace string) *Server {
	return &Server{Redis: rdb, Namespace: namespace, traffic: &traffic{}, calls: &sync.WaitGroup{},
		Admin: admin.New(rdb, namespace)}
}

// Close waits for the calls that are under way.
func (s *Server) Close() { s.calls.Wait() }

const (
	// Most is how many holders and how many waiters of one lock are listed at most; more would keep Redis for too long.
	Most = bounds.MaxInspected
	// atOnce is how many locks are read at once. They may come in one pipeline, which Redis does not interrupt: about half
	// a millisecond of its time if they have few holders and waiters. Most of each take it 2 ms a lock.
	atOnce = 16
)

// Read reads these locks, and lists at most the given number of waiters of each. Up to Most holders are listed, first
// those that have held the lock longest. Redis does not order them so, and any of them may matter. The error says that
// a server did not reply or cannot run scripts now. The locks that could be read are returned all the same.
func (s *Server) Read(ctx context.Context, waiters int, ids ...ID) (read []Lock, err error) {
	_, cluster := s.Redis.(*redis.ClusterClient)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	locks, turn := make([]Lock, len(ids)), make(chan struct{}, atOnce)
	var tasks sync.WaitGroup
	for i, id := range ids {
		turn <- struct{}{}
		tasks.Go(func() {
			s.begin(perLock)
			s.calls.Add(1)
			state, err := Await(ctx, func() (admin.State, error) {
				defer s.calls.Done()
				return s.Admin.Inspect(ctx, fairlock.ID(id), Most, waiters)
			})
			if err = Bare(err); err != nil && ctx.Err() != nil {
				err = call.WithOrigin(err)
			}
			unanswered := err
			if !away(err) && ctx.Err() == nil { // it is about this lock
				unanswered = nil
			}
			s.end(unanswered)
			slices.SortStableFunc(state.Holders, longestHeld)
			state.Waiters = append([]admin.Waiter{}, state.Waiters...) // not nil
			locks[i] = Lock{ID: id, State: state, Err: err}
			if away(err) && !cluster {
				stop(err) // the others would not be read either
			}
			<-turn
		})
	}
	tasks.Wait()
	for _, l := range locks {
		if away(l.Err) {
			err = l.Err
		} else {
			read = append(read, l)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return read, err
}

// Bare returns the error of a method of admin without the lock's name. Callers that read many locks add it.
func Bare(err error) error {
	var e *fairlock.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// Unread is an error that says in one line which locks could not be read, and why; nil if all could. One cause is named
// once.
func Unread(all []Lock) error {
	var first error
	var causes []string
	n := 0
	name := ""
	for _, l := range all {
		if l.Err == nil {
			continue
		}
		if n++; first == nil {
			first, name = l.Err, l.String()
		}
		causes = addCause(causes, Cause(l.Err))
	}
	switch more := n - 1; {
	case n == 0:
		return nil
	case more == 0 && (len(all) == 1 || !Lacks(first)):
		return unread{name + ": " + causes[0], first}
	case len(causes) > 1:
		return unread{fmt.Sprintf("%s: %s (and %s)", name, causes[0], Count(more, "more error")), first}
	// of several kinds
	case n == len(all) && !slices.ContainsFunc(all, func(l Lock) bool { return l.Name != all[0].Name }):
		return unread{Plain(all[0].Name) + " could not be read: " + causes[0], first}
	case n == len(all):
		return unread{fmt.Sprintf("none of %s could be read: %s", Count(n, "lock"), causes[0]), first}
	}
	return unread{fmt.Sprintf("%d of %s could not be read: %s", n, Count(len(all), "lock"), causes[0]), first}
}

// addCause adds a cause that is not there yet. Two causes that name missing rights are merged to the rights in both,
// because scripts of two kinds name the same right among different others.
func addCause(causes []string, cause string) []string {
	rights := func(cause string) []string {
		if text, ok := strings.CutPrefix(cause, lacksText); ok {
			return strings.Split(text, " or ")
		}
		return []string{cause}
	}
	for i, c := range causes {
		own := rights(cause)
		both := slices.DeleteFunc(rights(c), func(r string) bool { return !slices.Contains(own, r) })
		if c == cause {
			return causes
		}
		if len(both) > 0 {
			causes[i] = lacksText + strings.Join(both, " or ")
			return causes
		}
	}
	return append(causes, cause)
}

// unread says why locks could not be read, and wraps the error of the first.
type unread struct {
	text string
	error
}

func (e unread) Error() string { return e.text }

func (e unread) Unwrap() error { return e.error }

// away reports that an error is not about one lock.
func away(err error) bool { return err != nil && call.Passes(err) }

// Passing reports that the server has replied that it does not serve the request now: it loads its data, cannot save
// them, runs a script.
func Passing(err error) bool { return call.OriginOf(call.WithOrigin(err)) == call.Unavailable }

// Refused reports that the server has replied, with an error.
func Refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// Await returns what f returns, or ctx's cause as soon as ctx ends: go-redis does not interrupt a call.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Ping returns an error if Redis, or a node of the cluster, does not reply.
func (s *Server) Ping(ctx context.Context) error {
	s.begin(0)
	err := s.Redis.Ping(ctx).Err()
	s.end(err)
	if Refused(err) {
		err = nil
	}
	return err
}

// Hello returns what a server tells every user about itself: its role and mode, for example. What is no Redis of
// version 6 or later tells nothing.
func Hello(ctx context.Context, rdb *redis.Client) (map[string]string, error) {
	reply, err := Await(ctx, func() (any, error) { return rdb.Do(ctx, "HELLO").Result() })
	fields := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			fields[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any: // the same in the old protocol
		for i := 0; i+1 < len(reply); i += 2 {
			fields[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	if Refused(err) {
		err = nil
	}
	return fields, err
}

// Want says which locks are wanted. The zero Want wants all.
type Want struct {
	Prefix string          // how their names begin
	Kinds  []fairlock.Kind // nil: all

	Waiters       bool // list the first few waiters of each lock
	AllNamespaces bool // and not only that of the Server; in the order of their names
}

// search is a Find under way.
type search struct {
	*Server
	want Want

	mu    sync.Mutex
	seen  map[place]bool // guarded by mu
	found []Lock         // guarded by mu
}

// place is a lock in a namespace.
type place struct {
	namespace string
	ID
}

// Find finds the wanted locks, on every master of a cluster. These are locks in use, locks whose waiters have all
// expired, and resized semaphores. It returns them in the order of their names, each with its holders as Read lists
// them, and no waiters unless they are wanted. A lock that is in use from beginning to end is found, unless its slot
// moves meanwhile. The error says what could not be read; what could is returned all the same.
func (s *Server) Find(ctx context.Context, want Want) ([]Lock, error) {
	f, pattern := &search{Server: s, want: want, seen: map[place]bool{}}, keyspace.Pattern(s.Namespace, want.Prefix)
	if want.AllNamespaces {
		pattern = keyspace.Everywhere
	}
	err := s.scan(ctx, pattern, f.read)
	f.mu.Lock()
	defer f.mu.Unlock()
	found := slices.Clone(f.found) // after the end of ctx, a search may still add to it
	slices.SortFunc(found, func(a, b Lock) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), a.Compare(b.ID)) })
	return found, err
}

// scan calls see with the keys that match a pattern, step by step. It goes through the masters of a cluster at the same
// time.
func (s *Server) scan(ctx context.Context, match string, see func(ctx context.Context, keys []string) error) error {
	each := func(ctx context.Context, rdb *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, err := Await(ctx, func() (keys []string, err error) {
				s.begin(PerStep)
				defer func() { s.end(err) }()
				keys, cursor, err = rdb.Scan(ctx, cursor, match, keyspace.Step).Result()
				return keys, err
			})
			if err == nil {
				err = see(ctx, keys)
			}
			if err != nil || cursor == 0 {
				return err
			}
		}
	}
	switch rdb := s.Redis.(type) {
	case *redis.ClusterClient:
		_, err := Await(ctx, func() (struct{}, error) { return struct{}{}, rdb.ForEachMaster(ctx, each) })
		return err
	case *redis.Client:
		return each(ctx, rdb)
	}
	return fmt.Errorf("locks cannot be searched with a %T", s.Redis)
}

// read reads the locks that keys are of.
func (f *search) read(ctx context.Context, keys []string) (err error) {
	for namespace, ids := range f.fresh(keys) {
		in := *f.Server
		if namespace != f.Namespace {
			in.Namespace, in.Admin = namespace, admin.New(f.Redis, namespace)
		}
		locks, unread := in.Read(ctx, keyspace.Few, ids...)
		err = cmp.Or(err, unread)
		f.add(namespace, locks)
	}
	return err
}

// add adds the locks that are worth listing.
func (f *search) add(namespace string, locks []Lock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range locks {
		if !f.want.Waiters {
			l.Waiters = nil
		}
		if f.want.AllNamespaces {
			l.Namespace = namespace
		}
		if l.InUse() || l.Idle() || l.Expired > 0 { // its waiter may have left meanwhile, or its lease have ended
			f.found = append(f.found, l)
		}
	}
}

// fresh returns the wanted locks that were not seen before, by their namespaces.
func (f *search) fresh(keys []string) map[string][]ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := map[string][]ID{}
	for _, text := range keys {
		namespace := f.Namespace
		if f.want.AllNamespaces {
			namespace, _, _ = strings.Cut(text, ":{")
		}
		if namespace == "" || bounds.WrongNamespace(namespace) != "" {
			continue // the key is of another program
		}
		key, ours := keyspace.Parse(namespace, text)
		at := place{namespace, idOf(key)}
		wanted := (f.want.Kinds == nil || slices.Contains(f.want.Kinds, at.Kind)) && strings.HasPrefix(at.Name, f.want.Prefix)
		if ours && key.Shows() && wanted && !f.seen[at] {
			f.seen[at] = true
			ids[namespace] = append(ids[namespace], at.ID)
		}
	}
	return ids
}
