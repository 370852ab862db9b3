package view

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Server is a Redis, or a cluster of them, and the namespace of the locks there. It is a value and safe for concurrent
// use.
type Server struct {
	Redis     redis.UniversalClient
	Namespace string
}

// Most is how many holders and how many waiters one look lists at most; more would keep Redis for too long.
const Most = 1000

// together is how many entries the locks of one pipeline list at most: Redis does not turn to others in between.
const together = 500

// Look reads these locks, and of each at most limit holders and limit waiters (1 to Most). The error says what could
// not be read; what could is returned all the same.
func (s Server) Look(ctx context.Context, limit int, ids ...ID) ([]Lock, error) {
	var locks []Lock
	var wrong []error
	for size := max(together/limit, 1); len(ids) > 0; {
		n := min(size, len(ids))
		answers, err := await(ctx, func() ([]answer, error) { return s.look(ctx, limit, ids[:n]) })
		if err != nil {
			return locks, err
		}
		for i, a := range answers {
			switch {
			case a.err == nil:
				locks = append(locks, a.Lock)
			case refused(a.err):
				wrong = append(wrong, fmt.Errorf("%s: %w", ids[i], a.err))
			default:
				wrong = append(wrong, a.err)
			}
		}
		ids = ids[n:]
	}
	return locks, gather(wrong)
}

type answer struct {
	Lock
	err error
}

// look reads them in one pipeline. The error says that the server is away; of a cluster only a part may be.
func (s Server) look(ctx context.Context, limit int, ids []ID) ([]answer, error) {
	pipe := s.Redis.Pipeline()
	for _, id := range ids {
		_, _ = id.In(pipe, s.Namespace).Inspect(ctx, limit) // puts its script there; the answer comes with Exec
	}
	cmds, err := pipe.Exec(ctx)
	answers, unheard := make([]answer, len(ids)), 0
	for i, id := range ids {
		cmd := cmds[i].(*redis.Cmd)
		if err != nil && cmd.Err() == nil && cmd.Val() == nil {
			cmd.SetErr(err) // none of them has it if Redis has refused the connection
		}
		snap, err := id.In(&reader{s.Redis, cmd}, s.Namespace).Inspect(ctx, limit)
		if err != nil && !refused(err) {
			unheard++
		}
		answers[i] = answer{lockOf(id, snap), err}
	}
	if _, cluster := s.Redis.(*redis.ClusterClient); unheard == len(ids) && !cluster {
		return nil, answers[0].err
	}
	return answers, nil
}

// reader answers the first script with what a pipeline has brought, and sends the rest: the script's text if the server
// did not know it, and questions about what went wrong.
type reader struct {
	redis.Scripter
	have *redis.Cmd
}

// EvalSha is redis.Scripter's.
func (r *reader) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if have := r.have; have != nil {
		r.have = nil
		return have
	}
	return r.Scripter.EvalSha(ctx, sha, keys, args...)
}

// refused reports that the server has answered, with an error.
func refused(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// faults are errors that are likely alike: the first of them says enough.
type faults []error

func (f faults) Error() string {
	first, others := f[0].Error(), 0
	for _, err := range f[1:] {
		if err.Error() != first {
			others++
		}
	}
	if others == 0 {
		return first
	}
	return fmt.Sprintf("%s (and %s)", first, count(others, "more error"))
}

func (f faults) Unwrap() []error { return f }

// gather makes one error of many, also of errors that were gathered before; nil of none.
func gather(errs []error) error {
	var all faults
	for _, err := range errs {
		if more, ok := errors.AsType[faults](err); ok {
			all = append(all, more...)
		} else {
			all = append(all, err)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// await returns what f does, or ctx's cause as soon as ctx ends: go-redis does not interrupt a call.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
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
