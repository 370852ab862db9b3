package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/locks"
	"github.com/fairlock/fairlock-go/fairlock"
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

// Run measures on clients of its own, each on connections that connect has made. It calls progress before each workload.
// If ctx ends, the result has what was measured until then; so has the one that comes with an error. It has no Workloads
// if that was nothing. Run deletes what it leaves in Redis, within 5 s, also after the end of ctx.
func Run(
	ctx context.Context, cfg Config, connect func(context.Context) (redis.UniversalClient, error), namespace string,
	progress func(string),
) (r Result, err error) {
	s := &stage{Config: cfg, namespace: namespace, run: "bench-" + rand.Text()[:12], began: time.Now()}
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
	defer s.tasks.Wait()
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
