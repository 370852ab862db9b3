package script_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// BenchmarkScriptTime measures how much of a processor redis-server needs for what locks are used for: an idle lock that is acquired and released;
// the same while others hold permits; a waiter that joins and a release that grants the lock, while a thousand wait.
func BenchmarkScriptTime(b *testing.B) {
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
				lock, n := k.open(s.rdb, s.namespace, "name"), 0
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
				cpu := func() float64 {
					seconds, err := strconv.ParseFloat(redistest.Info(b, s.rdb, "cpu", "used_cpu_user"), 64)
					require.NoError(b, err)
					return seconds
				}
				before := cpu()
				for b.Loop() {
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
				}
				b.ReportMetric((cpu()-before)*1e6/float64(b.N), "cpu-µs/pair")
			})
		}
	}
}

type timedKind struct {
	name    string
	permits int
	open    func(script.Scripter, string, string) script.Lock
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
			return keyedToken("c", tokens.Terms{TTL: time.Hour, Weight: 1, Permits: 5, Key: fmt.Sprint("tenant-", n%keys), Share: 1}, n)
		}})
	}
	return all
}
