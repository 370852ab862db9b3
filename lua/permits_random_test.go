package lua_test

import (
	"cmp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Whatever happens in whatever order, with leases and patiences of all lengths, crashes, and keys that expire one by
// one: never more than the capacity is held, fences rise, nobody who fits stands at the head after a call that
// admits, and once the last lease has ended all permits are there.
func TestPermits_NoneIsLostOrGrantedTwice(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{1, 3, 7} {
		t.Run(strconv.Itoa(capacity), func(t *testing.T) {
			t.Parallel()
			w := memory(t).asSemaphore(capacity)
			said := w.listen("c")
			rapid.Check(t, func(r *rapid.T) {
				w.do("FLUSHALL")
				now := w.freeze()
				durations := rapid.SampledFrom([]time.Duration{
					10 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, 10 * time.Minute,
				})
				type grant struct {
					weight int
					fence  uint64
					ends   time.Time
				}
				held, asked := map[token.Token]grant{}, map[token.Token]lua.Request{}
				var known []token.Token
				var fence uint64
				granted := func(who token.Token, f uint64, d time.Duration) {
					if g, ok := held[who]; ok && g.ends.After(now) {
						require.Equal(r, g.fence, f, "a holder keeps its fence")
						if end := now.Add(d); end.After(g.ends) {
							g.ends = end
						}
						held[who] = g
						return
					}
					require.Greater(r, f, fence)
					fence = f
					held[who] = grant{asked[who].Weight, f, now.Add(d)}
				}
				handed := func(h lua.Handoff) {
					for _, g := range h.Grants {
						granted(g.Token, g.Fence, g.Given)
					}
				}
				said()                             // of the run before
				heard := func(more ...lua.Grant) { // in the order in which they were made
					for _, m := range said() {
						if g, err := lua.ParseNotification(m); err == nil {
							more = append(more, g)
						}
					}
					slices.SortFunc(more, func(a, b lua.Grant) int { return cmp.Compare(a.Fence, b.Fence) })
					for _, g := range more {
						granted(g.Token, g.Fence, g.Given)
					}
				}
				one := func() token.Token {
					if len(known) == 0 {
						return w.token()
					}
					return rapid.SampledFrom(known[max(0, len(known)-8):]).Draw(r, "who")
				}
				for range rapid.IntRange(1, 40).Draw(r, "steps") {
					d, p := durations.Draw(r, "ttl"), durations.Draw(r, "waiter TTL")
					admits := true
					switch op := rapid.SampledFrom([]string{
						"acquire", "acquire", "acquire", "again", "again",
						"release", "leave", "renew", "heartbeat", "heartbeat", "step", "step", "force",
					}).Draw(r, "op"); op {
					case "acquire", "again":
						a := lua.Request{Token: w.token(), Weight: rapid.IntRange(1, capacity).Draw(r, "weight"), WaiterTTL: p}
						if op == "again" && len(known) > 0 {
							a = asked[one()]
						} else {
							a.Try = rapid.IntRange(0, 4).Draw(r, "try") == 0
							known = append(known, a.Token)
						}
						a.TTL = d
						asked[a.Token] = a
						admits = !held[a.Token].ends.After(now) // a holder's question is answered and no more
						answer := w.acquire(a)
						if answer.Outcome == lua.Granted {
							heard(lua.Grant{Token: a.Token, Fence: answer.Fence, Given: d})
						} else {
							heard()
						}
					case "release", "leave":
						who := one()
						var h lua.Handoff
						var err error
						if op == "release" {
							h, err = w.lock.Release(t.Context(), who, d)
						} else {
							h, err = w.lock.Leave(t.Context(), who, d, 0)
						}
						require.NoError(r, err)
						g, was := held[who]
						require.Equal(r, was && g.ends.After(now), h.Released)
						delete(held, who)
						handed(h)
						said()
					case "renew":
						who := one()
						f, ok := w.renew(who, d, 0)
						g, was := held[who]
						require.Equal(r, was && g.ends.After(now), ok)
						if ok {
							granted(who, f, d)
						}
						admits = false
					case "heartbeat":
						_, err := w.lock.Heartbeat(t.Context(), d, p, slices.Compact([]token.Token{one(), one()}))
						require.NoError(r, err)
						heard()
					case "force":
						h := w.forceRelease()
						held = map[token.Token]grant{}
						handed(h)
						said()
					case "step":
						now = now.Add(durations.Draw(r, "by") - time.Duration(rapid.IntRange(0, 2).Draw(r, "less"))*time.Microsecond)
						w.mini.SetTime(now)
						admits = false
					}
					used, want := 0, holdings{}
					for who, g := range held {
						if g.ends.After(now) {
							want[who] = g.weight
							used += g.weight
						}
					}
					require.LessOrEqual(r, used, capacity)
					w.held(want)
					s := w.inspect(10)
					if admits && len(s.Waiters) > 0 {
						require.Equal(r, used, s.Used)
						require.Greater(r, s.Waiters[0].Weight, capacity-used, "the head fits")
					}
				}
				now = now.Add(10*time.Minute + time.Millisecond)
				w.mini.SetTime(now)
				w.try(lua.Granted, capacity)
			})
		})
	}
}
