package script_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// BenchmarkScriptTime measures for how long redis-server runs the requests of a pair: of an idle lock that is acquired
// and released; of the same while others hold permits; of a waiter that joins and a release that grants the lock, while
// a thousand wait. Beside them stands a bare pair, SET NX PX and a compare-and-delete, which is the least that a lock
// with a token can cost.
func BenchmarkScriptTime(b *testing.B) {
	b.Run("bare pair", func(b *testing.B) {
		s := newReal(b, redistest.Start(b))
		remove := redis.NewScript(
			`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
		measure(b, s.rdb, []string{"set", "evalsha"}, func() {
			require.NoError(b, s.rdb.SetNX(ctx, s.namespace, "token", time.Hour).Err())
			require.NoError(b, remove.Run(ctx, s.rdb, []string{s.namespace}, "token").Err())
		})
	})
	for _, k := range timedKinds {
		for _, c := range []struct {
			name             string
			holders, waiters int
		}{{"idle", 0, 0}, {"held", 2, 0}, {"handoff", k.permits, 1000}} {
			if c.name == "held" && k.permits < 3 {
				continue
			}
			b.Run(k.name+"/"+c.name, func(b *testing.B) {
				s := newReal(b, redistest.Start(b))
				lock, n := k.open(dispatch.NewDirect(s.rdb), s.namespace, "name"), 0
				var held []script.Grant
				acquire := func() {
					n++
					r, err := lock.Acquire(ctx, script.Request{Token: k.token(n), WaiterTTL: time.Hour})
					require.NoError(b, err)
					if r.Outcome == script.Granted {
						held = append(held, script.Grant{Token: k.token(n), Fence: r.Fence})
					}
				}
				for range c.holders + c.waiters {
					acquire()
				}
				measure(b, s.rdb, []string{"evalsha"}, func() {
					acquire()
					h := held[0]
					if c.waiters == 0 {
						h = held[len(held)-1]
					}
					reply, err := lock.Release(ctx, h.Token, h.Fence, script.Rest{})
					require.NoError(b, err)
					require.Equal(b, c.waiters > 0, len(reply.Grants) == 1)
					if c.waiters == 0 {
						held = held[:len(held)-1]
					} else {
						held = append(held[1:], reply.Grants...)
					}
				})
			})
		}
	}
}

// measure reports for how long the server runs these commands for each call of pair. Other programs disturb it, so it
// is the median of many batches.
func measure(b *testing.B, rdb *redis.Client, commands []string, pair func()) {
	b.Helper()
	const batch = 100
	pair() // now Redis has the scripts
	var all []float64
	for b.Loop() {
		require.NoError(b, rdb.ConfigResetStat(ctx).Err())
		for range batch {
			pair()
		}
		sum := 0.0
		for _, command := range commands {
			stats := redistest.Info(b, rdb, "commandstats", "cmdstat_"+command)
			_, text, _ := strings.Cut(stats, "usec=")
			text, _, _ = strings.Cut(text, ",")
			usec, err := strconv.ParseFloat(text, 64)
			require.NoError(b, err, stats)
			sum += usec
		}
		all = append(all, sum/batch)
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)/2], "script-µs/pair")
	b.ReportMetric(0, "ns/op")
}

type timedKind struct {
	name    string
	permits int
	open    func(script.Sender, string, string) script.Lock
	token   func(n int) token.Token
}

var timedKinds = append([]timedKind{
	{"mutex", 1, script.Mutex, func(n int) token.Token { return numbered("c", time.Hour, 1, 0, n) }},
	{"semaphore", 5, script.Semaphore, func(n int) token.Token { return numbered("c", time.Hour, 1, 5, n) }},
}, keyedKinds()...)

// keyedKinds are keyed semaphores of so many keys.
func keyedKinds() (all []timedKind) {
	for _, keys := range []int{1, 10, 1000} {
		all = append(all, timedKind{fmt.Sprint("keyed by ", keys), 5, script.KeyedSemaphore, func(n int) token.Token {
			return keyedToken("c", tokens.Terms{TTL: time.Hour, Weight: 1, Permits: 5, Key: fmt.Sprint("tenant-", n%keys),
				Share: 1}, n)
		}})
	}
	return all
}
