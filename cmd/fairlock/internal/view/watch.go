package view

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// MinInterval is the least time between two looks.
	MinInterval = 100 * time.Millisecond
	// rescan is the least time between two searches for locks: a search goes through all keys there are.
	rescan = 2 * time.Second
	// slow is after how long a look that has not ended is worth a word.
	slow = 3 * time.Second
	// restPerLock is the least time between two looks for each lock there is to look at: ten times what one costs Redis.
	restPerLock = time.Millisecond
	// restPerKey is the same between two searches for each key there is.
	restPerKey = 10 * time.Microsecond
	// watched is how many holders and how many waiters are read of a lock that is watched; no terminal has more rows.
	watched = 200
)

// Watch looks at locks again and again.
type Watch struct {
	Server Server
	IDs    []ID          // these locks; nil: all in use that are wanted, as they come and go
	Want   Want          // which, if IDs is nil
	Every  time.Duration // between two looks
}

// Glance is what one look has seen.
type Glance struct {
	Locks []Lock // the named ones, also if they are free; of others those that are or were in use
	Err   error  // why something is missing there
}

// Run looks until ctx ends, and has see see what it finds, one glance after the other. What changes between two looks
// is not seen.
func (w Watch) Run(ctx context.Context, see func(Glance)) {
	look := func(ctx context.Context) Glance { return w.look(ctx, watched, w.IDs, see) }
	if w.IDs == nil {
		f := &finder{watch: w, first: make(chan struct{})}
		var tasks sync.WaitGroup
		defer tasks.Wait()
		tasks.Go(func() { f.run(ctx) })
		look = func(ctx context.Context) Glance { return f.look(ctx, see) }
	}
	repeat(ctx, w.Every, func(ctx context.Context) time.Duration {
		g := look(ctx)
		if ctx.Err() == nil {
			see(g)
		}
		return restPerLock * time.Duration(len(g.Locks))
	})
}

// repeat calls f until ctx ends, every so often, or as long after its end as f says if that is later.
func repeat(ctx context.Context, every time.Duration, f func(context.Context) time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		rest := f(ctx)
		select {
		case <-time.After(max(every-time.Since(began), rest)):
		case <-ctx.Done():
		}
	}
}

// look looks once. If that takes long, it says so meanwhile.
func (w Watch) look(ctx context.Context, limit int, ids []ID, see func(Glance)) Glance {
	done := make(chan Glance, 1)
	go func() {
		locks, err := w.Server.Look(ctx, limit, ids...)
		done <- Glance{locks, err}
	}()
	select {
	case g := <-done:
		return g
	case <-time.After(slow):
		see(Glance{Err: fmt.Errorf("looking takes longer than %v", slow)})
		return <-done
	}
}

// finder searches for locks while others are looked at.
type finder struct {
	watch Watch
	first chan struct{} // closed after the first search

	mu  sync.Mutex
	ids []ID  // guarded by mu; in order
	err error // guarded by mu; of the last search

	used []ID // in use at the last look
}

func (f *finder) run(ctx context.Context) {
	first := sync.OnceFunc(func() { close(f.first) })
	repeat(ctx, rescan, func(ctx context.Context) time.Duration {
		locks, keys, err := f.watch.Server.search(ctx, f.watch.Want, nil)
		f.mu.Lock()
		f.ids, f.err = ids(locks), err
		f.mu.Unlock()
		first()
		return restPerKey * time.Duration(keys)
	})
	first()
}

// look looks at what was found, and at what was in use before: whoever saw that sees that it is free.
func (f *finder) look(ctx context.Context, see func(Glance)) Glance {
	<-f.first
	f.mu.Lock()
	all, fault := slices.Concat(f.ids, f.used), f.err
	f.mu.Unlock()
	slices.SortFunc(all, ID.compare)
	g := f.watch.look(ctx, Listed, slices.Compact(all), see)
	for i := range g.Locks {
		g.Locks[i].Waiters = nil // as List
	}
	if g.Err == nil {
		f.used, g.Err = ids(InUse(g.Locks)), fault
	}
	return g
}

func ids(locks []Lock) []ID {
	ids := make([]ID, len(locks))
	for i, l := range locks {
		ids[i] = l.ID
	}
	return ids
}
