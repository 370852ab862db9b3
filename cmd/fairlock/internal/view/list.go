package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Listed is how many holders of each lock List returns.
const Listed = 10

// step is how many keys one SCAN looks at: about half a millisecond of the server's time.
const step = 500

// Want is which locks are wanted. The zero Want wants all.
type Want struct {
	Prefix string // how their names begin
	Kinds  []Kind // nil: all
}

func (w Want) fits(id ID) bool { return w.Kinds == nil || slices.Contains(w.Kinds, id.Kind) }

// Progress is how far List has come.
type Progress struct {
	Keys  int64 // looked at, about
	Total int64 // on all servers, when it began; 0: unknown
	Locks int   // found in use
}

// String is a line for a person.
func (p Progress) String() string {
	keys := fmt.Sprintf("%d keys", p.Keys)
	if p.Total > 0 {
		keys = fmt.Sprintf("%d of %d keys", min(p.Keys, p.Total), p.Total)
	}
	return fmt.Sprintf("%s searched, %s in use", keys, count(p.Locks, "lock"))
}

// List finds all locks in use that are wanted, on every master of a cluster, and returns them in order of their names,
// each with up to Listed holders and no waiters. A lock that is in use from beginning to end is found, unless its slot
// moves meanwhile. The error says what could not be read; what could is returned all the same. progress may be nil;
// it is called after every step, never twice at a time, and not after List has returned.
func (s Server) List(ctx context.Context, want Want, progress func(Progress)) ([]Lock, error) {
	locks, _, err := s.search(ctx, want, progress)
	return locks, err
}

// search is List; it also tells how many keys it has looked at.
func (s Server) search(ctx context.Context, want Want, progress func(Progress)) ([]Lock, int64, error) {
	l := &list{server: s, want: want, seen: map[ID]struct{}{}, progress: progress}
	err := l.everywhere(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	slices.SortFunc(l.locks, func(a, b Lock) int { return a.compare(b.ID) })
	if err != nil {
		l.faults = append(l.faults, err)
	}
	return l.locks, l.at.Keys, gather(l.faults)
}

type list struct {
	server Server
	want   Want

	mu       sync.Mutex
	seen     map[ID]struct{} // guarded by mu
	locks    []Lock          // guarded by mu
	faults   []error         // guarded by mu
	at       Progress        // guarded by mu
	over     bool            // guarded by mu: what comes late is of no interest
	progress func(Progress)  // nil if nobody wants to know; called under mu, which it is too quick to mind
}

// everywhere scans all servers at the same time. What goes wrong on one does not keep the others from being read.
func (l *list) everywhere(ctx context.Context) error {
	switch rdb := l.server.Redis.(type) {
	case *redis.ClusterClient:
		_, err := await(ctx, func() (struct{}, error) { return struct{}{}, rdb.ForEachMaster(ctx, l.scan) })
		return err
	case *redis.Client:
		if err := alone(ctx, rdb); err != nil {
			return err
		}
		return l.scan(ctx, rdb)
	default:
		return errors.New("locks can be listed on one server, or on a cluster")
	}
}

// ErrPart says that the server is one of a cluster and was not connected to as that: it knows but a part of the locks.
var ErrPart = errors.New("this server is one of a cluster, and knows only a part of the locks")

// alone reports an ErrPart. HELLO needs no rights.
func alone(ctx context.Context, rdb *redis.Client) error {
	mode, err := await(ctx, func() (any, error) {
		hello, err := rdb.Do(ctx, "HELLO").Result()
		if refused(err) { // a proxy, or a server from before version 6
			return nil, nil
		}
		switch fields := hello.(type) {
		case map[any]any:
			return fields["mode"], err
		case []any: // the same in the old protocol
			if i := slices.Index(fields, any("mode")); i >= 0 && i+1 < len(fields) {
				return fields[i+1], err
			}
		}
		return nil, err
	})
	if mode == "cluster" {
		return ErrPart
	}
	return err
}

// scan goes through the keys of one server, and looks at the locks that they are of: one request at a time.
func (l *list) scan(ctx context.Context, rdb *redis.Client) error {
	if l.progress != nil {
		l.measure(ctx, rdb)
	}
	match := pattern(l.server.Namespace, l.want.Prefix)
	for cursor := uint64(0); ; {
		type page struct {
			keys   []string
			cursor uint64
		}
		found, err := await(ctx, func() (page, error) {
			keys, next, err := rdb.Scan(ctx, cursor, match, step).Result()
			return page{keys, next}, err
		})
		if err != nil {
			return err
		}
		cursor = found.cursor
		locks, err := l.server.Look(ctx, Listed, l.fresh(found.keys)...)
		l.add(locks, err)
		if cursor == 0 || ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// measure notes how many keys there are. A user without the right to know goes without.
func (l *list) measure(ctx context.Context, rdb *redis.Client) {
	keys, _ := await(ctx, func() (int64, error) { return rdb.DBSize(ctx).Result() })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at.Total += keys
}

// fresh tells the locks that were not seen before.
func (l *list) fresh(keys []string) []ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []ID
	for _, key := range keys {
		id, ours := parse(l.server.Namespace, key)
		if _, seen := l.seen[id]; ours && !seen && l.want.fits(id) {
			l.seen[id] = struct{}{}
			ids = append(ids, id)
		}
	}
	return ids
}

// add notes what a step has brought. Leftovers are not in use: of a waiter that has just left, of a lease that has
// just ended.
func (l *list) add(locks []Lock, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	for _, lock := range locks {
		if lock.InUse() {
			lock.Waiters = nil
			l.locks = append(l.locks, lock)
		}
	}
	if err != nil {
		l.faults = append(l.faults, err)
	}
	l.at.Keys, l.at.Locks = l.at.Keys+step, len(l.locks)
	if l.progress != nil {
		l.progress(l.at)
	}
}
