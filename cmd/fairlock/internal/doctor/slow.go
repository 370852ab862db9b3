package doctor

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// What is slow: a script of ours never takes so long; another command that does holds up every lock for as long.
const (
	slowOurs   = 10 * time.Millisecond
	slowOthers = 100 * time.Millisecond
	slowSince  = 24 * time.Hour
	slowMost   = 128 // entries, which is what Redis keeps by default
)

// slow judges the slow log.
func slow(entries []redis.SlowLog, namespace string, now time.Time) Finding {
	var ours, others int
	var longestOurs, longestOthers time.Duration
	var culprit string
	for _, e := range entries {
		switch {
		case now.Sub(e.Time) > slowSince:
		case isOurs(e.Args, namespace):
			if e.Duration >= slowOurs {
				ours++
			}
			longestOurs = max(longestOurs, e.Duration)
		case e.Duration >= slowOthers:
			others++
			if e.Duration > longestOthers && len(e.Args) > 0 {
				longestOthers, culprit = e.Duration, printable(strings.ToUpper(e.Args[0]))
			}
		}
	}
	values := map[string]any{
		"ours": ours, "ours_longest_us": longestOurs.Microseconds(),
		"others": others, "others_longest_us": longestOthers.Microseconds(),
	}
	switch {
	case others > 0:
		return warn("find out who sends it (SLOWLOG GET): every lock waits meanwhile",
			"%s of others took over %s within a day, the longest %s (%s)", count(others, "command"), brief(slowOthers), brief(longestOthers), culprit).
			with(values)
	case ours > 0:
		return warn("a script of ours should take some ms at most: look at the server's load, memory and swap",
			"%s of ours took over %s within a day, the longest %s", count(ours, "script"), brief(slowOurs), brief(longestOurs)).with(values)
	}
	return ok("nothing in the slow log that would hold up locks").with(values)
}

// isOurs reports whether a command is a script on keys of the namespace.
func isOurs(args []string, namespace string) bool {
	if len(args) < 4 || !strings.HasPrefix(strings.ToLower(args[0]), "eval") {
		return false
	}
	return strings.HasPrefix(args[3], namespace+":{")
}
