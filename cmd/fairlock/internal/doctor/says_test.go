package doctor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

// told is a server that tells what INFO and CONFIG would.
func told(info string, config map[string]string) facts {
	return facts{info: fields(info), config: config, hello: map[string]string{}}
}

// What the server says of itself is judged like this.
func TestWhatAServerSaysIsJudged(t *testing.T) {
	hello := func(kv ...any) facts { return facts{hello: pairs(kv)} }
	config := func(kv ...string) facts {
		f := facts{config: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			f.config[kv[i]] = kv[i+1]
		}
		return f
	}
	nothing := facts{noHello: errors.New("ERR"), noInfo: errors.New("NOPERM x"), noConfigure: errors.New("ERR unknown command 'config'")}
	const online = "slave0:ip=10.0.0.2,port=6379,state=online,offset=900,lag=1\n"

	for name, c := range map[string]struct {
		judge func(facts) Finding
		facts facts
		want  Result
		says  string
	}{
		"version: hello":        {version, hello("server", "redis", "version", "7.0.15"), OK, "Redis 7.0.15"},
		"version: the oldest":   {version, hello("server", "redis", "version", "6.2.0"), OK, "Redis 6.2.0"},
		"version: two digits":   {version, hello("server", "redis", "version", "10.1.0"), OK, "Redis 10.1.0"},
		"version: 6.0":          {version, hello("server", "redis", "version", "6.0.16"), Problem, "SET … GET"},
		"version: 5":            {version, told("redis_version:5.0.14\n", nil), Problem, "Redis 5.0.14"},
		"version: info":         {version, told("redis_version:7.2.4\r\n", nil), OK, "Redis 7.2.4"},
		"version: Valkey":       {version, told("redis_version:7.2.4\nvalkey_version:8.0.1\n", nil), OK, "Valkey 8.0.1"},
		"version: Dragonfly":    {version, told("redis_version:7.2.0\ndragonfly_version:df-1.2\n", nil), Warning, "dragonfly df-1.2"},
		"version: unreadable":   {version, hello("server", "redis", "version", "unstable"), Unchecked, "unstable"},
		"version: not told":     {version, nothing, Unchecked, "version: CONFIG and INFO are refused"},
		"role: primary":         {role, hello("role", "master"), OK, "primary"},
		"role: replica":         {role, hello("role", "replica"), Problem, "this is a replica"},
		"role: slave":           {role, told("role:slave\nmaster_host:10.0.0.1\nmaster_port:6379\n", nil), Problem, "this is a replica"},
		"role: Sentinel":        {role, hello("mode", "sentinel", "role", "master"), Problem, "Sentinel"},
		"role: not told":        {role, nothing, Unchecked, "role"},
		"eviction: none":        {eviction, config("maxmemory-policy", "noeviction", "maxmemory", "100"), OK, "noeviction"},
		"eviction: lru":         {eviction, config("maxmemory-policy", "allkeys-lru", "maxmemory", "100"), Problem, "allkeys-lru"},
		"eviction: volatile":    {eviction, config("maxmemory-policy", "volatile-ttl", "maxmemory", "100"), Problem, "volatile-ttl"},
		"eviction: no limit":    {eviction, config("maxmemory-policy", "allkeys-lru", "maxmemory", "0"), Warning, "as long as"},
		"eviction: by INFO":     {eviction, told("maxmemory_policy:allkeys-lfu\nmaxmemory:100\n", nil), Problem, "allkeys-lfu"},
		"eviction: limit?":      {eviction, config("maxmemory-policy", "allkeys-lru"), Problem, "allkeys-lru"},
		"eviction: not told":    {eviction, nothing, Unchecked, "maxmemory-policy"},
		"memory: no limit":      {memory, told("used_memory:100\n", map[string]string{"maxmemory": "0"}), OK, "no limit"},
		"memory: room":          {memory, told("used_memory:79\nmaxmemory:100\n", nil), OK, "79 % of maxmemory used, 21.0 B left"},
		"memory: little":        {memory, told("used_memory:80\nmaxmemory:100\n", nil), Warning, "80 %"},
		"memory: full":          {memory, told("used_memory:95\nmaxmemory:100\n", nil), Problem, "95 %"},
		"memory: over":          {memory, told("used_memory:120\nmaxmemory:100\n", nil), Problem, "0.00 B left"},
		"memory: used?":         {memory, config("maxmemory", "100"), Unchecked, "memory"},
		"memory: not told":      {memory, nothing, Unchecked, "memory"},
		"persistence: always":   {persistence, config("appendonly", "yes", "appendfsync", "always"), OK, "on disk"},
		"persistence: everysec": {persistence, config("appendonly", "yes", "appendfsync", "everysec"), OK, "last second"},
		"persistence: no fsync": {persistence, config("appendonly", "yes", "appendfsync", "no"), Warning, "half a minute"},
		"persistence: none":     {persistence, config("appendonly", "no", "appendfsync", "always"), Warning, "appendonly is no"},
		"persistence: by INFO":  {persistence, told("aof_enabled:1\n", nil), OK, "not told"},
		"persistence: INFO: no": {persistence, told("aof_enabled:0\n", nil), Warning, "appendonly is no"},
		"persistence: loading":  {persistence, told("loading:1\naof_enabled:1\n", nil), Problem, "loading"},
		"persistence: disk":     {persistence, told("aof_enabled:1\naof_last_write_status:err\n", nil), Problem, "append-only"},
		"persistence: snapshot": {persistence, told("rdb_last_bgsave_status:err\naof_enabled:1\n", nil), Problem, "snapshot"},
		"persistence: snapshot does not stop writes": {persistence, told("rdb_last_bgsave_status:err\n",
			map[string]string{"stop-writes-on-bgsave-error": "no", "save": "3600 1", "appendonly": "no"}), Warning, "appendonly is no"},
		"persistence: no snapshots": {persistence, told("rdb_last_bgsave_status:err\n",
			map[string]string{"stop-writes-on-bgsave-error": "yes", "save": "", "appendonly": "no"}), Warning, "appendonly is no"},
		"persistence: not told": {persistence, nothing, Unchecked, "persistence"},
		"replicas: none":        {replicas, told("role:master\nconnected_slaves:0\n", nil), OK, "none"},
		"replicas: one": {replicas, told("role:master\nmaster_repl_offset:1000\n"+online, nil), OK,
			"1, heard of within 1 s, at most 100 B behind"},
		"replicas: the slowest counts": {replicas, told("role:master\nmaster_repl_offset:3000\n"+online+
			"slave1:ip=10.0.0.3,port=6379,state=online,offset=952,lag=3\n", nil), OK, "2, heard of within 3 s, at most 2.05 KB behind"},
		"replicas: lag": {replicas, told("role:master\nmaster_repl_offset:1000\nslave1:ip=10.0.0.2,port=6379,state=online,offset=1000,lag=0\n"+
			"slave0:ip=10.0.0.3,port=6379,state=online,offset=1000,lag=11\n", nil), Warning, "within 11 s"},
		"replicas: syncing": {replicas, told("role:master\nslave0:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0\n", nil),
			Warning, "10.0.0.3:6379 is not online"},
		"replicas: of a replica": {replicas, told("role:slave\n", nil), Unchecked, "primary"},
		"replicas: not told":     {replicas, nothing, Unchecked, "replicas"},
		"min-replicas: nobody":   {minReplicas, told("role:master\n", map[string]string{"min-replicas-to-write": "0"}), OK, "no replicas"},
		"min-replicas: by INFO":  {minReplicas, told("role:master\n", nil), OK, "no replicas"},
		"min-replicas: 0": {minReplicas, told("role:master\n"+online, map[string]string{"min-replicas-to-write": "0"}), Warning,
			"goes on granting"},
		"min-replicas: 1": {minReplicas, told("role:master\nmin_slaves_good_slaves:1\n"+online,
			map[string]string{"min-replicas-to-write": "1"}), OK, "stops granting"},
		"min-replicas: too few": {minReplicas, told("role:master\nmin_slaves_good_slaves:1\n"+online,
			map[string]string{"min-replicas-to-write": "2"}), Problem, "NOREPLICAS"},
		"min-replicas: replicas, and CONFIG refused": {minReplicas, facts{info: fields("role:master\n" + online),
			noConfigure: errors.New("NOPERM")}, Unchecked, "CONFIG is refused (NOPERM)"},
		"min-replicas: of a replica": {minReplicas, told("role:slave\n", nil), Unchecked, "primary"},
		"min-replicas: not told":     {minReplicas, nothing, Unchecked, "min-replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.judge(c.facts)
			assert.Equal(t, c.want, f.Result, f.Found)
			assert.Contains(t, f.Found, c.says)
			if f.Result == Warning || f.Result == Problem {
				assert.NotEmpty(t, f.Advice, "what is to be done?")
			}
		})
	}
}

// A reason fits on a line, says what counts, and cannot disturb a terminal.
func TestARefusalIsToldInFewWords(t *testing.T) {
	for text, want := range map[string]string{
		"NOPERM this user has no permissions to run the 'info' command":        "NOPERM",
		"ERR unknown command 'CONFIG', with args beginning with: 'get' 'maxm'": "ERR unknown command 'CONFIG'",
		"ERR \x1b[2Jgone\nfor ever":                                            "ERR ?[2Jgone for ever",
	} {
		assert.Equal(t, want, reason(errors.New(text)))
	}
}

func TestHelloIsReadByBothProtocols(t *testing.T) {
	want := map[string]string{"server": "redis", "proto": "3"}
	assert.Equal(t, want, pairs([]any{"server", "redis", "proto", int64(3)}))
	assert.Equal(t, want, pairs(map[any]any{"server": "redis", "proto": int64(3)}))
	assert.Empty(t, pairs(nil))
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for n, want := range map[int64]string{
		-5: "0.00 B", 999: "999 B", 1023: "1023 B", 1024: "1.00 KB", 10 << 20: "10.0 MB", 1 << 62: "4.00 EB",
	} {
		assert.Equal(t, want, bytes(n))
	}
}
