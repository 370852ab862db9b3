package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/golden"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// examine runs all checks, and calls progress before each.
func examine(ctx context.Context, rdb redis.UniversalClient, progress func(check string)) Report {
	return Run(ctx, rdb, Options{
		Namespace: "fairlock", Address: "here", Now: time.Now, Progress: func(_, check string) { progress(check) },
	})
}

func quiet(string) {}

// found is what a check has found.
func found(r Report, check string) Finding {
	return r.Checks[slices.IndexFunc(r.Checks, func(f Finding) bool { return f.Check == check })]
}

// with are the checks with that result.
func with(r Report, result Result) (checks []string) {
	for _, f := range r.Checks {
		if f.Result == result {
			checks = append(checks, f.Check)
		}
	}
	return checks
}

// login makes a user with these rules, and returns a client of it.
func login(t *testing.T, s *redistest.Server, rules ...string) *redis.Client {
	t.Helper()
	args := []any{"acl", "setuser", "somebody", "reset", "on", ">password"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, s.Client().Do(t.Context(), args...).Err())
	o := s.Options()
	o.Username, o.Password = "somebody", "password"
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// least are the rules of the line that is printed.
func least() []string { return strings.Fields(ACLLine("x", "fairlock"))[6:] }

// The line that is printed suffices. What it does not allow to look at is no problem.
func TestRun_WithTheLeastRights(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, c := range []struct{ rules, unchecked string }{
		{"", "eviction memory persistence replicas min-replicas slow leftovers"},
		{"+info", "slow leftovers"}, // CONFIG is missed only where INFO is silent
	} {
		r := examine(t.Context(), login(t, s, append(least(), strings.Fields(c.rules)...)...), quiet)
		assert.Zero(t, r.Problems)
		assert.Equal(t, `user "somebody" may do all that locks need`, found(r, "rights").Found)
		assert.Equal(t, strings.Fields(c.unchecked), with(r, Unchecked))
	}
	// Each right that is missing is named, with the rule that gives it, and trying changes nothing.
	for i, rule := range least() {
		rules := least()
		rules = append(rules[:i], rules[i+1:]...)
		d, err := tryRights(t.Context(), login(t, s, rules...), "fairlock:{x}:rights", "fairlock:notify:x")
		require.NoError(t, err)
		f := d.finding("somebody", "fairlock")
		assert.Equal(t, "ACL SETUSER somebody "+rule, f.Advice)
		spare := rule == "+publish" || rule == "+subscribe" || rule == "+type" || strings.HasPrefix(rule, "&")
		assert.Equal(t, map[bool]Result{true: Warning, false: Problem}[spare], f.Result, f.Found)
	}
	r := examine(t.Context(), login(t, s, "~*", "&*", "+@all", "-eval", "-evalsha"), quiet)
	assert.Equal(t, "ACL SETUSER somebody +eval +evalsha", found(r, "rights").Advice)
	assert.Contains(t, found(r, "locks").Found, "NOPERM")
	assert.Equal(t, []string{"rights", "locks"}, with(r, Problem))
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

func TestRun_Refusals(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--rename-command", "EVALSHA", "", "--rename-command", "CONFIG", "", "--rename-command", "HELLO", "")
	rdb := s.Client()
	r := examine(t.Context(), rdb, quiet)
	assert.Equal(t, "the server does not know evalsha", found(r, "rights").Found)
	assert.Equal(t, []string{"rights", "locks"}, with(r, Problem))
	assert.Equal(t, []string{"wake-ups"}, with(r, Unchecked), "INFO tells the rest")
	assert.Equal(t, "0", redistest.Info(t, rdb, "persistence", "rdb_changes_since_last_save"), "nothing was written, not even for a moment")

	r = examine(t.Context(), redistest.Start(t, "--replicaof", "127.0.0.1 1").Client(), quiet)
	assert.Equal(t, []string{"role", "locks"}, with(r, Problem), "and not rights: a replica refuses for another reason")
	assert.Contains(t, found(r, "role").Advice, "127.0.0.1:1")
	assert.Contains(t, found(r, "locks").Found, "READONLY")
}

// A server that does not answer any more is not asked, and what was not checked is not called well.
func TestRun_Ends(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	r := examine(t.Context(), rdb, func(check string) {
		if check == "latency" {
			link.Cut()
		}
	})
	assert.Equal(t, []string{"latency"}, with(r, Problem))
	assert.Equal(t, []string{"clock", "slow", "leftovers"}, with(r, Unchecked))
	assert.Equal(t, "the server was not asked any more", found(r, "clock").Found)

	ctx, cancel := context.WithCancel(t.Context())
	r = examine(ctx, s.Client(), func(check string) {
		if check == "locks" {
			cancel()
		}
	})
	assert.Zero(t, r.Problems)
	assert.Equal(t, Checks()[5:], with(r, Unchecked))
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// Without notifications a waiter gets the lock by a heartbeat, and the report says so.
func TestExercise_WithoutNotifications(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		link := s.Link()
		link.DropNotifications()
		mutex, permits, err := run(t.Context(), link.Redis(), "fairlock", "x")
		require.NoError(t, err)
		f := wakes(mutex, permits)
		assert.Equal(t, Warning, f.Result)
		assert.Equal(t, "no message came, and a waiter was in only after 510 ms, by a beat: the subscription did not come up", f.Found)
		assert.Empty(t, s.Miniredis.Keys())

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel) // while it holds the lock and waits for the subscription
		_, _, err = run(ctx, link.Redis(), "fairlock", "x")
		require.Error(t, err)
		assert.Empty(t, s.Miniredis.Keys(), "what was taken is given back")
	})
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	left := func(namespace string) Finding {
		l, err := search(ctx, rdb, namespace, func(int) {})
		require.NoError(t, err)
		return l.finding()
	}
	const expires = "; pexpire n:{x}:queue 3600000"
	for _, c := range []struct {
		namespace string
		commands  string // n is the namespace
		want      Result
		says      string
	}{
		{"list", "lpush n:{x}:queue 1", Problem, `"list:{x}:queue" is a list`},
		{"beside", "zadd n:{x}:queue 0 0; lpush n:{x}:heartbeats 1" + expires, Problem, `"beside:{x}:heartbeats" is a list`},
		{"rw", "set n:{x}:rw:holders 1", Problem, `"rw:{x}:rw:holders" is a string`},
		{"\x1b[2J", "lpush n:{x}:lock 1", Problem, `\x1b[2J`},
		{"a[1]*", "lpush n:{x}:lock 1; lpush a1b:{y}:lock 1", Problem, `"a[1]*:{x}:lock" is a list`},
		{"lock", "set n:{x}:lock 1", Problem, "never expire"},
		{"number", "set n:{x}:number 1", Warning, "never expire"},
		{"one", "zadd n:{x}:queue 0 0" + expires, OK, "none, among 1 keys"},
		{"strange", "lpush n:queue 1; lpush n:{x}:something 1; lpush ns:{x}:queue 1; lpush n:{x}:sem:lock 1", OK, "none, among 0 keys"},
	} {
		for command := range strings.SplitSeq(c.commands, "; ") {
			var args []any
			for word := range strings.FieldsSeq(command) {
				if key, ours := strings.CutPrefix(word, "n"); ours {
					word = c.namespace + key
				}
				args = append(args, word)
			}
			require.NoError(t, rdb.Do(ctx, args...).Err(), command)
		}
		f := left(c.namespace)
		assert.Equal(t, c.want, f.Result, "%s: %s", c.namespace, f.Found)
		assert.Contains(t, f.Found, c.says)
	}

	// Every key that a lock in use has is known, with its type.
	client, err := fairlock.New(rdb, fairlock.Config{TTL: time.Hour, WaiterTTL: time.Hour})
	require.NoError(t, err)
	locks := []func(context.Context) (*fairlock.Lease, error){
		client.Mutex("a{b}%").Lock, client.RWMutex("a").Lock,
		func(ctx context.Context) (*fairlock.Lease, error) { return client.Semaphore("a", 2).Acquire(ctx, 2) },
	}
	for _, lock := range locks {
		_, err := lock(ctx)
		require.NoError(t, err)
		go func() { _, _ = lock(ctx) }() // waits until the client is closed
	}
	require.Eventually(t, func() bool { return left("fairlock").Values["keys"] == 14 }, time.Minute, time.Millisecond)
	assert.Equal(t, OK, left("fairlock").Result)
	client.Close()
}

// told are the facts of a server of which these words are known: after hello, info or config what it says there, after
// refused which of them it refuses.
func told(words []string) facts {
	f := facts{hello: map[string]string{}, info: map[string]string{}, config: map[string]string{}}
	parts := map[string]map[string]string{"hello": f.hello, "info": f.info, "config": f.config, "refused": {}}
	errs := map[string]*error{"hello": &f.noHello, "info": &f.noInfo, "config": &f.noConfigure}
	var part string
	for _, word := range words {
		name, value, said := strings.Cut(word, "=")
		switch {
		case said:
			parts[part][name] = value
		case part == "refused":
			*errs[word] = errors.New("NOPERM x")
		default:
			part = word
		}
	}
	return f
}

// testdata/facts.txt has what servers say of themselves, and what a check finds in it; it is written anew with -update.
func TestFacts_AreJudged(t *testing.T) {
	judges := map[string]func(facts) Finding{
		"version": version, "role": role, "eviction": eviction, "memory": memory, "persistence": persistence,
		"replicas": replicas, "min-replicas": minReplicas,
	}
	text, err := os.ReadFile("testdata/facts.txt")
	require.NoError(t, err)
	var found strings.Builder
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] == "$" {
			f := judges[words[1]](told(words[2:]))
			fmt.Fprintf(&found, "%s%s: %s\n", line, f.Result, f.Found)
			if f.Advice != "" {
				fmt.Fprintf(&found, "-> %s\n", f.Advice)
			}
		}
	}
	golden.Equal(t, "facts.txt", found.String())
}

func TestFacts_Texts(t *testing.T) {
	assert.Equal(t, map[string]string{"server": "redis", "proto": "3"}, pairs(map[any]any{"server": "redis", "proto": int64(3)}))
	for text, want := range map[string]string{
		"ERR unknown command 'CONFIG', with args beginning with: 'get' 'maxm'": "ERR unknown command 'CONFIG'",
		"ERR \x1b[2Jgone\nfor ever": "ERR ?[2Jgone for ever",
	} {
		assert.Equal(t, want, reason(errors.New(text)))
	}
	for n, want := range map[int64]string{-5: "0.00 B", 1023: "1023 B", 1024: "1.00 KB", 10 << 20: "10.0 MB", 1 << 62: "4.00 EB"} {
		assert.Equal(t, want, bytes(n))
	}
}

func TestSlowLog_IsJudged(t *testing.T) {
	now := time.Now()
	entry := func(age, took time.Duration, args ...string) redis.SlowLog {
		return redis.SlowLog{Time: now.Add(-age), Duration: took, Args: args}
	}
	ours := []string{"evalsha", "abc", "4", "fairlock:{x}:queue", "fairlock:{x}:heartbeats"}
	const ms = time.Millisecond
	for _, c := range []struct {
		want    Result
		says    string
		entries []redis.SlowLog
	}{
		{OK, "nothing", []redis.SlowLog{
			entry(0, 9*ms, ours...), entry(0, 99*ms, "keys", "*"), entry(25*time.Hour, time.Minute, "keys", "*"),
		}},
		{Warning, "2 scripts of ours took over 10.0 ms within a day, the longest 30.0 ms", []redis.SlowLog{
			entry(0, 10*ms, ours...), entry(0, 30*ms, ours...),
		}},
		{Warning, "1.00 s (KEYS)", []redis.SlowLog{entry(0, time.Second, "keys", "*"), entry(0, 100*ms, "debug")}},
		{Warning, "1 command of others", []redis.SlowLog{entry(0, time.Second)}},
	} {
		f := slow(c.entries, "fairlock", now)
		assert.Equal(t, c.want, f.Result)
		assert.Contains(t, f.Found, c.says)
	}
}

// asked is a TIME that took so long there and back, of a server whose clock is ahead.
func asked(there, back, ahead time.Duration) sample {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return sample{sent: at, back: at.Add(there + back), server: at.Add(there + ahead)}
}

// The shortest round trip decides: the difference of the clocks is known to half of it.
func TestSamples_AreJudged(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		ahead, there, back time.Duration
		want               Result
		says               string
	}{
		{500 * ms, ms, ms, OK, "500 ms ahead of this machine's, ± 1.00 ms"},
		{-500 * ms, ms, ms, OK, "500 ms behind"},
		{3 * time.Second, ms, ms, Warning, "3.00 s ahead of this machine's, ± 1.00 ms"},
		{-90 * time.Second, 4 * ms, 0, Warning, "90.0 s behind this machine's, ± 2.00 ms"},
		{3 * time.Second, 2500 * ms, 2500 * ms, OK, "3.00 s ahead of this machine's, ± 2.50 s"},
	} {
		f := clock([]sample{
			asked(5*time.Second, time.Second, c.ahead), asked(c.there, c.back, c.ahead), asked(time.Second, 5*time.Second, c.ahead),
		})
		assert.Equal(t, c.want, f.Result)
		assert.Contains(t, f.Found, c.says)
		assert.InDelta(t, c.ahead.Microseconds(), f.Values["offset_us"], float64((c.there+c.back).Microseconds())/2)
	}
	var trips []sample
	for i := range 100 {
		trips = append(trips, asked(time.Duration(100-i)*100*time.Microsecond, 0, 0))
	}
	f := latency(trips)
	assert.Equal(t, OK, f.Result)
	assert.Equal(t, map[string]any{
		"samples": 100, "p50_us": int64(5000), "p90_us": int64(9000), "p99_us": int64(9900), "max_us": int64(10000),
	}, f.Values)
	for i := range 15 {
		trips[i] = asked(60*ms, 0, 0)
	}
	assert.Equal(t, Warning, latency(trips).Result)
	assert.Equal(t, Problem, latency([]sample{asked(time.Second, 0, 0)}).Result)
}

func TestUnreachable_IsAdvised(t *testing.T) {
	for text, advice := range map[string]string{
		"WRONGPASS invalid username-password pair or user is disabled.":          "name and password",
		"tls: failed to verify certificate: x509: certificate signed by unknown": "certificate",
		"ERR This instance has cluster support disabled":                         "no cluster",
		"NOPERM this user has no permissions to run the 'cluster|slots' command": "+cluster|slots",
		"dial tcp 127.0.0.1:1: connect: connection refused":                      "address and port", // any other
	} {
		r := Unreachable(Options{Address: "here"}, fmt.Errorf("redis at x: %s", text))
		assert.Equal(t, 1, r.Problems)
		assert.Contains(t, r.Checks[0].Advice, advice, text)
		assert.Contains(t, r.Checks[0].Found, text)
	}
}

// The fields of the JSON are a promise to scripts.
func TestReport_TextAndJSON(t *testing.T) {
	r := Report{Namespace: "n", ACL: "ACL SETUSER x"}
	for _, f := range []Finding{
		ok("fine").with(map[string]any{"x_us": 1}), warn("do this", "not so good"), warn("do this", "nor this"), problem("do that", "bad"),
	} {
		f.Check, f.Server = "check", "here"
		r.add(f)
	}
	var plain, coloured strings.Builder
	require.NoError(t, r.Text(&plain, false))
	require.NoError(t, r.Text(&coloured, true))
	assert.Contains(t, coloured.String(), "\x1b[")
	r.Checks = r.Checks[:2]
	text, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	golden.Equal(t, "report.txt", plain.String()+"\n"+string(text)+"\n")
}

// docs/operating.md has the same line, and the library's tests hold that to the scripts.
func TestACLLine(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/operating.md")
	require.NoError(t, err)
	assert.Equal(t, regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(string(text)), ACLLine("billing", "fairlock"))
	for namespace, want := range map[string]string{ // which is no pattern
		`a*b?[c]`:   ` ~a\*b\?\[c\]:* &a\*b\?\[c\]:notify:* `,
		`back\`:     ` ~back\\:* &back\\:notify:* `,
		"two words": " ~two?words:* &two?words:notify:* ", // a rule has no spaces
	} {
		assert.Contains(t, ACLLine("u", namespace), want)
	}
}
