package lua_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

// in62 is the form in which Redis 6.2 and KeyDB return an error of a command in a script.
func in62(text string) refusal {
	return refusal("ERR Error running script (call to f_0123456789abcdef): @user_script:12: @user_script: 12: " + text)
}

// in7 is the form in which Redis 7 does.
func in7(text string) refusal {
	return refusal(text + " script: 0123456789abcdef, on @user_script:12.")
}

func TestOriginOf(t *testing.T) {
	const readonly = "READONLY You can't write against a read only replica."
	for want, all := range map[lua.Origin][]error{
		lua.NoReply: {
			io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded,
			errors.New("redis: connection pool timeout"),
			&net.OpError{Op: "dial", Err: errors.New("refused")}, errors.New("unknown"), fmt.Errorf("wrapped: %w", io.EOF),
		},
		lua.Unavailable: {
			refusal("LOADING Redis is loading the dataset in memory"), refusal(readonly), refusal("CLUSTERDOWN The cluster is down"),
			refusal("TRYAGAIN Multiple keys request during rehashing of slot"), refusal("MASTERDOWN Link with MASTER is down"),
			refusal("NOREPLICAS Not enough good replicas to write."), refusal("BUSY Redis is busy running a script."),
			refusal("MOVED 3999 127.0.0.1:6381"), refusal("ASK 3999 127.0.0.1:6381"),
			refusal("ERR max number of clients reached"), refusal("max number of clients reached"),
			fmt.Errorf("wrapped: %w", refusal(readonly)),
			in7(readonly), in7("NOREPLICAS Not enough good replicas to write."),
			in62("-" + readonly), in62(readonly), in62("-MASTERDOWN Link with MASTER is down"),
			in62("-NOREPLICAS Not enough good replicas to write."),
			refusal("ERR Error running script (call to f_0): @user_script:12: " + readonly),
		},
		lua.Verdict: {
			nil, redis.ErrClosed, fmt.Errorf("wrapped: %w", redis.ErrClosed), redis.Nil,
			refusal("ERR unknown command"), refusal("NOPERM no rights"), refusal("NOAUTH Authentication required."),
			refusal("WRONGTYPE x"), in62("WRONGTYPE x"), in7("WRONGTYPE x"), in62("-OOM command not allowed"), refusal("OOM x"),
			refusal("MISCONF Redis is configured to save RDB snapshots"), in62("-MISCONF x"),
			refusal("BUSYGROUP x"), refusal("BUSYKEY x"), refusal("ERR x READONLY "), in62("the fence is not a number: -READONLY x"),
			refusal("CROSSSLOT x"),
		},
	} {
		for _, cause := range all {
			if cause == nil {
				assert.Equal(t, want, lua.OriginOf(nil))
				continue
			}
			for _, v := range lua.Verbs {
				err := send(t.Context(), lua.Mutex(echo{cause}, ns, "name"), v)
				require.ErrorIs(t, err, cause, v.Name)
				assert.Equal(t, want, lua.OriginOf(err), "%s: %v", v.Name, cause)
				assert.Equal(t, want, lua.OriginOf(fmt.Errorf("wrapped: %w", err)), "%s: %v", v.Name, cause)
			}
		}
	}
}

// A request does not classify what it has not returned, and a reply that is none of ours comes again.
func TestOriginOf_OtherErrors(t *testing.T) {
	assert.Equal(t, lua.Verdict, lua.OriginOf(io.EOF))
	for _, reply := range []any{"OK", nil, []any{"granted"}} {
		_, err := lua.Mutex(echo{reply}, ns, "name").Acquire(t.Context(), lua.Request{Token: numbered("c", 1), TTL: ttl})
		require.ErrorIs(t, err, lua.ErrReply)
		assert.Equal(t, lua.Verdict, lua.OriginOf(err))
	}
}

// A real server replies so: a replica refuses to write.
func TestOriginOf_ReadOnlyReplica(t *testing.T) {
	w := real(t)
	w.do("REPLICAOF", "127.0.0.1", "1")
	w.do("CONFIG", "SET", "replica-serve-stale-data", "yes")
	_, err := w.ask(lua.Request{})
	require.Error(t, err)
	assert.Equal(t, lua.Unavailable, lua.OriginOf(err), "%v", err)
}
