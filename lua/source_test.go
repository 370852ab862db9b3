package lua_test

import (
	"errors"
	"io/fs"
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
	text, code string   // code is without comments
	keys, args []string // as the header names them
}

// A header has lines that begin with KEYS or ARGV. After two spaces come comments.
var (
	header   = regexp.MustCompile(`(?m)^-- (KEYS|ARGV)(?: +(\S+(?: \S+)*)|$)`)
	comment  = regexp.MustCompile(`(?m)^\s*(--.*)?\n`)
	index    = regexp.MustCompile(`\[(\d+)\]`)
	bindArgs = regexp.MustCompile(`^local ([\w, ]+) = ((?:ARGV\[\d+\](?:, )?)+)$`)
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
		s := source{text: string(text), code: comment.ReplaceAllString(string(text), "")}
		about, _, _ := strings.Cut(s.text, "\nlocal ")
		for _, m := range header.FindAllStringSubmatch(about, -1) {
			if m[1] == "KEYS" {
				s.keys = strings.Fields(m[2])
			} else {
				s.args = strings.Fields(m[2])
			}
		}
		all[name] = s
		return err
	}))
	return all
}

// verbNames are the names in the table of verbs.
func verbNames() (names []string) {
	for _, v := range verbs {
		names = append(names, v.name)
	}
	return names
}

// The table of verbs, the files and the headers name the same verbs. A verb's first line binds its arguments to the names
// in its header, and the part of a verb for common cases binds some of them to the same names.
func TestVerbs_HeaderNamesTheArguments(t *testing.T) {
	all, common := sources(t), 0
	assert.ElementsMatch(t, verbNames(), lua.ScriptNames())
	for name, s := range all {
		first, rest, _ := strings.Cut(s.code, "\n")
		if verb, ok := strings.CutPrefix(path.Base(name), "common_"); ok {
			common++
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
			assert.NotContains(t, strings.Replace(s.code, "local call, fence_ttl = redis.call, tonumber(ARGV[1])", "", 1), "ARGV", "%s.lua uses arguments without naming them", name)
			continue
		}
		args, read, more := s.args, "", ""
		if last := len(args) - 1; strings.HasSuffix(args[last], "...") {
			args, more = args[:last], "for i = "+strconv.Itoa(last+1)+", #ARGV do"
		}
		assert.Equal(t, "fence_ttl", args[0], "%s.lua: keys.lua binds the first argument", name)
		args = args[1:]
		for i := range args {
			read += ", ARGV[" + strconv.Itoa(i+2) + "]"
		}
		assert.Equal(t, "local "+strings.Join(args, ", ")+" = "+read[2:], first, "first line of %s.lua", name)
		assert.NotRegexp(t, `ARGV\[\d`, rest, "%s.lua names its arguments once", name)
		assert.Equal(t, more != "", strings.Contains(rest, "ARGV"), name)
		assert.Contains(t, rest, more, name)
	}
	assert.Equal(t, 4, common)
}

// The methods send what the headers name, in that order: the table's arguments are tokens, and numbers from 11 on.
// Durations are milliseconds, rounded up.
func TestVerbs_MethodsSendTheArguments(t *testing.T) {
	all := sources(t)
	for _, k := range []kind{mutex, semaphore(15)} {
		for _, v := range verbs {
			f := &fake{answer: errors.New("enough")}
			lock := k.open(f, "ns", 16)
			require.ErrorContains(t, send(lock, v), "enough")
			var want []string
			number := 11
			for _, name := range all[v.name].args {
				switch {
				case name == "fence_ttl":
					want = append(want, "600000")
				case strings.HasPrefix(name, "token"):
					want = append(want, texts(numbered("c", ttl, 1), numbered("c", ttl, 2), numbered("c", ttl, 3))[:1+2*strings.Count(name, "...")]...)
				case name == "tombstone":
					want = append(want, "1")
				case k.capacity > 1 || name != "weight" && name != "capacity": // a mutex has neither
					want = append(want, strconv.Itoa(number))
					number++
				}
			}
			named := len(all[v.name].keys) - 1 + map[bool]int{true: 1, false: 2}[k.name == mutex.name] // store is one, or two
			keys := lock.Keys()[:named]
			assert.Equal(t, []call{{keys, want}}, f.calls, v.name)
		}
	}
	f := &fake{answer: errors.New("enough")}
	for i, d := range []time.Duration{0, 1, time.Millisecond, time.Millisecond + 1} {
		_, _ = lua.Mutex(f, "ns", "name").Renew(ctx, holder, d, 0)
		assert.Equal(t, []string{"0", "1", "1", "2"}[i], f.calls[i].args[2])
	}
}
