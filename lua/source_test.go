package lua_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
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

// source is a file of scripts.
type source struct {
	text, code string     // code is without comments
	keys, args []string   // as the header names them
	replies    [][]string // the alternatives, each its fields
	lists      map[string][]string
}

// A header has lines that begin with KEYS, ARGV, reply or, before another reply, "|". After two spaces come comments.
var (
	header   = regexp.MustCompile(`(?m)^-- (KEYS|ARGV|reply|    \|)(?: +(\S+(?: \S+)*)|$)`)
	listed   = regexp.MustCompile(`([\w-]+): \{([^}]*)\} each`)
	comment  = regexp.MustCompile(`(?m)^\s*(--.*)?\n`)
	index    = regexp.MustCompile(`\[(\d+)\]`)
	bindKeys = regexp.MustCompile(`(?m)^local ([\w, ]+) = ((?:KEYS\[\d+\](?:, )?)+)$`)
	bindArgs = regexp.MustCompile(`^local ([\w, ]+) = ((?:ARGV\[\d+\](?:, )?)+)\n`)
	promised = regexp.MustCompile(`(?m)^--   (\w+)\(([\w, ]*)\)`)
	defined  = regexp.MustCompile(`(?m)^local function (\w+)\(`)
	aliases  = regexp.MustCompile(`(?m)^local ([\w, ]+) = nothing`)
)

// sources reads every file, by its path without the ending.
func sources(t *testing.T) map[string]source {
	t.Helper()
	all := map[string]source{}
	require.NoError(t, fs.WalkDir(os.DirFS("scripts"), ".", func(path string, _ fs.DirEntry, _ error) error {
		name, ok := strings.CutSuffix(path, ".lua")
		if !ok {
			return nil
		}
		text, err := os.ReadFile("scripts/" + path)
		s := source{text: string(text), code: comment.ReplaceAllString(string(text), ""), lists: map[string][]string{}}
		about, _, _ := strings.Cut(s.text, "\nlocal ")
		for _, m := range header.FindAllStringSubmatch(about, -1) {
			switch words := strings.Fields(m[2]); m[1] {
			case "KEYS":
				s.keys = words
			case "ARGV":
				s.args = words
			default:
				s.replies = append(s.replies, words)
			}
		}
		about = strings.Join(strings.Fields(strings.ReplaceAll(about, "\n--", "")), " ")
		for _, m := range listed.FindAllStringSubmatch(about, -1) {
			s.lists[m[1]] = strings.Fields(m[2])
		}
		all[name] = s
		return err
	}))
	for _, name := range []string{"leave", "force_release"} { // "as release"
		s := all[name]
		s.lists = all["release"].lists
		all[name] = s
	}
	return all
}

func verbNames() (names []string) {
	for _, v := range lua.Verbs {
		names = append(names, v.Name)
	}
	return names
}

// kindsByScripts are the kinds that have scripts of their own, by their folder, and what their keys begin with.
var kindsByScripts = map[string]struct {
	kind
	prefix string
}{"mutex": {mutex, "ns:{name}:"}, "permits": {semaphore(16), "ns:{name}:sem:"}}

// The table of verbs, the files and the headers name the same verbs. A verb's first line binds its arguments to the names
// in its header, and the part of a verb for an idle lock binds some of them to the same names.
func TestVerbs_HeaderNamesTheArguments(t *testing.T) {
	all, idle := sources(t), 0
	assert.ElementsMatch(t, verbNames(), lua.ScriptNames())
	for name, s := range all {
		first, rest, _ := strings.Cut(s.code, "\n")
		if verb, ok := strings.CutPrefix(path.Base(name), "idle_"); ok {
			idle++
			m := bindArgs.FindStringSubmatch(s.code)
			require.NotNil(t, m, "first line of %s.lua", name)
			for i, bound := range strings.Split(m[1], ", ") {
				n, _ := strconv.Atoi(index.FindAllStringSubmatch(m[2], -1)[i][1])
				assert.Equal(t, all[verb].args[n-1], bound, "ARGV[%d] in %s.lua", n, name)
			}
			assert.NotContains(t, rest, "ARGV", "%s.lua names its arguments once", name)
			continue
		}
		isVerb := slices.Contains(verbNames(), name)
		assert.Equal(t, isVerb || name == "types", s.keys != nil, "header of %s.lua", name)
		if !isVerb {
			assert.NotContains(t, s.code, "ARGV", "%s.lua uses arguments without naming them", name)
			continue
		}
		args, read, more := s.args, []string(nil), ""
		if last := args[len(args)-1]; strings.HasSuffix(last, "...") {
			args, more = args[:len(args)-1], "for i = "+strconv.Itoa(len(args))+", #ARGV do"
		}
		for i := range args {
			read = append(read, "ARGV["+strconv.Itoa(i+1)+"]")
		}
		assert.Equal(t, "local "+strings.Join(args, ", ")+" = "+strings.Join(read, ", "), first, "first line of %s.lua", name)
		assert.NotRegexp(t, `ARGV\[\d`, rest, "%s.lua names its arguments once", name)
		assert.Equal(t, more != "", strings.Contains(rest, "ARGV"), name)
		assert.Contains(t, rest, more, name)
	}
	assert.Equal(t, 4, idle)
}

// The methods send what the headers name, in that order, and durations as milliseconds, rounded up. The table's arguments
// are tokens, and numbers from 11 on.
func TestVerbs_MethodsSendTheArguments(t *testing.T) {
	all := sources(t)
	for folder, k := range kindsByScripts {
		for _, v := range lua.Verbs {
			f := &fake{answer: errors.New("enough")}
			lock := k.open(f, "ns", 16)
			require.ErrorContains(t, send(lock, v), "enough")
			var want []string
			for i, name := range all[v.Name].args {
				switch {
				case name == "token":
					want = append(want, numbered("c", 1).Text())
				case name == "token...":
					want = append(want, numbered("c", 1).Text(), numbered("c", 2).Text(), numbered("c", 3).Text())
				case folder == "mutex" && (name == "weight" || name == "capacity"): // it has none
				default:
					want = append(want, strconv.Itoa(11+i-strings.Count(strings.Join(all[v.Name].args[:i], " "), "token")))
				}
			}
			require.Len(t, f.calls, 1)
			assert.Equal(t, want, f.calls[0].args, v.Name)
			keys, _ := lock.Keys()
			assert.Equal(t, keys, f.calls[0].keys)
			for i, common := range all[v.Name].keys {
				assert.Equal(t, k.prefix+common, keys[i])
			}
		}
	}
	f := &fake{answer: errors.New("enough")}
	for _, d := range []time.Duration{time.Millisecond + 1, 1, 0, time.Millisecond} {
		_, _ = lua.Mutex(f, "ns", "name").ForceRelease(ctx, d, 1)
	}
	for i, want := range []string{"2", "1", "0", "1"} {
		assert.Equal(t, want, f.calls[i].args[1])
	}
}

// Each KEYS[n] is bound to a name once, in the file of the kind's keys, and n is where the methods put the key of that
// name.
func TestKeys_ReadInTheOrderInWhichTheyAreSent(t *testing.T) {
	for file, s := range sources(t) {
		folder, isKeys := strings.CutSuffix(file, "/keys")
		if !isKeys {
			assert.NotContains(t, s.code, "KEYS[", "%s.lua", file)
			continue
		}
		m := bindKeys.FindStringSubmatch(s.code)
		require.NotNil(t, m, file)
		assert.Len(t, index.FindAllString(s.code, -1), strings.Count(m[1], ",")+1)
		k := kindsByScripts[folder]
		keys, _ := k.open(nil, "ns", 16).Keys()
		require.Len(t, keys, strings.Count(m[1], ",")+1)
		for i, name := range strings.Split(m[1], ", ") {
			assert.Equal(t, k.prefix+name, keys[i])
			assert.Equal(t, strconv.Itoa(i+1), index.FindAllStringSubmatch(m[2], -1)[i][1])
		}
	}
}

// Each reply is one of the alternatives in the header, and every alternative and every list comes.
func TestVerbs_HeaderNamesTheReplies(t *testing.T) {
	all, seen := sources(t), map[string]bool{}
	s := real(t)
	for folder, k := range kindsByScripts {
		k.capacity = 1
		m := newMachine(t, s, k.kind)
		f := &fake{Scripter: m.user}
		m.user = f
		m.run(`acquire a b c d; acquire z try; acquire z max 1; renew a; renew z; inspect; heartbeat b; release a; leave b; force
			inspect 1 -> d |`)
		if folder == "permits" {
			m.run("acquire z of 3 -> capacity 1")
		}
		for _, c := range f.calls {
			fields, ok := c.reply.([]any)
			if !ok {
				continue // NOSCRIPT
			}
			name := verbOf(c.sha)
			h := all[name]
			want := h.replies[0]
			if len(h.replies) > 1 { // then the first field tells which
				i := slices.IndexFunc(h.replies, func(r []string) bool { return r[0] == fields[0] })
				require.GreaterOrEqual(t, i, 0, "%s: no alternative of the header: %v", name, fields)
				want = h.replies[i]
				seen[name+" "+want[0]] = true
			}
			if field, ok := strings.CutSuffix(want[len(want)-1], "..."); ok { // items without lists of their own
				items := len(fields) - len(want) + 1
				assert.Zero(t, items%len(h.lists[field]), "%s: %v", name, fields)
				seen[name+" "+field] = seen[name+" "+field] || items > 0
				continue
			}
			require.Len(t, fields, len(want), "%s: %v", name, want)
			for i, field := range want {
				if inner, ok := h.lists[field]; ok {
					for _, item := range fields[i].([]any) {
						assert.Len(t, item, len(inner), "%s: %s", name, field)
						seen[name+" "+field] = true
					}
				}
			}
		}
	}
	for name, h := range all {
		for _, r := range h.replies {
			assert.True(t, len(h.replies) == 1 || seen[name+" "+r[0]], "%s never replies %s", name, r[0])
		}
		for field := range h.lists {
			assert.True(t, seen[name+" "+field], "%s never lists %s", name, field)
		}
	}
}

// verbOf is the verb of a script, by its hash.
func verbOf(sha string) string {
	for _, scripts := range lua.Scripts() {
		for verb, text := range scripts {
			if hashOf(text) == sha {
				return verb
			}
		}
	}
	return ""
}

// One rule builds all scripts: the keys, the clock, the part for an idle lock if there is one, the store, the queue and the
// verb. Every file is part of a script. The part for an idle lock uses no function of those after it.
func TestScripts_BuiltByOneRule(t *testing.T) {
	files, used := sources(t), map[string]bool{"types": true}
	for folder, built := range lua.Scripts() {
		assert.ElementsMatch(t, verbNames(), slices.Collect(maps.Keys(built)), folder)
		for verb, script := range built {
			want := ""
			for _, name := range []string{folder + "/keys", "clock", folder + "/idle_" + verb, folder + "/store", "queue", verb} {
				want += files[name].code
				used[name] = used[name] || files[name].code != ""
			}
			assert.Equal(t, want, script, "%s of %s", verb, folder)
			idle := files[folder+"/idle_"+verb].code
			assert.NotContains(t, idle, "function")
			for _, m := range defined.FindAllStringSubmatch(files[folder+"/store"].code+files["queue"].code, -1) {
				assert.NotRegexp(t, `\b`+m[1]+`\(`, idle, "idle_%s.lua uses a function that is not built", verb)
			}
		}
	}
	for name := range files {
		assert.True(t, used[name], "no script has %s.lua", name)
	}
}

// The contracts of the two stores list the same functions in the same order, both stores define them all, and the queue
// and the verbs use all of them and no other function of a store.
func TestStores_ProvideTheSameContract(t *testing.T) {
	files := sources(t)
	contract := func(kind string) [][]string {
		_, list, ok := strings.Cut(files[kind+"/store"].text, "-- Contract.")
		require.True(t, ok)
		list, _, _ = strings.Cut(list, "\n\n") // the code
		return promised.FindAllStringSubmatch(list, -1)
	}
	var names []string
	for _, m := range contract("mutex") {
		names = append(names, m[1])
	}
	require.Greater(t, len(names), 10)
	assert.Equal(t, contract("mutex"), contract("permits"))
	users := files["queue"].code
	for _, verb := range verbNames() {
		users += files[verb].code
	}
	for _, name := range names {
		assert.Regexp(t, `\b`+name+`\(`, users, "no script uses %s", name)
	}
	for _, kind := range []string{"mutex", "permits"} {
		var has []string
		for _, m := range defined.FindAllStringSubmatch(files[kind+"/store"].code, -1) {
			has = append(has, m[1])
		}
		for _, m := range aliases.FindAllStringSubmatch(files[kind+"/store"].code, -1) {
			has = append(has, strings.Split(m[1], ", ")...)
		}
		assert.Subset(t, has, names, "%s: a function of the contract is not defined", kind)
		for _, own := range has {
			assert.True(t, slices.Contains(names, own) || !regexp.MustCompile(`\b`+own+`\(`).MatchString(users),
				"%s of %s is used and not in the contract", own, kind)
		}
	}
}
