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
	// MinInterval is the least time between two looks.
	MinInterval = 100 * time.Millisecond
	// perLock is the least time between two looks for each lock: ten times what one costs Redis.
	perLock = time.Millisecond
	// searching is the least time between two searches: they go through all keys there are.
	searching = 2 * time.Second
	// silence is after how long without an answer the values are called old.
	silence = 500 * time.Millisecond
	// watched is how many waiters are read of a lock that is watched.
	watched = 200
)

// Watch looks at locks again and again.
type Watch struct {
	Server *inspect.Server
	IDs    []inspect.ID                // these locks; nil: all in use that are wanted, as they come and go
	Want   inspect.Want                // which, if IDs is nil
	Every  time.Duration               // between two looks
	Role   func(context.Context) error // an error if the server is not to be looked at any more; nil: none is
	// None says why none of them is in use, as far as that is known, and what may have been meant.
	None func(ctx context.Context, all []inspect.Lock) string
}

// Glance is what one look has seen.
type Glance struct {
	Locks []inspect.Lock // the named ones, also if they are free; of others those that are or were in use
	Err   error          // why something is missing there
	None  string         // what Watch.None has said of the first look, if nothing was in use then, nor since
}

// errSilent is the Err of a Glance while Redis does not answer, or goes through very many keys.
var errSilent = errors.New("no answer yet")

// Run looks until ctx ends, and has see see what it finds, one glance after the other; while it waits for an answer, it
// says so in glances without locks. What changes between two looks is not seen.
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

// looks returns a function that looks once: at the named locks, or at those that were found, or in use when it looked
// last, so that a lock is seen to be free.
func (w Watch) looks(ctx context.Context) func() Glance {
	ids, limit := w.IDs, watched
	var fault error        // of the last search
	var searchAt time.Time // a search takes a tenth of Redis's time at most
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

// Changes tells what has changed from one glance to the next. The zero Changes has seen nothing.
type Changes struct {
	JSON bool // also what a Line has no room for

	seen map[inspect.ID]string
}

// key is what changes when a lock changes.
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

// Of are the locks that have changed: at first all that are worth showing.
func (c *Changes) Of(g Glance) (changed []inspect.Lock) {
	seen := make(map[inspect.ID]string, len(g.Locks))
	for _, l := range g.Locks {
		seen[l.ID] = c.key(l)
		if was, known := c.seen[l.ID]; seen[l.ID] != was && (known || l.InUse()) {
			changed = append(changed, l)
		}
	}
	switch {
	case g.Err != nil: // what could not be read now may be as it was, and that one kind is free may mislead
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
