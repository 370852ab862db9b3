package fairlock_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// These tests compare the documentation with the code.

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// The first Go text of the README is a program that runs, and the package's first example. The other stands word for
// word in an example.
func TestReadme_CodeRuns(t *testing.T) {
	t.Parallel()
	readme := read(t, "../README.md")
	blocks := goBlock.FindAllStringSubmatch(readme, -1)
	require.Len(t, blocks, 2)
	program, kinds := blocks[0][1], blocks[1][1]

	for line := range strings.Lines(kinds) {
		assert.Contains(t, body(t, read(t, "example_test.go"), "Example_kinds"), line)
	}
	assert.Equal(t, body(t, read(t, "example_test.go"), "Example"), body(t, program, "main"))
	assert.LessOrEqual(t, strings.Count(body(t, program, "main"), "\n"), 15, "the first program must stay short")

	want := regexp.MustCompile(`fmt\.Println\("(.*)"\)`).FindStringSubmatch(program)[1]
	assert.Equal(t, want+"\n", run(t, program))
}

// Every Go text of docs/testing.md stands word for word in an example.
func TestTestingPage_CodeIsTested(t *testing.T) {
	blocks := goBlock.FindAllStringSubmatch(read(t, "../docs/testing.md"), -1)
	require.Len(t, blocks, 4)
	for _, block := range blocks {
		assert.Contains(t, read(t, "../fairlocktest/example_test.go"), block[1])
	}
}

// The ACL line of docs/operating.md has the commands that the scripts use, and no others.
func TestACLLine_AllowsWhatTheScriptsUse(t *testing.T) {
	scripts, err := filepath.Glob("../lua/scripts/*.lua")
	require.NoError(t, err)
	stores, err := filepath.Glob("../lua/scripts/*/*.lua")
	require.NoError(t, err)
	scripts = append(scripts, stores...)
	needed := map[string]bool{"eval": true, "evalsha": true, "subscribe": true, "cluster|slots": true}
	for _, file := range scripts {
		for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(read(t, file), -1) {
			needed[strings.ToLower(m[1])] = true
		}
	}
	given := map[string]bool{}
	for _, rule := range aclLine(t) {
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			given[command] = true
		}
	}
	assert.Equal(t, needed, given)
}

func aclLine(t *testing.T) []string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^ACL SETUSER fairlock (.*)$`).FindStringSubmatch(read(t, "../docs/operating.md"))
	require.NotNil(t, line)
	return strings.Fields(line[1])
}

// With these rights everything works, notifications included.
//
//fairlock:fault The user lacks rights
func TestACLLine_Suffices(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), t.Context()
	setuser := []any{"acl", "setuser", "billing"}
	for _, rule := range aclLine(t) {
		setuser = append(setuser, rule)
	}
	require.NoError(t, server.Client().Do(ctx, setuser...).Err())

	grants, subscribed := make(chan fairlock.GrantedInfo, 9), make(chan fairlock.SubscriptionInfo, 9)
	newClient := func() *fairlock.Client {
		options := server.Options()
		options.Username, options.Password = "billing", "password"
		rdb := redis.NewClient(options)
		client, err := fairlock.New(rdb, fairlock.Config{
			WaiterTTL: 2 * fairlock.DefaultTTL, // so that a handoff is always used without a further request
			Trace: &fairlock.Trace{
				Granted:      func(i fairlock.GrantedInfo) { grants <- i },
				Subscription: func(i fairlock.SubscriptionInfo) { subscribed <- i },
			},
		})
		require.NoError(t, err)
		t.Cleanup(func() { client.Close(); rdb.Close() })
		return client
	}
	holder, waiter := newClient(), newClient()
	contend := func(name string, meanwhile func(fairlock.Mutex)) (*fairlock.Lease, bool) {
		m := holder.Mutex(name).WithMaxWaiters(1)
		held, err := m.Lock(ctx)
		require.NoError(t, err)
		<-grants
		require.NoError(t, held.Renew(ctx))
		next := make(chan *fairlock.Lease)
		go func() {
			lease, err := waiter.Mutex(name).Lock(ctx)
			assert.NoError(t, err)
			next <- lease
		}()
		for state := (fairlock.State{}); state.Waiting == 0; {
			state, err = m.Inspect(ctx)
			require.NoError(t, err)
		}
		meanwhile(m)
		require.NoError(t, held.Unlock(ctx))
		return <-next, (<-grants).Handoff
	}
	contend("y", func(fairlock.Mutex) { require.NoError(t, (<-subscribed).Err) })
	lease, handoff := contend("x", func(m fairlock.Mutex) {
		_, err := m.Lock(ctx)
		require.ErrorIs(t, err, fairlock.ErrQueueFull)
	})
	assert.True(t, handoff, "the notification has not come")
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := waiter.Mutex("x").Lock(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	released, err := holder.Mutex("x").ForceRelease(ctx)
	require.NoError(t, err)
	assert.True(t, released)
	require.ErrorIs(t, lease.Unlock(ctx), fairlock.ErrLost)
	require.NoError(t, server.Client().Set(ctx, "fairlock:{x}:queue", "not a zset", 0).Err())
	_, err = holder.Mutex("x").Lock(ctx)
	require.ErrorContains(t, err, `key "fairlock:{x}:queue"`)
}

// An error names the right that the user lacks. Without rights to the channel everything works, by heartbeats.
//
//fairlock:fault The user lacks rights: an error that names what is missing; without the channel, heartbeats replace notifications
func TestACL_UserLacksRights(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), t.Context()
	rdb := server.Client()
	mutex := func(rdb *redis.Client) fairlock.Mutex {
		client, err := fairlock.New(rdb, fairlock.Config{WaiterTTL: fairlock.MinWaiterTTL, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { client.Close(); rdb.Close() })
		return client.Mutex("x")
	}
	as := func(rules ...any) fairlock.Mutex {
		args := append([]any{"acl", "setuser", "u", "reset", "on", ">p"}, rules...)
		require.NoError(t, rdb.Do(ctx, args...).Err())
		o := server.Options()
		o.Username, o.Password = "u", "p"
		return mutex(redis.NewClient(o))
	}
	_, err := as("~other:*", "&*", "+@all").Lock(ctx)
	require.ErrorContains(t, err, "fairlock:{x}:")
	m := as("~*", "resetchannels", "+@all")
	lease, err := mutex(server.Client()).Lock(ctx)
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		next, err := m.Lock(ctx)
		done <- errors.Join(err, next.Unlock(ctx))
	}()
	for state := (fairlock.State{}); state.Waiting == 0; {
		state, err = m.Inspect(ctx)
		require.NoError(t, err)
	}
	require.NoError(t, lease.Unlock(ctx))
	require.NoError(t, <-done)
}

// docs/instrumentation.md explains every line that the library logs, and no other.
func TestLogTable_ExplainsEveryLine(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var logged []string
	for _, file := range files {
		for _, m := range regexp.MustCompile(`\.log\.(Debug|Info|Warn|Error)(?:Context)?\((?:ctx, )?"(.*?)"`).FindAllStringSubmatch(read(t, file), -1) {
			logged = append(logged, strings.ToUpper(m[1])+" "+m[2])
		}
	}
	var explained []string
	for _, m := range regexp.MustCompile("(?m)^\\| ([A-Z]+) \\| `(.*?)` \\|").FindAllStringSubmatch(read(t, "../docs/instrumentation.md"), -1) {
		explained = append(explained, m[1]+" "+m[2])
	}
	assert.ElementsMatch(t, logged, explained)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// body returns a function from its name to its end.
func body(t *testing.T, source, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(source, "\nfunc "+name+"() {\n")
	require.True(t, found, "no func %s", name)
	text, _, found := strings.Cut(rest, "\n}\n")
	require.True(t, found, "func %s does not end", name)
	return text + "\n}\n"
}

// run runs a program on a server in memory, in this module, and returns what it prints.
func run(t *testing.T, program string) string {
	t.Helper()
	const addr = "localhost:6379"
	require.Contains(t, program, addr)
	file := filepath.Join(t.TempDir(), "main.go")
	program = strings.Replace(program, addr, miniredis.RunT(t).Addr(), 1)
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
