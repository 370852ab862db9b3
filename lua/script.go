package lua

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var files embed.FS

// kind is the scripts of one kind of lock. A script is, in plain text one after the other, the queue, who may hold, and
// the verb with what it needs.
type kind struct {
	acquire, release, leave, renew, beat, forceRelease, inspect *redis.Script
}

func script(parts ...string) *redis.Script { return redis.NewScript(source(parts...)) }

var typesScript = script("types")

// An idle mutex is taken and given back before most of the code is reached (queue.lua says why that matters).
var mutex = kind{
	acquire: script("queue", "mutex", "time", "acquire", "mutex_acquire", "mutex_more", "mutex_rest", "admit", "wait", "acquire_queued"),
	release: script("queue", "mutex", "release", "mutex_release", "time", "mutex_more", "admit", "release_queued"),

	leave:        script("queue", "mutex", "time", "mutex_more", "admit", "leave"),
	renew:        script("queue", "mutex", "time", "mutex_more", "mutex_rest", "renew"),
	beat:         script("queue", "mutex", "time", "mutex_more", "mutex_rest", "admit", "wait", "beat"),
	forceRelease: script("queue", "mutex", "time", "mutex_more", "mutex_rest", "admit", "force_release"),
	inspect:      script("queue", "mutex", "time", "mutex_more", "mutex_rest", "inspect"),
}

var permits = kind{
	acquire: script("queue", "permits", "time", "acquire", "permits_acquire", "permits_more", "permits_rest", "admit", "wait", "acquire_queued"),
	release: script("queue", "permits", "time", "release", "permits_release", "permits_more", "admit", "release_queued"),

	leave:        script("queue", "permits", "time", "permits_more", "admit", "leave"),
	renew:        script("queue", "permits", "time", "permits_more", "permits_rest", "renew"),
	beat:         script("queue", "permits", "time", "permits_more", "permits_rest", "admit", "wait", "beat"),
	forceRelease: script("queue", "permits", "time", "permits_more", "permits_rest", "admit", "force_release"),
	inspect:      script("queue", "permits", "time", "permits_more", "permits_rest", "inspect"),
}

// source joins files without their comments: Redis keeps the text, and it travels whenever Redis has forgotten it.
func source(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		text, err := files.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // not in this source tree
		}
		for line := range strings.Lines(string(text)) {
			if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// run calls a script by its hash, and by its text if the server does not know it (SCRIPT FLUSH, restart, failover).
// That, too, is why every script may run twice.
func (l Lock) run(ctx context.Context, script *redis.Script, args ...any) ([]any, error) {
	cmd := script.EvalSha(ctx, l.rdb, l.keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		for _, a := range args {
			if t, ok := a.(*Leaving); ok {
				t.sent.Add(-1) // it was not run
			}
		}
		cmd = script.Eval(ctx, l.rdb, l.keys, args...)
	}
	if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return nil, l.explain(ctx, err)
	}
	reply, err := cmd.Slice()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReply, err)
	}
	return reply, nil
}

// Load has Redis know all scripts beforehand.
func Load(ctx context.Context, rdb redis.Scripter) error {
	for _, k := range []kind{mutex, permits} {
		for _, s := range []*redis.Script{k.acquire, k.release, k.leave, k.renew, k.beat, k.forceRelease, k.inspect} {
			if err := s.Load(ctx, rdb).Err(); err != nil {
				return err
			}
		}
	}
	return typesScript.Load(ctx, rdb).Err()
}
