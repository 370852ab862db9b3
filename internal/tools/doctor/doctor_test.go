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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

func TestMain(m *testing.M) {
	redistest.Silence() // connections break here
	m.Run()
}

// silent are the options of a run in the default namespace that reports no progress.
func silent(purpose Purpose) Options {
	return Options{Namespace: "fairlock", Address: "here", For: purpose, Progress: func(string, string) {}}
}

// examine runs all checks, those of a program that locks.
func examine(t *testing.T, rdb redis.UniversalClient) Report {
	return Run(t.Context(), rdb, silent(Use))
}

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

// command is a line of redis-cli.
func command(line string) (args []any) {
	for word := range strings.FieldsSeq(line) {
		args = append(args, word)
	}
	return args
}

// login returns a client of a user with these rules.
func login(t *testing.T, s *redistest.Server, rules ...string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(s.User("somebody", rules...))
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// rules are those of the line that is printed for a purpose.
func rules(purpose Purpose, before7 bool) []string {
	i := slices.Index(Purposes, purpose)
	return strings.Fields(RightsIn("fairlock", before7)[i].ACL)[7:]
}

// lacking returns what the check of rights finds for a user that lacks each of the rules in turn.
func lacking(t *testing.T, s *redistest.Server, f facts, o Options, rules []string) map[string]Finding {
	t.Helper()
	all := map[string]Finding{}
	for i, rule := range rules {
		rdb := login(t, s, slices.Concat(rules[:i], rules[i+1:])...)
		found, err := (&server{Options: o, rdb: rdb, facts: f, name: "x"}).rights(t.Context())
		require.NoError(t, err)
		all[rule] = found
	}
	assert.Equal(t, OK, all["+cluster|slots"].Result)
	delete(all, "+cluster|slots")
	return all
}

// The line that is printed suffices. What it does not allow to look at is no problem.
func TestRun_WithTheLeastRights(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	least := rules(Use, false)
	for _, c := range []struct{ rules, unchecked string }{
		{"", "eviction memory persistence expiry replicas slow keys layout"},
		{"+info", "expiry slow keys layout"}, // CONFIG is missed only where INFO is silent
	} {
		r := examine(t, login(t, s, slices.Concat(least, strings.Fields(c.rules))...))
		assert.Zero(t, r.Count(Problem))
		assert.Equal(t, "the user has all rights that locks need", found(r, "rights").Found)
		assert.Equal(t, strings.Fields(c.unchecked), with(r, Unchecked))
		assert.Contains(t, found(r, "slow").Advice, "admin")
		assert.Regexp(t, `^this user lacks \+config`, found(r, "expiry").Found, "+info does not help")
	}
	// Each right that is missing is named by the rule that gives it, and trying changes nothing.
	for rule, f := range lacking(t, s, facts{}, silent(Use), least) {
		assert.Equal(t, "the user lacks "+rule, f.Found)
		spare := rule[0] == '&' || slices.Contains(spare, rule)
		assert.Equal(t, map[bool]Result{true: Warning, false: Problem}[spare], f.Result, f.Found)
	}
	r := examine(t, login(t, s, "~*", "&*", "+@all", "-eval", "-evalsha"))
	assert.Equal(t, "the user lacks +eval +evalsha", found(r, "rights").Found)
	assert.Equal(t, "ACL SETUSER somebody +eval +evalsha", found(r, "rights").Paste)
	assert.Contains(t, found(r, "trial lock").Found, "this user lacks +evalsha")
	assert.Equal(t, []string{"rights", "trial lock"}, with(r, Problem))
	for _, lacking := range []string{"+publish", "+subscribe", "&fairlock:notify:*"} {
		rules := slices.DeleteFunc(slices.Clone(least), func(rule string) bool { return rule == lacking })
		r := examine(t, login(t, s, rules...))
		assert.Equal(t, Warning, found(r, "trial lock").Result, lacking)
		assert.Contains(t, found(r, "trial lock").Found, "no notification came")
		assert.Equal(t, "see the check of rights", found(r, "trial lock").Advice)
	}
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// So do the lines for operators, who are asked for no more; and each right of theirs that is missing is named.
func TestRun_ForOperators(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	told, err := (&server{rdb: s.Client()}).gather(t.Context())
	require.NoError(t, err)
	for _, purpose := range Purposes[1:] {
		o, rules := silent(purpose), rules(purpose, s.Before7())
		r := Run(t.Context(), login(t, s, rules...), o)
		assert.Empty(t, append(with(r, Problem), with(r, Warning)...), purpose)
		assert.Equal(t, OK, found(r, "rights").Result)
		assert.Equal(t, is(Unchecked, "not needed by an operator").Found, found(r, "trial lock").Found)
		for rule, f := range lacking(t, s, told, o, rules) {
			found, _, _ := strings.Cut(f.Found, ", and perhaps &") // it may call no other command with a channel
			assert.Equal(t, "the user lacks "+rule, found, purpose)
		}
	}
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// After the lines that the check of rights gives have been entered, the user lacks nothing. Redis does not tell a user
// that may not call a command whether it may use the key, so it is no claim that the user lacks the keys.
func TestRights_OneRound(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, c := range []struct{ rules, perhaps string }{
		{"resetchannels", "~fairlock:* &fairlock:notify:*"},
		{"~* allchannels", "~fairlock:* &fairlock:notify:*"},
		{"~* allchannels +@all -publish -subscribe", "&fairlock:notify:*"},
		{"~fairlock:* allchannels +@all -@scripting", ""},
		{"~other:* resetchannels +@all -eval", ""},
		{"%R~* resetchannels +get", "~fairlock:* &fairlock:notify:*"},
	} {
		if s.Before7() && strings.HasPrefix(c.rules, "%") {
			continue
		}
		for _, purpose := range Purposes {
			rdb := login(t, s, strings.Fields(c.rules)...)
			f := found(Run(t.Context(), rdb, silent(purpose)), "rights")
			if purpose == Use {
				assert.Equal(t, Problem == f.Result, !strings.Contains(c.rules, "-publish"), "%s: %s", c.rules, f.Found)
				_, perhaps, _ := strings.Cut(f.Found, ", and perhaps ")
				perhaps, _, _ = strings.Cut(perhaps, ": ")
				assert.Equal(t, c.perhaps, perhaps, c.rules)
			}
			for line := range strings.Lines(f.Paste) {
				if err := s.Client().Do(t.Context(), command(line)...).Err(); err != nil {
					assert.Contains(t, f.Found, ", and perhaps ")
					assert.ErrorContains(t, err, "does not have any effect")
				}
			}
			assert.Equal(t, OK, found(Run(t.Context(), rdb, silent(purpose)), "rights").Result, "%s: %s after %s", c.rules, purpose, f.Paste)
		}
	}
}

func TestRun_Refusals(t *testing.T) {
	t.Parallel()
	// by a service that others run
	s := redistest.Start(t, "--rename-command", "EVALSHA", "", "--rename-command", "ZCOUNT", "",
		"--rename-command", "CONFIG", "", "--rename-command", "HELLO", "")
	rdb := s.Client()
	r := examine(t, rdb)
	assert.Equal(t, []string{"rights", "trial lock"}, with(r, Problem))
	assert.Regexp(t, `^the server refuses evalsha \(ERR unknown command .*\), zcount \(ERR unknown command .*\)$`,
		found(r, "rights").Found)
	assert.Contains(t, found(r, "rights").Advice, "service")
	f := found(examine(t, login(t, s, "~*", "allchannels", "+@all", "-zadd")), "rights")
	assert.Regexp(t, `^the server refuses evalsha .*; the user lacks \+zadd$`, f.Found)
	assert.False(t, f.Own)
	assert.Regexp(t, "unknown command .evalsha.", found(r, "trial lock").Found)
	assert.Equal(t, []string{"expiry"}, with(r, Unchecked), "INFO tells the rest")
	assert.Equal(t, Warning, found(r, "persistence").Result)
	assert.Empty(t, found(r, "persistence").Paste, "nobody may call CONFIG")
	assert.Contains(t, found(r, "persistence").Advice, "use its own settings")
	assert.Equal(t, "0", redistest.Info(t, rdb, "persistence", "rdb_changes_since_last_save"),
		"nothing was written, not even for a moment")

	r = examine(t, redistest.Start(t, "--replicaof", "127.0.0.1", "1").Client())
	assert.Equal(t, []string{"role"}, with(r, Problem), "and not rights: a replica refuses for another reason")
	assert.Contains(t, found(r, "role").Found, "127.0.0.1:1")
	assert.Equal(t, "not tried on a replica", found(r, "trial lock").Found)
}

// What refuses every write, and a Sentinel, are called what they are, and are no lack of rights.
func TestRun_SaysWhatIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/gone"
	require.NoError(t, os.Mkdir(dir, 0o700))
	full := redistest.Start(t, "--dir", dir, "--save", "3600", "1")
	require.NoError(t, full.Client().Set(t.Context(), "x", "y", 0).Err())
	require.NoError(t, os.RemoveAll(dir))
	require.Eventually(t, func() bool {
		_ = full.Client().BgSave(t.Context()).Err()
		return strings.HasPrefix(fmt.Sprint(full.Client().Set(t.Context(), "x", "y", 0).Err()), "MISCONF")
	}, time.Minute, 10*time.Millisecond)
	began := time.Now()
	r := examine(t, full.Client())
	assert.Less(t, time.Since(began), exercising, "it does not wait for what cannot be")
	assert.Equal(t, []string{"trial lock", "persistence"}, with(r, Problem))
	assert.Contains(t, found(r, "trial lock").Found, "no lock can be acquired now: MISCONF")
	assert.Contains(t, found(r, "persistence").Found, "refuses writes (MISCONF)")
	assert.Contains(t, found(r, "persistence").Advice, "disk")
	for _, f := range r.Checks {
		for line := range strings.Lines(f.Paste) {
			require.NoError(t, full.Client().Do(t.Context(), command(line)...).Err(), "%s: %s", f.Check, line)
		}
	}
	if !full.Before7() { // where nothing that an operator may call tells
		r = Run(t.Context(), login(t, full, rules(Look, false)...), silent(Look))
		assert.Equal(t, []string{"trial lock", "persistence"}, with(r, Problem), "also for who may only look")
		assert.Contains(t, found(r, "trial lock").Found, "no lock can be acquired now: MISCONF")
	}

	// no node has slots; on a socket, its bus would have a fixed port
	down := redistest.StartTCP(t, "--cluster-enabled", "yes").Client()
	r = examine(t, down)
	assert.Equal(t, []string{"cluster", "trial lock"}, with(r, Problem))
	assert.Contains(t, found(r, "trial lock").Found, "CLUSTERDOWN")

	r = examine(t, redis.NewClient(&redis.Options{Addr: redistest.StartSentinels(t,
		0).Options().SentinelAddrs[0]}))
	assert.Equal(t, []string{"role"}, with(r, Problem))
	assert.Contains(t, found(r, "role").Found, "a Sentinel")
	assert.Equal(t, Checks()[3:], with(r, Unchecked))
}

// What a user may not call is sent once, however often the checks are made: each time is an entry in the server's ACL
// LOG.
func TestRun_AsksOnceWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb, o := login(t, s, rules(Look, s.Before7())...), silent(Look)
	o.Refused = &Refused{}
	count := func() (n int64) {
		log, err := s.Client().ACLLog(t.Context(), 100).Result()
		require.NoError(t, err)
		for _, entry := range log {
			if !strings.HasPrefix(entry.Object, "client") { // those are go-redis's own
				n += entry.Count
			}
		}
		return n
	}
	first := Run(t.Context(), rdb, o)
	once := count()
	require.Positive(t, once)
	assert.Equal(t, first.Checks[2:4], Run(t.Context(), rdb, o).Checks[2:4])
	assert.Equal(t, once, count())
	o.Refused = nil
	Run(t.Context(), rdb, o)
	assert.Equal(t, 2*once, count())
}

// A server that does not answer any more is not asked, and what was not checked is not called well.
func TestRun_Ends(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.NewLink(t, s)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: link.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	o := silent(Use)
	o.Progress = func(_, check string) {
		if check == "latency" {
			link.Cut()
		}
	}
	r := Run(t.Context(), rdb, o)
	assert.Equal(t, []string{"latency"}, with(r, Problem))
	assert.Equal(t, []string{"slow", "keys", "layout"}, with(r, Unchecked))
	assert.Equal(t, "not checked after the connection failed", found(r, "slow").Found)

	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(_, check string) {
		if check == "trial lock" {
			cancel()
		}
	}
	r = Run(ctx, s.Client(), o)
	assert.Zero(t, r.Count(Problem))
	assert.Equal(t, Checks()[5:], with(r, Unchecked))
	assert.Zero(t, s.Client().DBSize(t.Context()).Val())
}

// Without notifications a waiter gets the lock by a heartbeat, and the report says so.
func TestLocks_WithoutNotifications(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		link := m.Link()
		link.DropNotifications()
		s := &server{Options: silent(Use), all: link.Redis(), name: "x"}
		f, err := s.locks(t.Context())
		require.NoError(t, err)
		assert.Equal(t, Warning, f.Result, f.Found)
		assert.Contains(t, f.Found, "no notification came")
		assert.Contains(t, f.Advice, "connections")
		assert.Empty(t, m.Miniredis.Keys())

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel) // while it holds the lock and waits for the subscription
		_, err = s.locks(ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, m.Miniredis.Keys(), "what was taken is given back")
	})
}

// The keys of each kind of lock are in testdata/sessions.txt of ui.
func TestKeys(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	left := func(namespace string) Finding {
		o := silent(Use)
		o.Namespace = namespace
		f, err := (&server{Options: o, rdb: rdb, all: rdb}).keys(ctx)
		require.NoError(t, err)
		return f
	}
	assert.Equal(t, is(OK, "0 keys of locks"), left("fairlock"), "nor are there others")
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
		{"lock", "set n:{x}:lock 1", Problem, "forever"},
		{"number", "set n:{x}:number 1", Warning, `1 key never expires: "number:{x}:number"`},
		{"numbers", "set n:{x}:number 1; set n:{y}:number 1", Warning, "2 keys never expire: "},
		{"resized", "set n:{x}:sem:resized 4; set n:{x}:number 1 px 3600000", OK,
			"2 keys of locks, of the right types, and they expire, except 1 set by resize"},
		{"one", "zadd n:{x}:queue 0 0" + expires, OK, "1 key of locks"},
		{"strange", "lpush n:queue 1; lpush n:{x}:something 1; lpush ns:{x}:queue 1; lpush n:{x}:sem:lock 1", Warning,
			"no locks in this namespace; namespaces with locks: "},
	} {
		for line := range strings.SplitSeq(c.commands, "; ") {
			line = strings.ReplaceAll(line, " n", " "+c.namespace)
			require.NoError(t, rdb.Do(ctx, command(line)...).Err(), line)
		}
		f := left(c.namespace)
		assert.Equal(t, c.want, f.Result, "%s: %s", c.namespace, f.Found)
		assert.Contains(t, f.Found, c.says)
	}
}

// The layout of this version, and those of the locks that were used lately.
func TestLayout(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := &server{Options: silent(Use), rdb: rdb}
	layout := func() Finding {
		_, err := s.keys(t.Context())
		require.NoError(t, err)
		f, err := s.layout(t.Context())
		require.NoError(t, err)
		return f
	}
	const ours = "this version has layout " + tokens.Layout
	assert.Equal(t, is(OK, ours+"; no lock was used lately"), layout())
	client, err := fairlock.New(rdb, fairlock.Config{})
	require.NoError(t, err)
	defer client.Close()
	for _, name := range []string{"a", "b"} {
		lease, err := client.Mutex(name).Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	assert.Equal(t, is(OK, ours+"; used lately: 2 locks of layout "+tokens.Layout), layout())

	key := script.KeysOf("semaphore", "fairlock", "c").Part("number")
	require.NoError(t, rdb.Set(t.Context(), key, "999 what a later version writes", time.Hour).Err())
	_, err = client.Semaphore("c", 1).TryAcquire(t.Context(), 1)
	other := &token.LayoutError{}
	require.ErrorAs(t, err, &other)
	assert.Equal(t, is(Problem, ours+"; used lately: 2 locks of layout "+tokens.Layout+", 1 lock of layout 999"), layout())
	require.NoError(t, rdb.Set(t.Context(), key, "damaged", time.Hour).Err())
	assert.Equal(t, OK, layout().Result)
}

// testdata/facts.txt has what servers say about themselves, or refuse, what a check finds in it, and what the finding
// advises if that is not what its check does. It is written anew with -update.
func TestFacts_AreJudged(t *testing.T) {
	judges := map[string]func(facts) Finding{
		"version": version, "role": role, "eviction": eviction, "memory": memory, "persistence": persistence,
		"replicas": replicas, "expiry": expiry,
	}
	text, err := os.ReadFile("testdata/facts.txt")
	require.NoError(t, err)
	said := ""
	for line := range strings.Lines(string(text)) {
		words, server := strings.CutPrefix(line, "$ ")
		if !server {
			continue
		}
		judge, words, _ := strings.Cut(strings.TrimSpace(words), " ")
		var f Finding
		switch judge {
		case "unreachable":
			f = Unreachable(Options{}, errors.New(words)).Checks[0]
		case "latency":
			var trips []time.Duration
			for word := range strings.FieldsSeq(words) {
				trip, err := time.ParseDuration(word)
				require.NoError(t, err)
				trips = append(trips, trip)
			}
			f = latency(trips)
		default:
			f = judges[judge](read(words))
		}
		said += line + string(f.Result) + ": " + f.Found + "\n"
		if f.Advice != "" {
			said += "-> " + strings.TrimSuffix(f.Advice+" | "+f.Paste, " | ") + "\n"
		}
	}
	golden.Equal(t, "facts.txt", said)
}

// read reads facts.
func read(words string) facts {
	f := facts{told: map[string]string{}}
	for word := range strings.FieldsSeq(words) {
		switch name, value, said := strings.Cut(word, "="); {
		case said:
			f.told[name] = value
		case word == "refused":
			f.info, f.config = errors.New("NOPERM x"), errors.New("NOPERM y")
		case word == "MISCONF":
			f.writes = "MISCONF x"
		}
	}
	return f
}

// A script of this version is told from those of others by its hash, which also gives its verb. Its text does not help,
// because Redis keeps only the beginning.
func TestSlowLog_OwnScripts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t, "--slowlog-log-slower-than", "0").Client()
	client, err := fairlock.New(rdb, fairlock.Config{})
	require.NoError(t, err)
	defer client.Close()
	for range 2 {
		lease, err := client.Semaphore("x", 1).TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	require.NoError(t, rdb.Eval(t.Context(), "return 1", nil).Err())
	entries, err := rdb.SlowLogGet(t.Context(), 100).Result()
	require.NoError(t, err)
	seen := map[string]string{}
	for _, e := range entries {
		e.Duration = time.Second
		f := slowest([]redis.SlowLog{e})
		require.Equal(t, Warning, f.Result)
		which, _ := strings.CutPrefix(f.Found, "1 command took over 100ms within a day, the longest 1s ")
		seen[which] = f.Advice
	}
	const advice = "check what slows the server down"
	assert.Contains(t, seen["(EVAL of fairlock's own script)"], advice)
	assert.Contains(t, seen["(EVALSHA of fairlock's own script acquire)"], advice)
	assert.Contains(t, seen, "(EVAL)", "of another script")
	assert.Empty(t, seen["(EVAL)"])
}

// The fields of the JSON are a promise to scripts.
func TestReport_JSON(t *testing.T) {
	r := Report{Namespace: "n", Rights: []Rights{{"use locks", "ACL SETUSER x"}}}
	r.add("one", "here", is(OK, "fine"))
	text, err := json.Marshal(r)
	require.NoError(t, err)
	assert.JSONEq(t, `{"namespace":"n","rights":[{"for":"use locks","acl":"ACL SETUSER x"}],`+
		`"checks":[{"check":"one","server":"here","result":"ok","found":"fine"}]}`, string(text))
}

// docs/operating.md has the same lines. TestRights_FollowTheScripts holds them to the scripts.
func TestRightsIn(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operating.md")
	require.NoError(t, err)
	var lines []string
	for _, r := range RightsIn("fairlock", false) {
		lines = append(lines, r.ACL)
	}
	assert.Equal(t, regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindAllString(string(text), -1), lines)
	for namespace, want := range map[string]string{ // which is no pattern
		`a*b?[c]`:   ` ~a\*b\?\[c\]:* &a\*b\?\[c\]:notify:* `,
		`back\`:     ` ~back\\:* &back\\:notify:* `,
		"two words": " ~two?words:* &two?words:notify:* ", // a rule has no spaces
	} {
		assert.Contains(t, RightsIn(namespace, false)[0].ACL, want)
	}
	assert.Contains(t, RightsIn("n", true)[1].ACL, " ~n:* +eval +evalsha +time ", "a Redis 6.2 knows no other")
}
