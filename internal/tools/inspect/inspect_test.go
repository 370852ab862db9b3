package inspect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/keyspace"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

func TestMain(m *testing.M) {
	redistest.Silence() // connections break here
	m.Run()
}

// names are such that somebody could take them for something else.
var names = []string{
	"billing:42", "a", "50%", "%25", "%7B", "{", "}", "}:lock", "{a}:sem:queue", "a*b", "a?b", "a[b]c", `a\b`, "日本語",
	"\x1b[31mred", "\xff\xfe", "a b", "\n", "a:{b}:rw:permits", "]", "^-", "%257b",
}

// Each key of each lock is taken for what it is. What Redis finds by patterns is tested in TestServer_Find.
func TestID_Keys(t *testing.T) {
	signs := regexp.MustCompile(`:(lock|queue|permits|sem:resized|key:resized)$`)
	for _, namespace := range []string{"fairlock", "a:b", "x*[y]", "%25", `\`} {
		for _, id := range IDs(names, Kinds...) {
			for _, key := range script.KeysOf(string(id.Kind), namespace, id.Name) {
				parsed, ok := keyspace.Parse(namespace, key.Name)
				require.True(t, ok, key.Name)
				require.Equal(t, keyspace.Key{Kind: string(id.Kind), Name: id.Name, Part: key.Part, Type: key.Type}, parsed)
				require.Equal(t, id, idOf(parsed))
				require.Equal(t, signs.MatchString(key.Name), parsed.Shows(), key.Name)
			}
		}
	}
	for _, key := range []string{
		"", "fairlock", "fairlock:{", "fairlock:{}:lock", "fairlock:{a}", "fairlock:{a}:", "fairlock:{a}lock",
		"fairlock:{a:lock",
		"fairlock:{%41}:lock", "fairlock:{%7b}:lock", "fairlock:{a{b}:lock", "fairlock:{a}b}:lock", "fairlock:{a}:sem:lock",
		"fairlock:{a}:lock:x", "fairlock:{a}:permits", "fairlock:notify:a", "xfairlock:{a}:lock",
	} {
		id, ok := keyspace.Parse("fairlock", key)
		require.False(t, ok, "%q is taken for %v", key, id)
	}
	_, err := ParseKind("\x1b")
	require.EqualError(t, err, `kind "\x1b" is unknown: want mutex, semaphore, rwmutex or keyed`)
}

// inBubble runs a test in simulated time, on a server in memory.
func inBubble(t *testing.T, test func(t *testing.T, m *fairlocktest.Server, s *Server, link *fairlocktest.Link)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		link := m.Link()
		s := On(link.Redis(), "fairlock")
		defer s.Close()
		test(t, m, s, link)
	})
}

func ids(locks []Lock) (ids []ID) {
	for _, l := range locks {
		ids = append(ids, l.ID)
	}
	return ids
}

// Scripts are sent so that Redis refuses to have them write, where it can and the user may.
func TestServer_ReadsOnly(t *testing.T) {
	t.Parallel()
	servers := map[*redistest.Server][]string{}
	if s := redistest.Start(t); s.Before7() {
		servers[s] = []string{"evalsha", "eval"}
	} else {
		servers[s] = []string{"evalsha_ro", "eval_ro"}
		old := redistest.Start(t, "--rename-command", "EVALSHA_RO", "", "--rename-command", "EVAL_RO", "")
		servers[old] = []string{"evalsha", "eval"}
	}
	for server, verbs := range servers {
		s := On(server.Client(), "fairlock")
		t.Cleanup(s.Close)
		for range 2 {
			locks, err := s.Read(t.Context(), 1, ID{fairlock.KindMutex, "x"})
			require.NoError(t, err)
			require.NoError(t, locks[0].Err)
		}
		stats := redistest.Info(t, server.Client(), "commandstats", "cmdstat_"+verbs[0])
		require.Contains(t, stats, "calls=2,")
		require.Contains(t, redistest.Info(t, server.Client(), "commandstats", "cmdstat_"+verbs[1]), "calls=1,")
	}
}

// All locks in use are found, in order, and no command keeps the server busy.
func TestServer_Find(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := On(rdb, "ns[*]")
	t.Cleanup(s.Close)
	const holder = "a:1.00000010000.0000000001.0.aaaaaaaaaaaaaaaaaaaaaA"
	var keys []any
	for i := range 3000 { // of others, and what is left of locks
		keys = append(keys, fmt.Sprint("user:", i), "", script.KeysOf("mutex", s.Namespace,
			fmt.Sprint("old:", i)).Part("number"), i+1)
	}
	for _, name := range names {
		keys = append(keys, script.KeysOf("mutex", s.Namespace, name).Part("lock"), holder,
			script.KeysOf("mutex", "ns*", name).Part("lock"), holder)
	}
	require.NoError(t, rdb.MSet(t.Context(), keys...).Err())
	waited := script.KeysOf("rwmutex", s.Namespace, "waited for")
	for key, score := range map[string]int64{
		waited.Part("queue"): time.Now().UnixMicro(), waited.Part("heartbeats"): time.Now().Add(time.Hour).UnixMicro(),
		script.KeysOf("semaphore", s.Namespace, "expired").Part("permits"): 1,
	} {
		require.NoError(t, rdb.ZAdd(t.Context(), key, redis.Z{Score: float64(score), Member: holder}).Err())
	}
	require.NoError(t, rdb.Set(t.Context(), script.KeysOf("semaphore", s.Namespace, "resized").Part("resized"), 4,
		0).Err())
	locks, err := s.Find(t.Context(), Want{})
	require.NoError(t, err)
	want := append(IDs(names, fairlock.KindMutex), ID{fairlock.KindRWMutex, "waited for"},
		ID{fairlock.KindSemaphore, "resized"})
	slices.SortFunc(want, ID.Compare)
	require.Equal(t, want, ids(locks))
	for _, l := range locks {
		require.Nil(t, l.Waiters)
		require.Equal(t, l.Name == "waited for", !l.Held() && l.Waiting == 1)
		require.Equal(t, l.Name == "resized", l.Idle() && l.Permits == 4)
	}
	prefixed, err := s.Find(t.Context(), Want{Prefix: "%",
		Kinds: []fairlock.Kind{fairlock.KindMutex, fairlock.KindSemaphore}})
	require.NoError(t, err)
	require.Equal(t, IDs([]string{"%25", "%257b", "%7B"}, fairlock.KindMutex), ids(prefixed))
	for _, prefix := range names {
		found, err := s.Find(t.Context(), Want{Prefix: prefix})
		require.NoError(t, err)
		require.Equal(t, slices.DeleteFunc(slices.Clone(want), func(id ID) bool {
			return !strings.HasPrefix(id.Name, prefix)
		}), ids(found), prefix)
	}
	require.NotContains(t, rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_keys",
		"that takes as long as there are keys")
}

// go-redis goes on: it would wait for a day.
func TestServer_EndOfCtxEndsACall(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *fairlocktest.Server, s *Server, link *fairlocktest.Link) {
		enough := errors.New("enough")
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := s.Read(ctx, Most, IDs(names, fairlock.KindMutex)...)
				return err
			},
			func(ctx context.Context) error { _, err := s.Find(ctx, Want{}); return err },
		} {
			require.NoError(t, call(t.Context()))
			link.Hang()
			ctx, cancel := context.WithCancelCause(t.Context())
			began := time.Now()
			time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
			require.ErrorIs(t, call(ctx), enough)
			require.Equal(t, 50*time.Millisecond, time.Since(began))
			link.Mend()
		}
	})
}

// A server that is away is asked for one lock, or some, and not for all.
func TestServer_Away(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *fairlocktest.Server, s *Server, link *fairlocktest.Link) {
		link.Cut()
		locks, err := s.Read(t.Context(), 1, slices.Repeat(IDs(names, fairlock.KindMutex), 100)...)
		require.ErrorContains(t, err, "refused")
		require.Empty(t, locks)
		require.NotErrorIs(t, err, context.Canceled)
	})
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"a*{}%日本語": "a*{}%日本語", "": `""`, "a b": `"a b"`, "\u202e\x9b": `"\u202e\x9b"`, `\"`: `"\\\""`,
		"\u009b31m": `"\u009b31m"`,
	} {
		require.Equal(t, want, Plain(text))
	}
}

// What Redis 6.2 and what Redis 7 says about an error in a script.
func TestMessage(t *testing.T) {
	hash := strings.Repeat("0123456789abcdef", 3)[:40]
	for text, want := range map[string]string{
		"fairlock: a\nb\x1b\u202e": `a; b\x1b\u202e`,
		"WRONGTYPE x script: " + hash +
			", on @user_script:12.": "WRONGTYPE x",
		"WRONGTYPE x script: on @user_script:61.": "WRONGTYPE x",
		"ERR Error running script (call to f_" + hash +
			"): @user_script:1: @user_script: 1: -READONLY x": "ERR READONLY x",
		"ERR user_script:3: the number is damaged script: " + hash +
			", on @user_script:3.": "ERR the number is damaged",
		"keys \"n:{x}:*\": ERR ACL failure in script: x script: " + hash +
			", on @user_script:1. (call('GET', lock))": "keys \"n:{x}:*\": ERR ACL failure in script: x (call('GET', lock))",
	} {
		require.Equal(t, want, Message(errors.New(text)))
	}
}

// A right that a user lacks in a script is named by the line of the script, if Redis does not name it. One cause is one
// text.
func TestCause(t *testing.T) {
	const in70,
		in62 = "ERR The user executing the script can't run this command or subcommand script: %s, on @user_script:%d.",
		"ERR Error running script (call to f_%s): @user_script:%d: @user_script: 1: The user executing the script can't " +
			"run this command or subcommand"
	for hash, source := range script.Sources() {
		script := source.Text
		n := 0
		for line := range strings.Lines(script) {
			n++
			var text string
			switch {
			case strings.Contains(line, "call('ZRANGE', queue, 0"):
				text = "this user lacks +zrange"
			case !strings.Contains(line, "call("):
				text = "this user lacks a command that the scripts run"
			default:
				continue
			}
			for _, form := range []string{in70, in62} {
				err := fmt.Errorf("keys %q: %w", "call('GET', x)", reply(fmt.Sprintf(form, hash, n)))
				require.Equal(t, text, Cause(err), line)
				require.Equal(t, "none of 2 locks could be read: "+text, Unread([]Lock{
					{ID: ID{fairlock.KindMutex, "a"}, Err: err}, {ID: ID{fairlock.KindMutex, "b"}, Err: err},
				}).Error())
			}
		}
	}
	require.Equal(t, "this user lacks a command that the scripts run", Cause(reply(fmt.Sprintf(in70, "0123", 3))))
	require.Equal(t, "this user lacks +hget", Cause(reply(
		"ERR ACL failure in script: User x has no permissions to run the 'hget' command script: 0123, on @user_script:3.")))
}

// reply is an error of the server.
type reply string

func (r reply) Error() string { return string(r) }

func (reply) RedisError() {}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999999 * time.Microsecond: "999ms", time.Second: "1s", 59999 * time.Millisecond: "59.9s",
		time.Minute:        "1m0s",
		3599 * time.Second: "59m59s", 3*time.Hour + 5*time.Minute + 59*time.Second: "3h5m", 49 * time.Hour: "49h0m",
	} {
		require.Equal(t, want, Span(d))
	}
}

func TestAddCause(t *testing.T) {
	for _, c := range []struct{ all, want []string }{
		{[]string{"this user lacks +zcard", "this user lacks +zcount or +zcard", "this user lacks +zcard"},
			[]string{"this user lacks +zcard"}},
		{[]string{"this user lacks +get or +set", "this user lacks +get or +set or +del"},
			[]string{"this user lacks +get or +set"}},
		{[]string{"this user lacks +get", "x", "this user lacks +set", "x"},
			[]string{"this user lacks +get", "x", "this user lacks +set"}},
	} {
		var causes []string
		for _, cause := range c.all {
			causes = addCause(causes, cause)
		}
		require.Equal(t, c.want, causes)
	}
}

// The orders do not depend on when each lock was read. Locks whose age or wait is unknown are last.
func TestOrders(t *testing.T) {
	held := func(name string, fence uint64, age time.Duration, released bool) Lock {
		return Lock{ID: ID{Name: name}, State: admin.State{
			Holders: []admin.Holder{{Fence: fence, Age: age, Released: released}}}}
	}
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	waited := func(name string, late, wait time.Duration) Lock {
		return Lock{ID: ID{Name: name}, State: admin.State{At: at.Add(late), OldestWait: wait}}
	}
	for want, c := range map[string]struct {
		order func(a, b Lock) int
		all   []Lock
	}{
		"first then later free foreign rests": {ByHeld, []Lock{held("later", 3, 30, false), {ID: ID{Name: "free"}},
			held("first", 1, 20, false), held("foreign", 0, 0, false), held("rests", 1, 90, true),
			held("then", 2, 40, false)}},
		"first later none unknown": {ByWait, []Lock{waited("none", 0, 0), waited("unknown", 0, -1),
			waited("later", 9*time.Millisecond, 1005*time.Millisecond), waited("first", 0, time.Second)}},
	} {
		slices.SortStableFunc(c.all, c.order)
		var names []string
		for _, l := range c.all {
			names = append(names, l.Name)
		}
		require.Equal(t, want, strings.Join(names, " "))
	}
	require.Equal(t, []time.Duration{20, -1, -1}, []time.Duration{held("", 1, 20, false).HeldFor(),
		held("", 1, 90, true).HeldFor(), Lock{}.HeldFor()})
}
