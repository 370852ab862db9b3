package doctor

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/facts.txt anew")

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
	const file = "testdata/facts.txt"
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	var found strings.Builder
	for line := range strings.Lines(string(want)) {
		if words := strings.Fields(line); words[0] == "$" {
			f := judges[words[1]](told(words[2:]))
			fmt.Fprintf(&found, "%s%s: %s\n", line, f.Result, f.Found)
			if f.Advice != "" {
				fmt.Fprintf(&found, "-> %s\n", f.Advice)
			}
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(found.String()), 0o600))
	} else {
		require.Equal(t, string(want), found.String())
	}
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
	ours := []string{"evalsha", "abc", "4", "fairlock:{x}:queue", "fairlock:{x}:alive"}
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
	var b strings.Builder
	require.NoError(t, r.Text(&b, false))
	assert.Equal(t, `here, namespace "n"
  ok         check         fine
  warning    check         not so good
                           -> do this
  warning    check         nor this
  problem    check         bad
                           -> do that

1 problem, 2 warnings, 0 unchecked

The least rights for locks in this namespace, for redis-cli (choose the name and the password):
ACL SETUSER x
`, b.String())
	require.NoError(t, r.Text(&b, true))
	assert.Contains(t, b.String(), "\x1b[")
	r.Checks = r.Checks[:2]
	text, err := json.Marshal(r)
	require.NoError(t, err)
	assert.JSONEq(t, `{"namespace": "n", "acl": "ACL SETUSER x", "problems": 1, "warnings": 2, "unchecked": 0, "checks": [
		{"check": "check", "server": "here", "result": "ok", "found": "fine", "values": {"x_us": 1}},
		{"check": "check", "server": "here", "result": "warning", "found": "not so good", "advice": "do this"}]}`, string(text))
}

// docs/operating.md has the same line, and the library's tests hold that to the scripts.
func TestACLLine(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/operating.md")
	require.NoError(t, err)
	assert.Equal(t, regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(string(text)), ACLLine("billing", "fairlock"))
	for namespace, want := range map[string]string{ // which is no pattern
		`a*b?[c]`:   ` ~a\*b\?\[c\]:* &a\*b\?\[c\]:wake:* `,
		`back\`:     ` ~back\\:* &back\\:wake:* `,
		"two words": " ~two?words:* &two?words:wake:* ", // a rule has no spaces
	} {
		assert.Contains(t, ACLLine("u", namespace), want)
	}
}
