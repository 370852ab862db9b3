package doctor

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
)

func TestTheSlowLogIsReadForWhatHoldsUpLocks(t *testing.T) {
	now := time.Now()
	entry := func(age, took time.Duration, args ...string) redis.SlowLog {
		return redis.SlowLog{Time: now.Add(-age), Duration: took, Args: args}
	}
	ours := []string{"evalsha", "abc", "4", "fairlock:{x}:queue", "fairlock:{x}:alive"}
	for name, c := range map[string]struct {
		entries []redis.SlowLog
		want    Result
		says    string
	}{
		"nothing":           {nil, OK, "nothing"},
		"ours, not so slow": {[]redis.SlowLog{entry(0, 9*time.Millisecond, ours...)}, OK, "nothing"},
		"ours": {[]redis.SlowLog{entry(0, 10*time.Millisecond, ours...), entry(0, 30*time.Millisecond, ours...)}, Warning,
			"2 scripts of ours took over 10.0 ms within a day, the longest 30.0 ms"},
		"another namespace":    {[]redis.SlowLog{entry(0, 20*time.Millisecond, "evalsha", "abc", "1", "fairlocks:{x}:queue")}, OK, "nothing"},
		"others, not so slow":  {[]redis.SlowLog{entry(0, 99*time.Millisecond, "keys", "*")}, OK, "nothing"},
		"others":               {[]redis.SlowLog{entry(0, time.Second, "keys", "*"), entry(0, 100*time.Millisecond, "debug")}, Warning, "1.00 s (KEYS)"},
		"long ago":             {[]redis.SlowLog{entry(25*time.Hour, time.Minute, "keys", "*")}, OK, "nothing"},
		"a command with bytes": {[]redis.SlowLog{entry(0, time.Second, "ke\x1bys")}, Warning, "(KE?YS)"},
		"no arguments":         {[]redis.SlowLog{entry(0, time.Second)}, Warning, "1 command of others"},
	} {
		t.Run(name, func(t *testing.T) {
			f := slow(c.entries, "fairlock", now)
			assert.Equal(t, c.want, f.Result)
			assert.Contains(t, f.Found, c.says)
		})
	}
}
