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

// A script is, in plain text one after the other: the queue, who may hold, and the verb with what it needs.
func mutexScript(parts ...string) *redis.Script {
	return redis.NewScript(source(append([]string{"queue", "mutex"}, parts...)...))
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

var (
	acquireScript      = mutexScript("time", "acquire", "mutex_more", "admit", "wait", "acquire_queued")
	releaseScript      = mutexScript("release", "time", "mutex_more", "admit", "release_queued")
	leaveScript        = mutexScript("time", "mutex_more", "admit", "leave")
	renewScript        = mutexScript("time", "mutex_more", "renew")
	beatScript         = mutexScript("time", "mutex_more", "admit", "wait", "beat")
	forceReleaseScript = mutexScript("time", "mutex_more", "admit", "force_release")
	inspectScript      = mutexScript("time", "mutex_more", "inspect")
	typesScript        = redis.NewScript(source("types"))
)

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
