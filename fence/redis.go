package fence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// RedisTTL is how long Redis keeps a fence after it was last shown. A holder that is paused for longer than that is
// refused only if another one has shown its fence since.
const RedisTTL = 7 * 24 * time.Hour

// maxWords of a command leave room on the stack of Lua.
const maxWords = 4096

//go:embed redis.lua
var source string

var script = redis.NewScript(source)

// Redis shows the fence to a Redis, and runs the commands, in one script. The fence is stored in key. If key has a
// higher one, Redis returns ErrStale and no command is run. An equal one passes. Redis returns the replies, nil for a
// null.
//
// Each command is its words, as of Client.Do of go-redis. The second word is its key, a string. On a Cluster, all keys
// must have the slot of key, such as {account:42}:fence and {account:42}:balance. A command with more keys, such as
// RENAME, may miss the others while the slot moves. Without commands, Redis only shows the fence, for a holder that
// reads before it writes.
//
// A script rounds an integer reply above 2^53, such as that of INCR. GET returns the text, which is exact.
//
// No other request runs in between, but nothing is undone. If a command fails, those before it have taken effect, those
// behind it are not run, and its error is returned. Like every command, a script without a reply is sent again by
// go-redis (MaxRetries), so a command that adds may add twice.
//
// The key expires RedisTTL after it was last shown. Redis must not evict it (maxmemory-policy noeviction). A failover
// that loses the fence has lost the writes that came after it as well. A fence of 0, or of 2^53 or more, is a
// fairlock.ErrInvalid.
func Redis(ctx context.Context, rdb redis.Scripter, key string, fence uint64, commands ...[]any) ([]any, error) {
	if err := checkFence(fence); err != nil {
		return nil, err
	}
	keys, args := []string{key}, []any{fence, RedisTTL.Milliseconds()}
	for _, words := range commands {
		if len(words) < 2 || len(words) > maxWords {
			return nil, &fairlock.FieldError{Field: "command",
				Reason: fmt.Sprintf("%d words, must be from 2 to %d", len(words), maxWords)}
		}
		name, ok := words[1].(string)
		if !ok {
			return nil, &fairlock.FieldError{Field: "command",
				Reason: fmt.Sprintf("the key is a %T, must be a string", words[1])}
		}
		keys = append(keys, name)
		args = append(append(args, len(words)), words...)
	}
	replies, err := script.Run(ctx, rdb, keys, args...).Slice()
	if errors.Is(err, redis.Nil) {
		return nil, ErrStale
	}
	return replies, err
}
