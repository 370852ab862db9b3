package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
)

// twice is a hook of a process's Redis client. If p.twice is set, it sends an acquire that has queued a waiter again after
// that time, as go-redis does when the reply was lost. What the server sends meanwhile, such as notifications, arrives later
// still.
type twice struct{ p *process }

func (h twice) send(cmds []redis.Cmder, next func() error) error {
	err := next()
	if !slices.ContainsFunc(cmds, hasQueued) {
		return err
	}
	late := time.Duration(h.p.twice.Swap(0))
	if late == 0 || h.p.world.isEnding() {
		return err
	}
	h.p.world.away(h.p.number, 2*late+ttl)
	h.p.client.Link.Delay(0, late+2*ttl/5) // the next heartbeat is earlier
	h.p.pause(late)
	h.p.mend()
	return next()
}

// hasQueued reports whether a command is the first acquire of a waiter, and has queued it.
func hasQueued(cmd redis.Cmder) bool {
	args := cmd.Args()
	if cmd.Name() != "evalsha" || lua.VerbOf(args[1].(string)) != "acquire" || fmt.Sprint(args[3+args[2].(int)+4]) != "0" {
		return false // or it has a ticket
	}
	reply, err := cmd.(*redis.Cmd).Slice()
	return err == nil && len(reply) > 0 && reply[0] == "queued"
}

func (h twice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.send([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.send(cmds, func() error { return next(ctx, cmds) })
	}
}
