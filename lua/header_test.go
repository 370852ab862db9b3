package lua_test

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

var (
	argument = regexp.MustCompile(`ARGV\[\d+\]`)
	binding  = regexp.MustCompile(`(?m)^local ([\w, ]+) = ((?:KEYS\[\d+\](?:, )?)+)$`)
	slot     = regexp.MustCompile(`KEYS\[(\d+)\]`)
)

func TestEveryScriptWithArgumentsHasAHeaderAndAMethod(t *testing.T) {
	want := append(slices.Collect(maps.Keys(verbs())), "types")
	headers := verbHeaders(t)
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(headers)))
	for name, h := range scripts(t) {
		if _, ok := headers[name]; !ok {
			assert.NotContains(t, h.code, "ARGV", "%s.lua uses arguments without naming them", name)
		}
	}
}

func TestTheHeaderNamesTheArgumentsThatTheCodeReads(t *testing.T) {
	for name, h := range verbHeaders(t) {
		fixed, rest := h.args, ""
		if n := len(fixed); n > 0 && strings.HasSuffix(fixed[n-1], "...") {
			fixed, rest = fixed[:n-1], fixed[n-1]
		}
		if len(fixed) == 0 {
			assert.NotContains(t, h.code, "ARGV", name)
			continue
		}
		var read []string
		for i := range fixed {
			read = append(read, "ARGV["+strconv.Itoa(i+1)+"]")
		}
		first, after, _ := strings.Cut(h.code, "\n")
		assert.Equal(t, "local "+strings.Join(fixed, ", ")+" = "+strings.Join(read, ", "), first, "first line of %s.lua", name)
		assert.NotRegexp(t, argument, after, "%s.lua names its arguments once", name)
		if rest == "" {
			assert.NotContains(t, after, "ARGV", name)
		} else {
			assert.Contains(t, after, "for i = "+strconv.Itoa(len(fixed)+1)+", #ARGV do", name)
		}
	}
}

func TestTheMethodsSendWhatTheHeaderNames(t *testing.T) {
	headers := verbHeaders(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			eachVerb(t, func(t *testing.T, name string, v verb) {
				fake := &recorder{answer: errors.New("enough")}
				require.EqualError(t, v.call(t.Context(), k.lock(fake)), "enough")
				require.Len(t, fake.calls, 1)
				var want []string
				for _, a := range headers[name].args {
					require.Contains(t, v.args, a)
					if k.name == "mutex" && (a == "weight" || a == "capacity") {
						continue // of a mutex there is one
					}
					want = append(want, v.args[a]...)
				}
				assert.Equal(t, want, fake.calls[0].args)
				assert.Equal(t, keysOf(k.prefix, k.own, headers[name].keys), fake.calls[0].keys)
			})
		})
	}
}

// kinds are the kinds of locks: what their keys begin with, and which they have beside those of the queue.
var kinds = []struct {
	name   string
	lock   func(redis.Scripter) lua.Lock
	prefix string
	own    []string
}{
	{"mutex", func(r redis.Scripter) lua.Lock { return lua.Mutex(r, ns, "name") }, "ns:{name}:", []string{"lock"}},
	{
		"permits", func(r redis.Scripter) lua.Lock { return lua.Semaphore(r, ns, "name", 16) },
		"ns:{name}:sem:", []string{"permits", "holders", "wants"},
	},
}

// keysOf returns the keys that are sent where a verb's header names the common ones.
func keysOf(prefix string, own, common []string) (all []string) {
	for _, key := range append(slices.Clone(common), own...) {
		all = append(all, prefix+key)
	}
	return all
}

func TestADurationIsRoundedUpToMilliseconds(t *testing.T) {
	fake := &recorder{answer: errors.New("enough")}
	_, _ = lua.Mutex(fake, ns, "name").ForceRelease(t.Context(), time.Millisecond+1, 1)
	_, _ = lua.Mutex(fake, ns, "name").ForceRelease(t.Context(), 1, 1)
	assert.Equal(t, "2", fake.calls[0].args[0])
	assert.Equal(t, "1", fake.calls[1].args[0])
}

// Every KEYS[n] is bound to a name once in queue.lua or in the kind's file, and n is where the methods put the key of
// that name.
func TestTheScriptsReadTheKeysInTheOrderInWhichTheyAreSent(t *testing.T) {
	names := map[string]map[int]string{} // by file
	for file, h := range scripts(t) {
		uses := strings.Count(h.code, "KEYS[")
		for _, m := range binding.FindAllStringSubmatch(h.code, -1) {
			if names[file] == nil {
				names[file] = map[int]string{}
			}
			bound := strings.Split(m[1], ", ")
			for i, at := range slot.FindAllStringSubmatch(m[2], -1) {
				n, err := strconv.Atoi(at[1])
				require.NoError(t, err)
				names[file][n] = bound[i]
				uses--
			}
		}
		assert.Zero(t, uses, "%s.lua uses KEYS[n] without naming it", file)
	}
	assert.Len(t, names, 1+len(kinds))
	for _, k := range kinds {
		fake := &recorder{answer: errors.New("enough")}
		_, _ = k.lock(fake).Inspect(t.Context(), 1)
		all := maps.Clone(names["queue"])
		maps.Copy(all, names[k.name])
		for i, key := range fake.calls[0].keys {
			assert.Equal(t, k.prefix+all[i+1], key, "KEYS[%d] of %s", i+1, k.name)
		}
		assert.Len(t, all, len(fake.calls[0].keys), "keys named")
	}
}

func TestEachReplyIsOneOfTheHeadersAlternatives(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		seen := &recorder{Scripter: w.rdb}
		w.lock = lua.Mutex(seen, ns, "name")
		headers, tags := verbHeaders(t), map[string]bool{}
		fits := func(name string) {
			t.Helper()
			last := seen.calls[len(seen.calls)-1]
			fields, ok := last.reply.([]any)
			require.True(t, ok, "%s: %v", name, last.reply)
			h := headers[name]
			want := h.replies[0]
			if len(h.replies) > 1 { // then the first field tells which
				i := slices.IndexFunc(h.replies, func(r []string) bool { return r[0] == fields[0] })
				require.GreaterOrEqual(t, i, 0, "%s: no alternative of the header: %v", name, fields)
				want = h.replies[i]
				tags[name+" "+want[0]] = true
			}
			require.Len(t, fields, len(want), "%s: %v", name, want)
			for i, field := range want {
				if inner, ok := h.lists[field]; ok {
					for _, item := range fields[i].([]any) {
						assert.Len(t, item, len(inner), "%s: %s", name, field)
						tags[name+" "+field] = true
					}
				}
			}
		}

		a := w.hold()
		fits("acquire")
		q := w.join(6)
		fits("acquire")
		w.acquire(lua.Ask{Try: true})
		fits("acquire")
		w.acquire(lua.Ask{Bound: 1})
		fits("acquire")
		w.renew(a, ttl, 0)
		fits("renew")
		w.renew(q[0], ttl, 0)
		fits("renew")
		w.inspect(10)
		fits("inspect")
		w.release(a)
		fits("release")
		w.release(a)
		fits("release")
		w.leave(q[0], 0)
		fits("leave")
		w.leave(q[0], time.Second)
		fits("leave")
		w.expire()
		w.beat(q[0], q[1], q[2], q[3])
		fits("beat")
		states := seen.calls[len(seen.calls)-1].reply.([]any)[3]
		assert.Equal(t, []any{"gone", "gone", "admitted", "queued"}, states, "one for each token")
		w.forceRelease()
		fits("force_release")
		w.leave(q[3], 0)
		w.leave(q[4], 0)
		w.leave(q[5], 0)
		w.forceRelease()
		fits("force_release")
		for n := range 2 {
			w.lock = lua.Semaphore(seen, ns, "name", n+1)
			w.acquire(lua.Ask{Weight: 1})
			fits("acquire")
		}

		var all []string
		for name, h := range headers {
			for _, r := range h.replies {
				if len(h.replies) > 1 {
					all = append(all, name+" "+r[0])
				}
			}
			for field := range h.lists {
				all = append(all, name+" "+field)
			}
		}
		assert.ElementsMatch(t, all, slices.Collect(maps.Keys(tags)), "alternatives and lists seen")
	})
}

// The types script runs only when Redis complains of a key; the error that names the key shows its reply was read
// (TestAForeignTypeIsNamedAndLeftAlone).
func TestTheTypesReplyHasOneFieldForEachKey(t *testing.T) {
	w := real(t)
	w.do("RPUSH", w.keys.Queue, "x")
	seen := &recorder{Scripter: w.rdb}
	_, err := lua.Mutex(seen, ns, "name").Inspect(t.Context(), 1)
	require.Error(t, err)
	assert.Equal(t, []any{"list", "none", "none", "none"}, seen.calls[len(seen.calls)-1].reply)
}
