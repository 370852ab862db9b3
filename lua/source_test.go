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
	bindArgs = regexp.MustCompile(`^local ([\w, ]+) = ((?:ARGV\[\d+\](?:, )?)+)$`)
	promised = regexp.MustCompile(`(?m)^--   (\w+)\([\w, ]*\)`)
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

// verbNames are the names in the table of verbs.
func verbNames() (names []string) {
	for _, v := range lua.Verbs {
		names = append(names, v.Name)
	}
	return names
}

// inFolder are the kinds that have scripts of their own, by their folder, and what their keys begin with.
var inFolder = map[string]struct {
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
			m := bindArgs.FindStringSubmatch(first)
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
		args, read, more := s.args, "", ""
		if last := len(args) - 1; strings.HasSuffix(args[last], "...") {
			args, more = args[:last], "for i = "+strconv.Itoa(last+1)+", #ARGV do"
		}
		for i := range args {
			read += ", ARGV[" + strconv.Itoa(i+1) + "]"
		}
		assert.Equal(t, "local "+strings.Join(args, ", ")+" = "+read[2:], first, "first line of %s.lua", name)
		assert.NotRegexp(t, `ARGV\[\d`, rest, "%s.lua names its arguments once", name)
		assert.Equal(t, more != "", strings.Contains(rest, "ARGV"), name)
		assert.Contains(t, rest, more, name)
	}
	assert.Equal(t, 4, idle)
}

// The methods send what the headers name, in that order: the table's arguments are tokens, and numbers from 11 on.
// Durations are milliseconds, rounded up.
func TestVerbs_MethodsSendTheArguments(t *testing.T) {
	all := sources(t)
	for folder, k := range inFolder {
		for _, v := range lua.Verbs {
			f := &fake{answer: errors.New("enough")}
			lock := k.open(f, "ns", 16)
			require.ErrorContains(t, send(lock, v), "enough")
			var want []string
			number := 11
			for _, name := range all[v.Name].args {
				switch {
				case strings.HasPrefix(name, "token"):
					want = append(want, texts(numbered("c", 1), numbered("c", 2), numbered("c", 3))[:1+2*strings.Count(name, "...")]...)
				case folder != "mutex" || name != "weight" && name != "capacity": // a mutex has neither
					want = append(want, strconv.Itoa(number))
					number++
				}
			}
			keys, _ := lock.Keys()
			assert.Equal(t, []call{{f.calls[0].sha, keys, want, nil}}, f.calls, v.Name)
		}
	}
	f := &fake{answer: errors.New("enough")}
	for i, d := range []time.Duration{0, 1, time.Millisecond, time.Millisecond + 1} {
		_, _ = lua.Mutex(f, "ns", "name").ForceRelease(ctx, d, 1)
		assert.Equal(t, []string{"0", "1", "1", "2"}[i], f.calls[i].args[1])
	}
}

// Each KEYS[n] is bound to a name once, in the file of the kind's keys, and n is where the methods put the key of that
// name.
func TestKeys_ReadInTheOrderInWhichTheyAreSent(t *testing.T) {
	all := sources(t)
	for file, s := range all {
		folder, isKeys := strings.CutSuffix(file, "/keys")
		if !isKeys {
			assert.NotContains(t, s.code, "KEYS[", "%s.lua", file)
			continue
		}
		keys, _ := inFolder[folder].open(nil, "ns", 16).Keys()
		names, numbers := "", ""
		for i, key := range keys {
			names += ", " + strings.TrimPrefix(key, inFolder[folder].prefix)
			numbers += ", KEYS[" + strconv.Itoa(i+1) + "]"
		}
		assert.Equal(t, "local "+names[2:]+" = "+numbers[2:]+"\n", s.code, file)
		for _, verb := range verbNames() {
			assert.Contains(t, names, strings.Join(all[verb].keys, ", "), verb)
		}
	}
}

// Each reply is one of the alternatives in the header, and every alternative and every list comes.
func TestVerbs_HeaderNamesTheReplies(t *testing.T) {
	all, seen, s := sources(t), map[string]bool{}, real(t)
	verbs := map[string]string{}
	for _, scripts := range lua.Scripts() {
		for verb, text := range scripts {
			verbs[hashOf(text)] = verb
		}
	}
	for _, k := range []kind{mutex, semaphore(1)} {
		m := newMachine(t, s, k)
		f := &fake{Scripter: m.user}
		m.user = f
		m.run(`acquire a b c d; acquire z try; acquire z max 1; renew a; renew z; inspect; heartbeat b; release a; leave b; force
			inspect 1 -> d |`)
		if k.name != mutex.name {
			m.run("acquire y of 3 -> capacity 1")
		}
		for _, c := range f.calls {
			fields, ok := c.reply.([]any)
			if !ok {
				continue // NOSCRIPT
			}
			verb := verbs[c.sha]
			h := all[verb]
			want := h.replies[max(0, slices.IndexFunc(h.replies, func(r []string) bool { return r[0] == fields[0] }))]
			require.True(t, len(h.replies) == 1 || want[0] == fields[0], "%s: no alternative of the header: %v", verb, fields)
			seen[verb+" "+want[0]] = true
			items := map[string][]any{} // of each list
			if last := len(want) - 1; strings.HasSuffix(want[last], "...") {
				field := strings.TrimSuffix(want[last], "...")
				for item := range slices.Chunk(fields[last:], len(h.lists[field])) {
					items[field] = append(items[field], item)
				}
			} else if require.Len(t, fields, len(want), "%s: %v", verb, want); h.lists != nil {
				for i, field := range want {
					if h.lists[field] != nil {
						items[field] = fields[i].([]any)
					}
				}
			}
			for field, all := range items {
				for _, item := range all {
					assert.Len(t, item, len(h.lists[field]), "%s: %s", verb, field)
					seen[verb+" "+field] = true
				}
			}
		}
	}
	for _, verb := range verbNames() {
		for _, r := range all[verb].replies {
			assert.True(t, seen[verb+" "+r[0]], "%s never replies %v", verb, r)
		}
		for field := range all[verb].lists {
			assert.True(t, seen[verb+" "+field], "%s never lists %s", verb, field)
		}
	}
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
	users := files["queue"].code
	for _, verb := range verbNames() {
		users += files[verb].code
	}
	contracts := map[string][]string{}
	for folder := range inFolder {
		s := files[folder+"/store"]
		_, list, _ := strings.Cut(s.text, "-- Contract.")
		list, _, _ = strings.Cut(list, "\n\n") // the code
		var names, has []string
		for _, m := range promised.FindAllStringSubmatch(list, -1) {
			contracts[folder] = append(contracts[folder], m[0])
			names = append(names, m[1])
			assert.Regexp(t, `\b`+m[1]+`\(`, users, "no script uses %s", m[1])
		}
		for _, m := range append(defined.FindAllStringSubmatch(s.code, -1), aliases.FindAllStringSubmatch(s.code, -1)...) {
			has = append(has, strings.Split(m[1], ", ")...)
		}
		assert.Subset(t, has, names, "%s: a function of the contract is not defined", folder)
		for _, own := range slices.DeleteFunc(has, func(name string) bool { return slices.Contains(names, name) }) {
			assert.NotRegexp(t, `\b`+own+`\(`, users, "%s of %s is not in the contract", own, folder)
		}
	}
	require.Greater(t, len(contracts["mutex"]), 10)
	assert.Equal(t, contracts["mutex"], contracts["permits"])
}
