package sim

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/script"
)

// release is another release of the scripts, which half of the clients of a run use. Its texts, and so its hashes,
// differ, and the locks are the same. A client with it sends those in place of today's. As long as no release has other
// rules, it has the rules of today.
type release struct {
	texts  map[string]string // today's → of the release
	hashes map[string]string // today's → of the release
}

// newRelease makes a release of today's scripts.
func newRelease() release {
	r := release{map[string]string{}, map[string]string{}}
	for hash, source := range script.Sources() {
		text := source.Text
		other := text + "\n-- of another release"
		sum := sha1.Sum([]byte(other))
		r.texts[text], r.hashes[hash] = other, hex.EncodeToString(sum[:])
	}
	return r
}

// replace replaces a script in a command, unless that was done before: the conversation sends some commands twice.
func (r release) replace(cmd redis.Cmder) {
	args, others := cmd.Args(), map[string]map[string]string{"evalsha": r.hashes, "eval": r.texts}[cmd.Name()]
	if others == nil {
		return
	}
	if other, is := others[args[1].(string)]; is {
		args[1] = other
	}
}

func (r release) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r release) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.replace(cmd)
		return next(ctx, cmd)
	}
}

func (r release) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			r.replace(cmd)
		}
		return next(ctx, cmds)
	}
}
