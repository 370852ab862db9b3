package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/workload"
)

// Config says what is measured.
type Config struct {
	locks.Type
	Contenders int           `json:"contenders"` // goroutines, over all clients
	Clients    int           `json:"clients"`    // with connections of their own
	Duration   time.Duration `json:"-"`          // of all slices together, without warming up
}

// Check returns what is wrong with a Config.
func (c Config) Check() error {
	return cmp.Or(
		c.Type.Check(),
		locks.Within("contenders", c.Contenders, 1, 10_000),
		locks.Within("clients", c.Clients, 1, 1000),
		locks.Within("duration", c.Duration, 100*time.Millisecond, 24*time.Hour),
	)
}

// rounds is how many times everything is measured, in turn.
const rounds = 5

// Run measures on clients of its own, each on connections that connect has made. It calls progress before each
// workload. If ctx ends or there is an error, the result has what was measured until then. It has no Workloads if that
// was nothing. Run deletes its keys from Redis within 5 s, even after the end of ctx.
func Run(
	ctx context.Context, cfg Config, connect func(context.Context) (redis.UniversalClient, error), namespace string,
	progress func(string),
) (r Result, err error) {
	s := &stage{Config: cfg, namespace: namespace, run: "bench-" + rand.Text()[:12]}
	for i := range cfg.Clients {
		progress(fmt.Sprintf("connecting, client %d of %d", i+1, cfg.Clients))
		rdb, err := connect(ctx)
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = rdb.Close() }() // nothing is left to do when it fails
		fair, err := fairlock.New(rdb, fairlock.Config{Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return Result{}, err
		}
		defer fair.Close()
		sub := rdb.Subscribe(ctx, s.channel(i))
		defer func() { _ = sub.Close() }()
		if _, err := sub.ReceiveTimeout(ctx, 5*time.Second); err != nil {
			return Result{}, fmt.Errorf("subscribe: %w", err)
		}
		s.clients = append(s.clients, client{rdb, fair, sub})
	}
	defer func() { err = errors.Join(err, s.clean(ctx)) }()
	length := cfg.Duration / time.Duration(2*rounds*len(s.workloads()))
	for _, w := range s.workloads() {
		progress("warming up: " + w.Name)
		if err := w.measure(ctx, 0, length/4); err != nil || ctx.Err() != nil {
			return Result{}, err
		}
	}
	for r = (Result{Config: cfg, Workloads: s.workloads()}); r.Rounds < rounds; r.Rounds++ {
		for i := range r.Workloads {
			progress(fmt.Sprintf("round %d of %d: %s", r.Rounds+1, rounds, r.Workloads[i].Name))
			err := r.Workloads[i].measure(ctx, r.Rounds, length)
			if r.Interrupted = ctx.Err() != nil; err != nil || r.Interrupted {
				return r, err
			}
		}
	}
	return r, nil
}

// client is one client's connections, its locks on them, and its subscription for the relay.
type client struct {
	redis redis.UniversalClient
	locks *fairlock.Client
	sub   *redis.PubSub
}

// stage has the clients, and names that no other program uses.
type stage struct {
	Config
	clients   []client
	namespace string
	run       string // part of every name of this run
	last      int    // the client that has received the relay's message
}

func (s *stage) workloads() []Workload {
	const bare = "SET NX, compare-and-delete"
	n := s.Contenders
	return []Workload{
		{Name: "pairs-in-turn", title: "lock and unlock of free locks, one after the other",
			Fairlock: newSide("fairlock", 1, workload.Pairs(s.free)), Floor: newSide(bare, 1, workload.Pairs(s.bare))},
		{Name: "pairs-at-once", title: fmt.Sprintf("lock and unlock of free locks, %d at once", n),
			Fairlock: newSide("fairlock", n, workload.Pairs(s.free)), Floor: newSide(bare, n, workload.Pairs(s.bare))},
		{Name: "handoffs", title: fmt.Sprintf("handoffs of one lock among %d", n),
			Fairlock: newSide("fairlock", n, workload.Handoffs(s.contended)), Floor: newSide("PUBLISH, delivery", 1, s.relay)},
	}
}

// client returns that of the i-th goroutine.
func (s *stage) client(i int) client { return s.clients[i%len(s.clients)] }

// private returns the name of the lock that only the i-th goroutine uses.
func (s *stage) private(i int) string { return s.run + "-" + strconv.Itoa(i) }

func (s *stage) floorKey(i int) string { return s.namespace + ":{" + s.private(i) + "}:floor" }

// weight returns one permit, or for a read-write lock the weight of a writer or a reader.
func (s *stage) weight(write bool) int {
	if write && s.Kind == fairlock.KindRWMutex {
		return tokens.WriterWeight
	}
	return 1
}

// free locks the i-th goroutine's own lock.
func (s *stage) free(ctx context.Context, i int) (func(context.Context) error, error) {
	return s.lock(ctx, i, s.private(i), s.weight(true))
}

// contended locks the lock of all contenders; of a read-write lock, one in four writes.
func (s *stage) contended(ctx context.Context, i int) (func(context.Context) error, error) {
	return s.lock(ctx, i, s.run, s.weight(i%4 == 0))
}

func (s *stage) lock(ctx context.Context, i int, name string, weight int) (func(context.Context) error, error) {
	lease, err := s.Acquire(ctx, s.client(i).locks, name, weight, false)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

// compareAndDelete releases a lock that is one key with a token.
var compareAndDelete = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// bare is the least that a lock with a token can cost: two round trips.
func (s *stage) bare(ctx context.Context, i int) (func(context.Context) error, error) {
	rdb, key, token := s.client(i).redis, s.floorKey(i), "token-"+strconv.Itoa(i)
	unlock := func(ctx context.Context) error { return compareAndDelete.Run(ctx, rdb, []string{key}, token).Err() }
	return unlock, rdb.Do(ctx, "set", key, token, "nx", "px", 10_000).Err()
}

// channel returns a channel that a user with the rights to notifications may use.
func (s *stage) channel(i int) string { return script.NotificationChannel(s.namespace, s.private(i)) }

// relay sends the message from the client that has received it to the next one, which is the least that a handoff can
// cost. As for a handoff, it measures until the message has arrived, not until PUBLISH has its reply.
func (s *stage) relay(ctx context.Context, _ int) (time.Duration, error) {
	from, to := s.last, (s.last+1)%len(s.clients)
	published := make(chan error, 1)
	began := time.Now()
	go func() { published <- s.clients[from].redis.Publish(ctx, s.channel(to), "").Err() }()
	_, err := s.clients[to].sub.ReceiveTimeout(ctx, time.Second)
	took := time.Since(began)
	// Nothing is under way when the next slice begins.
	if err := cmp.Or(<-published, err); err != nil {
		return 0, err
	}
	s.last = to
	return took, nil
}

// clean deletes the keys of a run: the fences, and the locks that were in use when it was stopped.
func (s *stage) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	pipe := s.clients[0].redis.Pipeline()
	pipe.Del(ctx, inspect.ID{Kind: s.Kind, Name: s.run}.Keys(s.namespace)...)
	for i := range s.Contenders {
		pipe.Del(ctx, append(inspect.ID{Kind: s.Kind, Name: s.private(i)}.Keys(s.namespace), s.floorKey(i))...)
	}
	_, err := pipe.Exec(ctx)
	return err
}
