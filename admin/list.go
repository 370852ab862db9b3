package admin

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/keyspace"
)

// List finds the locks whose names begin with prefix: those in use, those whose waiters have all expired, and
// semaphores that were resized. Each comes with up to 1,000 of its holders and 10 of its waiters. The locks are in no
// order. A lock that is in use during the whole call is found, unless its slot of a Cluster moves meanwhile.
//
// An error about one lock, such as a key of another program, comes with the ID of that lock, and others follow. An
// error without one ends the list: a master of a Cluster could not be searched, or ctx has ended. Each request keeps
// Redis busy for about half a millisecond.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		err := c.check()
		var masters []*redis.Client
		if err == nil {
			masters, err = c.masters(ctx)
		}
		seen := map[fairlock.ID]bool{}
		for _, master := range masters {
			for cursor, more := uint64(0), true; more && err == nil; more = cursor != 0 {
				var keys []string
				keys, cursor, err = master.Scan(ctx, cursor, keyspace.Pattern(c.namespace, prefix), keyspace.Step).Result()
				for _, text := range keys {
					key, ours := keyspace.Parse(c.namespace, text)
					id := fairlock.ID{Kind: fairlock.Kind(key.Kind), Name: key.Name}
					if !ours || !key.Shows() || seen[id] {
						continue
					}
					seen[id] = true
					s, failed := c.Inspect(ctx, id, bounds.MaxInspected, keyspace.Few)
					s.ID = id
					if ctx.Err() == nil && (failed != nil || s.shown()) && !yield(s, failed) {
						return
					}
				}
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(State{}, &fairlock.Error{Op: "list", Name: prefix, Err: err})
		}
	}
}

// shown reports whether List yields the lock. It does not if the last waiter has left or the lease has ended meanwhile.
func (s State) shown() bool { return len(s.Holders) > 0 || s.Waiting > 0 || s.Expired > 0 || s.Resized }

// masters returns the servers that have keys.
func (c *Client) masters(ctx context.Context) (all []*redis.Client, _ error) {
	switch rdb := c.rdb.(type) {
	case *redis.Client:
		return []*redis.Client{rdb}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex
		err := rdb.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, master)
			return nil
		})
		return all, err
	default:
		return nil, fmt.Errorf("locks cannot be searched with a %T", rdb)
	}
}
