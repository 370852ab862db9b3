package doctor

import (
	"encoding/json"
	"errors"
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

// told are facts of a server that answers INFO and, by pairs of a name and a value, CONFIG.
func told(info string, config ...string) facts {
	f := facts{info: fields(info), hello: map[string]string{}, config: map[string]string{}}
	for i := 0; i < len(config); i += 2 {
		f.config[config[i]] = config[i+1]
	}
	return f
}

func hello(kv ...any) facts { return facts{hello: pairs(kv)} }

func TestFacts_AreJudged(t *testing.T) {
	nothing := facts{noHello: errors.New("ERR"), noInfo: errors.New("NOPERM x"), noConfigure: errors.New("ERR unknown command 'config'")}
	const online = "role:master\nslave0:ip=10.0.0.2,port=6379,state=online,offset=900,lag=1\n"
	for _, c := range []struct {
		judge func(facts) Finding
		facts facts
		want  Result
		says  string
	}{
		{version, hello("server", "redis", "version", "6.2.0"), OK, "Redis 6.2.0"},
		{version, hello("server", "redis", "version", "6.0.16"), Problem, "SET … GET"},
		{version, hello("server", "redis", "version", "unstable"), Unchecked, "unstable"},
		{version, told("redis_version:5.0.14\n"), Problem, "Redis 5.0.14"},
		{version, told("redis_version:7.2.4\nvalkey_version:8.0.1\n"), OK, "Valkey 8.0.1"},
		{version, told("redis_version:7.2.0\ndragonfly_version:df-1.2\n"), Warning, "dragonfly df-1.2"},
		{version, nothing, Unchecked, "version: CONFIG and INFO are refused (NOPERM)"},
		{role, hello("role", "master"), OK, "primary"},
		{role, hello("role", "replica"), Problem, "this is a replica"},
		{role, told("role:slave\nmaster_host:10.0.0.1\nmaster_port:6379\n"), Problem, "this is a replica"},
		{role, hello("mode", "sentinel", "role", "master"), Problem, "Sentinel"},
		{eviction, told("", "maxmemory-policy", "noeviction", "maxmemory", "100"), OK, "noeviction"},
		{eviction, told("", "maxmemory-policy", "volatile-ttl", "maxmemory", "100"), Problem, "volatile-ttl"},
		{eviction, told("", "maxmemory-policy", "allkeys-lru", "maxmemory", "0"), Warning, "as long as"},
		{eviction, told("maxmemory_policy:allkeys-lfu\nmaxmemory:100\n"), Problem, "allkeys-lfu"},
		{memory, told("used_memory:100\n", "maxmemory", "0"), OK, "no limit"},
		{memory, told("used_memory:79\nmaxmemory:100\n"), OK, "79 % of maxmemory used, 21.0 B left"},
		{memory, told("used_memory:80\nmaxmemory:100\n"), Warning, "80 %"},
		{memory, told("used_memory:95\nmaxmemory:100\n"), Problem, "95 %"},
		{memory, told("", "maxmemory", "100"), Unchecked, "memory"},
		{persistence, told("", "appendonly", "yes", "appendfsync", "always"), OK, "on disk"},
		{persistence, told("", "appendonly", "yes", "appendfsync", "everysec"), OK, "last second"},
		{persistence, told("", "appendonly", "yes", "appendfsync", "no"), Warning, "half a minute"},
		{persistence, told("", "appendonly", "no", "appendfsync", "always"), Warning, "appendonly is no"},
		{persistence, told("aof_enabled:1\n"), OK, "not told"},
		{persistence, told("aof_enabled:0\n"), Warning, "appendonly is no"},
		{persistence, told("loading:1\naof_enabled:1\n"), Problem, "loading"},
		{persistence, told("aof_enabled:1\naof_last_write_status:err\n"), Problem, "append-only"},
		{persistence, told("rdb_last_bgsave_status:err\naof_enabled:1\n"), Problem, "snapshot"},
		{persistence, told("rdb_last_bgsave_status:err\n", "stop-writes-on-bgsave-error", "no", "save", "3600 1", "appendonly", "no"), Warning, "appendonly is no"},
		{persistence, told("rdb_last_bgsave_status:err\n", "stop-writes-on-bgsave-error", "yes", "save", "", "appendonly", "no"), Warning, "appendonly is no"},
		{replicas, told("role:master\nconnected_slaves:0\n"), OK, "none"},
		{replicas, told("master_repl_offset:1000\n" + online), OK, "1, heard of within 1 s, at most 100 B behind"},
		{replicas, told("master_repl_offset:3000\n" + online + "slave1:ip=10.0.0.3,port=6379,state=online,offset=952,lag=3\n"), OK,
			"2, heard of within 3 s, at most 2.05 KB behind"},
		{replicas, told(online + "slave1:ip=10.0.0.3,port=6379,state=online,offset=1000,lag=11\n"), Warning, "within 11 s"},
		{replicas, told("role:master\nslave0:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0\n"), Warning, "10.0.0.3:6379 is not online"},
		{replicas, told("role:slave\n"), Unchecked, "primary"},
		{minReplicas, told("role:master\n", "min-replicas-to-write", "0"), OK, "no replicas"},
		{minReplicas, told(online, "min-replicas-to-write", "0"), Warning, "goes on granting"},
		{minReplicas, told("min_slaves_good_slaves:1\n"+online, "min-replicas-to-write", "1"), OK, "stops granting"},
		{minReplicas, told("min_slaves_good_slaves:1\n"+online, "min-replicas-to-write", "2"), Problem, "NOREPLICAS"},
		{minReplicas, facts{info: fields(online), noConfigure: errors.New("NOPERM")}, Unchecked, "CONFIG is refused (NOPERM)"},
		{minReplicas, facts{info: fields("role:master\n"), noConfigure: errors.New("NOPERM")}, OK, "no replicas"},
		{minReplicas, told("role:slave\n"), Unchecked, "primary"},
	} {
		f := c.judge(c.facts)
		assert.Equal(t, c.want, f.Result, "%s: %s", c.says, f.Found)
		assert.Contains(t, f.Found, c.says)
		assert.Equal(t, c.want == Warning || c.want == Problem, f.Advice != "" && f.Result != Unchecked, "%s: what is to be done?", c.says)
	}
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
		{OK, "nothing", []redis.SlowLog{entry(0, 9*ms, ours...), entry(0, 99*ms, "keys", "*"), entry(25*time.Hour, time.Minute, "keys", "*")}},
		{Warning, "2 scripts of ours took over 10.0 ms within a day, the longest 30.0 ms", []redis.SlowLog{entry(0, 10*ms, ours...), entry(0, 30*ms, ours...)}},
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
		f := clock([]sample{asked(5*time.Second, time.Second, c.ahead), asked(c.there, c.back, c.ahead), asked(time.Second, 5*time.Second, c.ahead)})
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
	assert.Equal(t, map[string]any{"samples": 100, "p50_us": int64(5000), "p90_us": int64(9000), "p99_us": int64(9900), "max_us": int64(10000)}, f.Values)
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
	for _, f := range []Finding{ok("fine").with(map[string]any{"x_us": 1}), warn("do this", "not so good"), warn("do this", "nor this"), problem("do that", "bad")} {
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
	assert.JSONEq(t, `{"namespace":"n","acl":"ACL SETUSER x","checks":[{"check":"check","server":"here","result":"ok","found":"fine","values":{"x_us":1}},`+
		`{"check":"check","server":"here","result":"warning","found":"not so good","advice":"do this"}],"problems":1,"warnings":2,"unchecked":0}`, string(text))
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
