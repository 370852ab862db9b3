package fairlock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// as returns a redis-server of its own, on which the clients of the test have these rights.
func as(t *testing.T, rules []string) *server {
	t.Helper()
	own := redistest.Start(t)
	args := []any{"acl", "setuser", "billing", "reset", "on", ">password"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, own.Client().Do(t.Context(), args...).Err())
	return &server{t: t, namespace: "fairlock", root: own.Client(), rdb: func() *redis.Client {
		o := own.Options()
		o.Username, o.Password = "billing", "password"
		rdb := redis.NewClient(o)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}}
}

// aclLine returns the rules of the ACL line in docs/operating.md.
func aclLine(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("docs/operating.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER fairlock reset resetchannels on >password (.*)$`).FindSubmatch(text)
	require.NotNil(t, line)
	return strings.Fields(string(line[1]))
}

// The ACL line has the commands that the scripts use, and no others.
func TestACLLine_AllowsWhatTheScriptsUse(t *testing.T) {
	needed := map[string]bool{"eval": true, "evalsha": true, "subscribe": true, "cluster|slots": true}
	for _, text := range lua.Texts() {
		for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(text, -1) {
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

// With the rights of the ACL line everything works, notifications included.
//
//fairlock:fault The user lacks rights
func TestACLLine_Suffices(t *testing.T) {
	t.Parallel()
	s := as(t, aclLine(t))
	for _, c := range scenarios {
		play(t, s, c.of, c.steps)
	}
	for _, of := range locks {
		forceRelease(t, s, of)
		refuseOneMore(t, s, of)
	}
	require.NoError(t, s.root.Set(t.Context(), "fairlock:{x}:queue", "not a zset", 0).Err())
	require.ErrorContains(t, refused(t, s.client(fairlock.Config{}).Mutex("x").Lock), `key "fairlock:{x}:queue"`)
}

// An error names the right that the user lacks. Without rights to the channel everything works, by heartbeats.
//
//fairlock:fault The user lacks rights: an error that names what is missing; without the channel, heartbeats replace notifications
func TestACL_UserLacksRights(t *testing.T) {
	t.Parallel()
	s := as(t, []string{"~other:*", "&*", "+@all"})
	require.ErrorContains(t, refused(t, s.client(fairlock.Config{}).Mutex("x").Lock), "fairlock:{x}:")
	s = as(t, []string{"~*", "resetchannels", "+@all"})
	lease := hold(t, newClient(t, s.root, fairlock.Config{}).Mutex("x").Lock)
	m := s.client(fairlock.Config{WaiterTTL: fairlock.MinWaiterTTL}).Mutex("x")
	next := join(t, m, m.Lock)
	unlock(t, lease)
	unlock(t, next.granted(t))
}
