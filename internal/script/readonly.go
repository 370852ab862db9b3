package script

import (
	"context"
	"regexp"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// ReaderScripter is what ReadOnly needs of a Redis client; redis.Scripter has it.
type ReaderScripter interface {
	Scripter
	EvalShaRO(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
	EvalRO(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
}

// ReadOnly returns a Scripter that sends scripts by EVALSHA_RO and EVAL_RO, so that Redis lets them read only, and a
// user needs no right to write. From the first time on that Redis refuses that, it sends EVALSHA and EVAL: a server
// before Redis 7 has neither of the former, and a user may lack the right to them. If Redis refuses both, the error is
// that of the former, which suffice. It is safe for concurrent use.
func ReadOnly(rdb ReaderScripter) Scripter { return &readOnly{ReaderScripter: rdb} }

type readOnly struct {
	ReaderScripter
	lacking atomic.Bool
}

// EvalSha sends EVALSHA_RO, or EVALSHA.
func (r *readOnly) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return r.either(r.EvalShaRO, r.ReaderScripter.EvalSha)(ctx, sha, keys, args...)
}

// Eval sends EVAL_RO, or EVAL.
func (r *readOnly) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return r.either(r.EvalRO, r.ReaderScripter.Eval)(ctx, script, keys, args...)
}

type eval func(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd

func (r *readOnly) either(ro, rw eval) eval {
	return func(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
		if !r.lacking.Load() {
			cmd := ro(ctx, script, keys, args...)
			if err := cmd.Err(); err == nil || !noReadOnly.MatchString(err.Error()) {
				return cmd
			}
			reply := rw(ctx, script, keys, args...)
			if redis.HasErrorPrefix(cmd.Err(), "NOPERM") && redis.HasErrorPrefix(reply.Err(), "NOPERM") {
				return cmd
			}
			r.lacking.Store(true)
			return reply
		}
		return rw(ctx, script, keys, args...)
	}
}

// miniredis takes TIME for a command that writes.
var noReadOnly = regexp.MustCompile(`(?i)eval(sha)?_ro|in read-only scripts`)
