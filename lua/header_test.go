package lua_test

import (
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

var (
	argument = regexp.MustCompile(`ARGV\[\d+\]`)
	binding  = regexp.MustCompile(`(?m)^local ([\w, ]+) = ((?:KEYS\[\d+\](?:, )?)+)$`)
	early    = regexp.MustCompile(`^local ([\w, ]+) = ((?:ARGV\[\d+\](?:, )?)+)\n`)
	slot     = regexp.MustCompile(`\[(\d+)\]`)
)

// verbNames are the names in the table of verbs.
func verbNames() (names []string) {
	for _, v := range lua.Verbs {
		names = append(names, v.Name)
	}
	return names
}

// The table of verbs, the files and the headers name the same verbs. No other file at the top uses arguments.
func TestVerbs_AllHaveAHeaderAndAMethod(t *testing.T) {
	assert.ElementsMatch(t, verbNames(), lua.ScriptNames())
	headers := verbHeaders(t)
	assert.ElementsMatch(t, append(verbNames(), "types"), slices.Collect(maps.Keys(headers)))
	for name, h := range scripts(t) {
		if _, ok := headers[name]; !ok && !strings.Contains(name, "/idle_") {
			assert.NotContains(t, h.code, "ARGV", "%s.lua uses arguments without naming them", name)
		}
	}
}

// A verb's first line binds the arguments to the names in its header.
func TestVerbs_HeaderNamesTheArguments(t *testing.T) {
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

// The part of a verb for an idle lock binds some of the same arguments to the same names.
func TestVerbs_IdlePartsNameTheSameArguments(t *testing.T) {
	headers, parts := verbHeaders(t), 0
	for name, h := range scripts(t) {
		verb, ok := strings.CutPrefix(path.Base(name), "idle_")
		if !ok {
			continue
		}
		parts++
		m := early.FindStringSubmatch(h.code)
		require.NotNil(t, m, "first line of %s.lua", name)
		numbers := slot.FindAllStringSubmatch(m[2], -1)
		for i, bound := range strings.Split(m[1], ", ") {
			n, err := strconv.Atoi(numbers[i][1])
			require.NoError(t, err)
			assert.Equal(t, headers[verb].args[n-1], bound, "ARGV[%d] in %s.lua", n, name)
		}
		assert.NotContains(t, strings.TrimPrefix(h.code, m[0]), "ARGV", "%s.lua names its arguments once", name)
	}
	assert.Equal(t, 4, parts)
}

// sampleArguments are the arguments that a verb of the table sends, by the header: the tokens that the test gives it, and
// else numbers from 11 on.
func sampleArguments(header []string, kind string) (args []string) {
	next := 11
	for _, name := range header {
		switch name {
		case "token":
			args = append(args, numbered("c", 1).Text())
		case "token...":
			args = append(args, texts(numbered("c", 1), numbered("c", 2), numbered("c", 3))...)
		default:
			if kind != "mutex" || name != "weight" && name != "capacity" { // a mutex has neither
				args = append(args, strconv.Itoa(next))
			}
			next++
		}
	}
	return args
}

// The methods send what the headers name, in that order.
func TestVerbs_MethodsSendTheArguments(t *testing.T) {
	headers := verbHeaders(t)
	for _, k := range kinds {
		for _, v := range lua.Verbs {
			t.Run(k.name+"/"+v.Name, func(t *testing.T) {
				fake := &recorder{answer: errors.New("enough")}
				lock := k.lock(fake)
				require.ErrorContains(t, send(t.Context(), lock, v), "enough")
				require.Len(t, fake.calls, 1)
				assert.Equal(t, sampleArguments(headers[v.Name].args, k.name), fake.calls[0].args)
				keys, _ := lock.Keys()
				assert.Equal(t, keys, fake.calls[0].keys)
				for i, common := range headers[v.Name].keys {
					assert.Equal(t, k.prefix+common, keys[i])
				}
			})
		}
	}
}

// kinds are the kinds of locks, and what their keys begin with.
var kinds = []struct {
	name   string
	lock   func(lua.Scripter) lua.Lock
	prefix string
}{
	{"mutex", func(r lua.Scripter) lua.Lock { return lua.Mutex(r, ns, "name") }, "ns:{name}:"},
	{"permits", func(r lua.Scripter) lua.Lock { return lua.Semaphore(r, ns, "name", 16) }, "ns:{name}:sem:"},
}

func TestVerbs_RoundDurationsUpToMilliseconds(t *testing.T) {
	fake := &recorder{answer: errors.New("enough")}
	_, _ = lua.Mutex(fake, ns, "name").ForceRelease(t.Context(), time.Millisecond+1, 1)
	_, _ = lua.Mutex(fake, ns, "name").ForceRelease(t.Context(), 1, 1)
	assert.Equal(t, "2", fake.calls[0].args[1])
	assert.Equal(t, "1", fake.calls[1].args[1])
}

// Each KEYS[n] is bound to a name once, in the file of the kind's keys, and n is where the methods put the key of that
// name.
func TestKeys_ReadInTheOrderInWhichTheyAreSent(t *testing.T) {
	names := map[string][]string{} // by file
	for file, h := range scripts(t) {
		uses := strings.Count(h.code, "KEYS[")
		for _, m := range binding.FindAllStringSubmatch(h.code, -1) {
			names[file] = strings.Split(m[1], ", ")
			for i, at := range slot.FindAllStringSubmatch(m[2], -1) {
				assert.Equal(t, strconv.Itoa(i+1), at[1], "%s.lua", file)
				uses--
			}
		}
		assert.Zero(t, uses, "%s.lua uses KEYS[n] without naming it", file)
	}
	assert.Len(t, names, len(kinds))
	for _, k := range kinds {
		var want []string
		for _, name := range names[k.name+"/keys"] {
			want = append(want, k.prefix+name)
		}
		keys, _ := k.lock(nil).Keys()
		assert.Equal(t, want, keys)
	}
}

// Each reply is one of the alternatives in the header, and every alternative comes.
func TestVerbs_HeaderNamesTheReplies(t *testing.T) {
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
			if field, ok := strings.CutSuffix(want[len(want)-1], "..."); ok { // items without lists of their own
				items := len(fields) - len(want) + 1
				require.GreaterOrEqual(t, items, 0, "%s: %v", name, fields)
				assert.Zero(t, items%len(h.lists[field]), "%s: %v", name, fields)
				if items > 0 {
					tags[name+" "+field] = true
				}
				return
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
		w.acquire(lua.Request{Try: true})
		fits("acquire")
		w.acquire(lua.Request{MaxWaiters: 1})
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
		w.heartbeat(q[0], q[1], q[2], q[3])
		fits("heartbeat")
		states := seen.calls[len(seen.calls)-1].reply.([]any)[3]
		assert.Equal(t, []any{"not_queued", "not_queued", "granted", "queued"}, states, "one for each token")
		w.forceRelease()
		fits("force_release")
		w.leave(q[3], 0)
		w.leave(q[4], 0)
		w.leave(q[5], 0)
		w.forceRelease()
		fits("force_release")
		for n := range 2 {
			w.lock = lua.Semaphore(seen, ns, "name", n+1)
			w.acquire(lua.Request{Weight: 1})
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
// (TestErrors_ForeignTypeIsNamed).
func TestTypes_OneFieldForEachKey(t *testing.T) {
	w := real(t)
	w.do("RPUSH", w.keys.Queue, "x")
	seen := &recorder{Scripter: w.rdb}
	_, err := lua.Mutex(seen, ns, "name").Inspect(t.Context(), 1)
	require.Error(t, err)
	assert.Equal(t, []any{"list", "none", "none", "none"}, seen.calls[len(seen.calls)-1].reply)
}
