package lua_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// failing is a Scripter whose requests all fail, of which it does not know whether they were written.
type failing struct{ err error }

func (f failing) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(f.err)
	return cmd
}

func (f failing) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return f.EvalSha(ctx, script, keys, args...)
}

// fail sends requests that all fail with that error, and returns what comes of them.
func fail(t *testing.T, err error) (lua.Reply, lua.Handoff, error) {
	t.Helper()
	lock := lua.Semaphore(failing{err}, "ns", "name", 1)
	reply, acquireErr := lock.Acquire(ctx, lua.Request{Token: stranger, Weight: 1})
	handoff, releaseErr := lock.Release(ctx, stranger, 1)
	require.ErrorIs(t, acquireErr, err)
	require.ErrorIs(t, releaseErr, err)
	return reply, handoff, acquireErr
}

// An error that a script has raised leaves what the script had written before. A refusal of its first write, or of the
// request, leaves nothing.
func TestAborted(t *testing.T) {
	for text, want := range map[string]bool{
		"ERR The user executing the script can't run this command or subcommand script: 0123, on @user_script:3.": true,
		"ERR Error running script (call to f_0): @user_script:3: @user_script: 3: Unknown Redis command":          true,
		"ERR user_script:3: the fence is not a number script: 0123, on @user_script:3.":                           true,
		"ERR Error compiling script (new function): <string>:3: WRONGTYPE x":                                      true, // miniredis
		"READONLY You can't write against a read only replica. script: 0123, on @user_script:3.":                  false,
		"NOPERM User u has no permissions to run the 'evalsha' command":                                           false,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                 false,
	} {
		_, handoff, err := fail(t, refusal(text))
		assert.Equal(t, want, lua.Aborted(err), text)
		assert.Equal(t, want, handoff.Ambiguous, "the lock may be released: %s", text)
		_, _, err = fail(t, errors.New(text))
		assert.False(t, lua.Aborted(err), "no error of Redis: %s", text)
	}
	assert.False(t, lua.Aborted(nil))
}

// unsent is the error of a request that was not sent, or of one that was.
type unsent bool

func (unsent) Error() string { return "ctx ended" }
func (u unsent) Sent() bool  { return !bool(u) }

// What was not sent is not ambiguous.
func TestReply_AmbiguousUnlessNotSent(t *testing.T) {
	for _, sent := range []bool{false, true} {
		reply, handoff, err := fail(t, unsent(!sent))
		assert.Equal(t, sent, reply.Ambiguous)
		assert.Equal(t, sent, handoff.Ambiguous)
		assert.Equal(t, lua.NoReply, lua.OriginOf(err))
	}
}

// Words of a host's name, say, do not make an error one of Redis.
func TestErrors_OnlyThoseOfRedisAreExplained(t *testing.T) {
	const text = "lookup NOPERM-OOM-WRONGTYPE.example: no such host"
	_, _, err := fail(t, &net.OpError{Op: "dial", Err: errors.New(text)})
	require.EqualError(t, err, "dial: "+text)
	_, _, err = fail(t, refusal("OOM x"))
	require.EqualError(t, err, `keys "ns:{name}:sem:*": OOM x`)
	const denied = "ERR ACL failure in script: User u has no permissions to run the 'zadd' command" // Redis 7.4, Valkey
	_, _, err = fail(t, refusal(denied+" script: 0123, on @user_script:1."))
	require.ErrorContains(t, err, `keys "ns:{name}:sem:*": `+denied)
	require.ErrorContains(t, err, " (local ", "the line of the script")
}

// Redis says in which line a command is refused, and the error quotes it: so it names the command. What the script had
// written before, leave removes: no key is left without an expiry.
//
//fairlock:fault The user lacks rights
func TestErrors_NameTheRefusedCommand(t *testing.T) {
	s := redistest.Start(t)
	root := s.Client()
	for missing, command := range map[string]string{"pexpire": "call('PEXPIRE', holders,", "zadd": "call('ZADD', permits,"} {
		require.NoError(t, root.Do(t.Context(), "ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "&*", "+@all", "-"+missing).Err())
		o := s.Options()
		o.Username, o.Password = "u", "p"
		rdb := redis.NewClient(o)
		defer func() { _ = rdb.Close() }()
		lock := lua.Semaphore(rdb, "ns", missing, 2)
		who, err := token.New("c", ttl)
		require.NoError(t, err)
		_, err = lock.Acquire(t.Context(), lua.Request{Token: who, Weight: 1})
		require.ErrorContains(t, err, command)
		require.ErrorContains(t, err, fmt.Sprintf("ns:{%s}:sem:*", missing))
		assert.True(t, lua.Aborted(err), err)
		_, err = lock.Leave(t.Context(), who, false)
		require.NoError(t, err)
		left := root.Keys(t.Context(), "*{"+missing+"}*").Val()
		assert.Subset(t, []string{"ns:{" + missing + "}:sem:number", "ns:{" + missing + "}:sem:heartbeats"}, left)
	}
}
