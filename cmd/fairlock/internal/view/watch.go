package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/keyspace"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

const (
	// MinInterval is the least time between two reads.
	MinInterval = 100 * time.Millisecond
	// perLock times the number of locks is the least time between two reads. It is ten times what a read of one lock costs
	// Redis.
	perLock = time.Millisecond
	// searching is the least time between two searches, because each goes through all keys.
	searching = 2 * time.Second
	// silence is the time without a reply after which the values are called old.
	silence = 500 * time.Millisecond
	// watched is how many waiters of a lock are read.
	watched = 200
)

// Watch reads locks periodically.
type Watch struct {
	Server *inspect.Server
	IDs    []inspect.ID                // these locks; nil: all in use that Want selects, as they come and go
	Want   inspect.Want                // selects locks if IDs is nil
	Every  time.Duration               // between two reads
	Role   func(context.Context) error // an error if the server must not be read any more; may be nil
	// None says why none of them is in use, as far as that is known, and which locks the user may mean.
	None func(ctx context.Context, all []inspect.Lock) string
}

// Glance is the result of one read.
type Glance struct {
	Locks []inspect.Lock // the named ones, even free ones; of others those that are or were in use
	Err   error          // why locks are missing or out of date
	None  string         // the result of Watch.None, if nothing was in use at the first read or since
}

// errSilent is the Err of a Glance while Redis does not answer or a search takes long.
var errSilent = errors.New("no answer yet")

// Run reads the locks until ctx ends, and calls see with one Glance after the other. While it waits for a reply, it
// sends glances without locks that say so. It misses changes between two reads.
func (w Watch) Run(ctx context.Context, see func(Glance)) {
	var looking sync.WaitGroup
	defer looking.Wait()
	for look := w.looks(ctx); ctx.Err() == nil; {
		seen, began := make(chan Glance, 1), time.Now()
		looking.Go(func() { seen <- look() })
		for pause := max(w.Every, silence); pause > 0; {
			select {
			case g := <-seen:
				see(g)
				seen, pause = nil, max(w.Every-time.Since(began), perLock*time.Duration(len(g.Locks)), 1)
			case <-time.After(pause):
				if seen != nil {
					see(Glance{Err: errSilent})
				} else {
					pause = 0
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// looks returns a function that reads the locks once. It reads the named locks, or those that the last search has found
// or that were in use at the last read. So a lock is shown once more when it has become free.
func (w Watch) looks(ctx context.Context) func() Glance {
	ids, limit := w.IDs, watched
	var fault error        // of the last search
	var searchAt time.Time // of the next search; searches take a tenth of Redis's time at most
	var none string
	first := true
	return func() Glance {
		if w.Role != nil {
			if err := w.Role(ctx); err != nil {
				return Glance{Err: err}
			}
		}
		if began := time.Now(); w.IDs == nil && !began.Before(searchAt) {
			var found []inspect.Lock
			found, fault = w.Server.Find(ctx, w.Want)
			for _, l := range found {
				ids = append(ids, l.ID)
			}
			slices.SortFunc(ids, inspect.ID.Compare)
			ids, limit, searchAt = slices.Compact(ids), keyspace.Few, began.Add(max(searching, 10*time.Since(began)))
		}
		all, err := w.Server.Read(ctx, limit, ids...)
		for i := range all {
			if w.IDs == nil {
				all[i].Waiters = nil // as Find
			}
		}
		if w.IDs == nil && err == nil {
			ids = nil
			for _, l := range InUse(all) {
				ids = append(ids, l.ID)
			}
		}
		if len(InUse(all)) > 0 {
			none = ""
		} else if first && w.None != nil && err == nil && fault == nil {
			none = w.None(ctx, all)
		}
		first = first && cmp.Or(err, fault) != nil
		return Glance{all, cmp.Or(err, fault), none}
	}
}

// Changes finds the locks that have changed from one Glance to the next. The zero Changes has seen nothing.
type Changes struct {
	JSON bool // compare also the fields that only JSON shows

	seen map[inspect.ID]string
}

// key returns a text that changes when a lock changes.
func (c *Changes) key(l inspect.Lock) string {
	text := Line(l)
	for _, h := range l.Holders {
		text += fmt.Sprint("\n", h.Token.Text(), h.Fence)
	}
	for _, w := range l.Waiters {
		text += fmt.Sprint("\n", w.Token.Text(), w.TTL <= 0)
	}
	if !c.JSON {
		text = Line(l)
	}
	return text
}

// Of returns the locks that have changed, at first all that are worth showing.
func (c *Changes) Of(g Glance) (changed []inspect.Lock) {
	seen := make(map[inspect.ID]string, len(g.Locks))
	for _, l := range g.Locks {
		seen[l.ID] = c.key(l)
		if was, known := c.seen[l.ID]; seen[l.ID] != was && (known || l.InUse()) {
			changed = append(changed, l)
		}
	}
	switch {
	case g.Err != nil: // a kind that could not be read may be in use, so do not report the name as free
		for id, key := range c.seen {
			if _, read := seen[id]; !read {
				seen[id] = key
			}
		}
	case c.seen == nil:
		changed = Worth(g.Locks)
	}
	if g.Err == nil || len(g.Locks) > 0 {
		c.seen = seen
	}
	return changed
}
