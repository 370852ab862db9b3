package script_test

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/lua"
)

// source is a file of scripts.
type source struct {
	text, code string   // code is without comments
	args       []string // as the header names them
}

// A header has a line that begins with ARGV. After two spaces come comments.
var (
	header  = regexp.MustCompile(`(?m)^-- ARGV(?: +(\S+(?: \S+)*)|$)`)
	comment = regexp.MustCompile(`(?m)^\s*(--.*)?\n`)
)

// sources reads every file, by its path without the ending.
func sources(t *testing.T) map[string]source {
	t.Helper()
	all := map[string]source{}
	require.NoError(t, fs.WalkDir(lua.Files, "scripts", func(path string, _ fs.DirEntry, _ error) error {
		name, ok := strings.CutSuffix(strings.TrimPrefix(path, "scripts/"), ".lua")
		if !ok {
			return nil
		}
		text, err := lua.Files.ReadFile(path)
		s := source{text: string(text), code: comment.ReplaceAllString(string(text), "")}
		about, _, _ := strings.Cut(s.text, "\nlocal ")
		for _, m := range header.FindAllStringSubmatch(about, -1) {
			s.args = strings.Fields(m[1])
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

// The table of verbs, the files and the headers name the same verbs. A verb's first line binds its arguments to the
// names in its header.
func TestVerbs_HeaderNamesTheArguments(t *testing.T) {
	all := sources(t)
	assert.ElementsMatch(t, verbNames(), script.ScriptNames())
	for name, s := range all {
		first, rest, _ := strings.Cut(s.code, "\n")
		isVerb := slices.Contains(verbNames(), path.Base(name))
		assert.Equal(t, isVerb || name == "ping", s.args != nil, "header of %s.lua", name)
		if !isVerb {
			early := strings.Contains(name, "/early_")
			assert.True(t, early || !strings.Contains(s.code, "ARGV"), "%s.lua uses arguments without naming them", name)
			continue
		}
		args, read, more := s.args, "", false
		if last := len(args) - 1; strings.HasSuffix(args[last], "...") {
			args, more = args[:last], true
		}
		assert.Equal(t, "fence_ttl", args[0], "%s.lua", name)
		args = args[1:]
		for i := range args {
			read += ", ARGV[" + strconv.Itoa(i+2) + "]"
		}
		if len(args) > 0 {
			assert.Equal(t, "local "+strings.Join(args, ", ")+" = "+read[2:], first, "first line of %s.lua", name)
		}
		assert.NotRegexp(t, `ARGV\[\d`, rest, "%s.lua names its arguments once", name)
		assert.Equal(t, more, strings.Contains(rest, "ARGV"), name)
	}
}

// The methods send what the headers name, in that order: the table's arguments are tokens, and numbers from 11 on.
// Durations are milliseconds, rounded up.
func TestVerbs_MethodsSendTheArguments(t *testing.T) {
	all := sources(t)
	for _, k := range []kind{mutex, semaphore(15), keyed(15)} {
		f := &fake{answer: errors.New("enough")}
		lock := k.lock(f, "ns")
		for _, v := range verbsOf(lock) {
			f.calls = nil
			require.ErrorContains(t, send(lock, v), "enough")
			var want []string
			number := 11
			for _, name := range append(all[v.name].args, all["permits/"+v.name].args...) {
				switch {
				case name == "fence_ttl":
					want = append(want, "600000")
				case strings.HasPrefix(name, "token"):
					want = append(want, texts(three(lock)...)[:1+2*strings.Count(name, "...")]...)
				case name == "by":
					want = append(want, three(lock)[1].Text())
				case name == "refused":
					want = append(want, "1")
				default:
					want = append(want, strconv.Itoa(number))
					number++
				}
			}
			assert.Equal(t, []sent{{lock.KeysOf(v.name), want}}, f.calls, v.name)
		}
	}
	f := &fake{answer: errors.New("enough")}
	for i, d := range []time.Duration{0, 1, time.Millisecond, time.Millisecond + 1} {
		_, _ = script.Mutex(f, "ns", "name").Renew(ctx, mutex.held(0), d, 0)
		assert.Equal(t, []string{"0", "1", "1", "2"}[i], f.calls[i].args[2])
	}
}

// Urgent requests do not wait behind the others of their client. Repeatable ones are sent again on another connection
// after a second without a reply; who sends the others repeats them.
//
//fairlock:promise Thousands of Locks that begin or end at once
func TestVerbs_UrgentAndRepeatable(t *testing.T) {
	var r unsent
	var urgent, once []string
	lock := script.Semaphore(&r, "ns", "name")
	for _, v := range verbs {
		require.Error(t, send(lock, v))
		if r.Urgent {
			urgent = append(urgent, v.name)
		}
		if !r.Repeatable {
			once = append(once, v.name)
		}
	}
	assert.Equal(t, []string{"release", "renew", "heartbeat"}, urgent)
	assert.Equal(t, []string{"renew", "heartbeat", "resize"}, once)
	_, err := lock.Leave(ctx, script.Rest{}, script.Leaving{}, script.Leaving{Urgent: true})
	require.Error(t, err)
	assert.True(t, r.Urgent)
}
