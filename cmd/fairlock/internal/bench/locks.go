package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/lua"
)

// Client is one client's connections, and its locks on them. Both are the caller's to close.
type Client struct {
	Redis redis.UniversalClient
	Locks *fairlock.Client
}

// stage is where it is measured: the clients, and names that nobody else has.
type stage struct {
	Config
	clients   []Client
	namespace string
	run       string // part of every name of this run
}

func newStage(clients []Client, namespace string, cfg Config) stage {
	return stage{cfg, clients, namespace, "bench-" + rand.Text()[:12]}
}

// client is the i-th goroutine's.
func (s stage) client(i int) Client { return s.clients[i%len(s.clients)] }

// private is the name of the lock that is the i-th goroutine's alone.
func (s stage) private(i int) string { return s.run + "-" + strconv.Itoa(i) }

// lock is how the i-th goroutine gets the lock with that name. Of a read-write lock, a writer if write is set.
func (s stage) lock(ctx context.Context, i int, name string, write bool) (*fairlock.Lease, error) {
	switch c := s.client(i).Locks; {
	case s.Kind == Semaphore:
		return c.Semaphore(name, s.Permits).Acquire(ctx, 1)
	case s.Kind == RW && write:
		return c.RWMutex(name).Lock(ctx)
	case s.Kind == RW:
		return c.RWMutex(name).RLock(ctx)
	default:
		return c.Mutex(name).Lock(ctx)
	}
}

// pairs measures n goroutines that lock and unlock locks of their own.
func (s stage) pairs(ctx context.Context, sl *slice, n int) {
	sl.each(ctx, n, func(ctx context.Context, i int) error {
		start := sl.now()
		lease, err := s.lock(ctx, i, s.private(i), true)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			return err
		}
		sl.op(start)
		return nil
	})
}

// compareAndDelete is how a lock that is one key with a token is given back.
var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// floorTTL is that of the floor's keys.
const floorTTL = 10 * time.Second

// floorPairs measures the same by the least that a lock with a token can be: two bare round trips.
func (s stage) floorPairs(ctx context.Context, sl *slice, n int) {
	sl.each(ctx, n, func(ctx context.Context, i int) error {
		rdb, key, token := s.client(i).Redis, s.floorKey(i), "token-"+strconv.Itoa(i)
		start := sl.now()
		if err := rdb.Do(ctx, "set", key, token, "nx", "px", floorTTL.Milliseconds()).Err(); err != nil {
			return fmt.Errorf("floor: SET NX: %w", err)
		}
		deleted, err := compareAndDelete.Run(ctx, rdb, []string{key}, token).Int()
		switch {
		case err != nil:
			return fmt.Errorf("floor: compare and delete: %w", err)
		case deleted != 1:
			return errors.New("floor: the key was gone")
		}
		sl.op(start)
		return nil
	})
}

func (s stage) floorKey(i int) string { return s.namespace + ":{" + s.private(i) + "}:floor" }

// handoffs measures contenders that lock and unlock one lock without a pause. An operation is a grant; its latency is
// the time from the last release before it, if the one that got in was waiting by then.
func (s stage) handoffs(ctx context.Context, sl *slice) {
	var released atomic.Int64 // when the last release began
	released.Store(-1)
	sl.each(ctx, s.Contenders, func(ctx context.Context, i int) error {
		asked := sl.now()
		lease, err := s.lock(ctx, i, s.run, i%4 == 0)
		if err != nil {
			return err
		}
		if in := sl.now(); in < sl.length {
			sl.ops.Add(1)
			if last := time.Duration(released.Load()); last >= asked {
				sl.latency.add(in - last)
			}
		}
		released.Store(int64(sl.now()))
		return lease.Unlock(ctx)
	})
}

// clean deletes what is left of a run: the fences, and what was under way when it was stopped.
func (s stage) clean(ctx context.Context) error {
	rdb := s.clients[0].Redis
	pipe := rdb.Pipeline()
	for i := range s.Contenders {
		pipe.Del(ctx, s.floorKey(i))
		pipe.Del(ctx, s.keys(s.private(i))...)
	}
	pipe.Del(ctx, s.keys(s.run)...)
	_, err := pipe.Exec(ctx)
	return err
}

func (s stage) keys(name string) []string {
	if s.Kind == Mutex {
		k := lua.MutexKeys(s.namespace, name)
		return []string{k.Queue, k.Heartbeats, k.Tombstones, k.Number, k.Lock}
	}
	k := lua.SemaphoreKeys(s.namespace, name)
	if s.Kind == RW {
		k = lua.RWMutexKeys(s.namespace, name)
	}
	return []string{k.Queue, k.Heartbeats, k.Tombstones, k.Number, k.Permits, k.Holders}
}
