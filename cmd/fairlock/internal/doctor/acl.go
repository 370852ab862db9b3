package doctor

import (
	"strings"
	"unicode"
)

// right is a command that locks need, and arguments with which it changes nothing, whatever it meets: key is a key that
// does not exist.
type right struct {
	command string
	try     func(key, channel string) []any
	spare   bool // locks work without it, if less well
}

func onKey(args ...any) func(key, channel string) []any {
	return func(key, _ string) []any { return append([]any{key}, args...) }
}

// rights are all of them: what docs/operating.md tells and this program prints.
var rights = []right{
	{command: "eval", try: func(key, _ string) []any { return []any{"return 1", 1, key} }},
	{command: "evalsha", try: func(key, _ string) []any { return []any{strings.Repeat("0", 40), 1, key} }},
	{command: "time", try: func(string, string) []any { return nil }},
	{command: "exists", try: onKey()},
	{command: "get", try: onKey()},
	{command: "set", try: onKey("", "xx", "px", 1)}, // only if the key is there
	{command: "del", try: onKey()},
	{command: "type", try: onKey(), spare: true}, // names a key in an error
	{command: "pttl", try: onKey()},
	{command: "pexpire", try: onKey(1)},
	{command: "zadd", try: onKey("xx", 0, "member")}, // only if the member is there
	{command: "zrem", try: onKey("member")},
	{command: "unlink", try: onKey()},
	{command: "zrange", try: onKey(0, 0)},
	{command: "zrank", try: onKey("member")},
	{command: "zscore", try: onKey("member")},
	{command: "zcard", try: onKey()},
	{command: "zcount", try: onKey(0, 0)},
	{command: "zrangebyscore", try: onKey(0, 0)},
	{command: "zremrangebyscore", try: onKey(0, 0)},
	{command: "hget", try: onKey("field")},
	{command: "hmget", try: onKey("field")},
	{command: "hset", try: onKey("field", 1, "no value")}, // refused for that, after the rights were looked at
	{command: "hdel", try: onKey("field")},
	{command: "hlen", try: onKey()},
	{command: "hscan", try: onKey(0)},
	{command: "hincrby", try: onKey("field", "no number")}, // refused for that, too
	{command: "publish", try: func(_, channel string) []any { return []any{channel, ""} }, spare: true},
	{command: "subscribe", spare: true}, // tried by subscribing
}

// ACLLine is the command that makes a user with the least rights that locks in the namespace need, for redis-cli.
func ACLLine(user, namespace string) string {
	line := []string{"ACL SETUSER", user, "reset on >password", keyRule(namespace), channelRule(namespace)}
	for _, r := range rights {
		line = append(line, "+"+r.command)
	}
	return strings.Join(line, " ")
}

// clusterRule is what go-redis needs on top of it to find its way in a cluster.
const clusterRule = " +cluster|slots"

func keyRule(namespace string) string     { return "~" + pattern(namespace) + ":*" }
func channelRule(namespace string) string { return "&" + pattern(namespace) + ":notify:*" }

// pattern is a glob that matches the namespace. A rule has no spaces: any character stands for one.
func pattern(namespace string) string {
	var b strings.Builder
	for _, r := range namespace {
		switch {
		case strings.ContainsRune(`*?[]\`, r):
			b.WriteRune('\\')
		case unicode.IsSpace(r):
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}
