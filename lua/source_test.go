package lua_test

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/lua"
)

// One rule builds all scripts: the keys, the clock, the part for an idle lock if there is one, the store, the queue and
// the verb. Every file is part of a script.
func TestScripts_BuiltByOneRule(t *testing.T) {
	files, used := scripts(t), map[string]bool{"types": true}
	text := func(name string) (code string) {
		used[name] = true
		for line := range strings.Lines(files[name].code) {
			if strings.TrimSpace(line) != "" {
				code += line
			}
		}
		require.NotEmpty(t, code, name)
		return code
	}
	for kind, built := range lua.Scripts() {
		assert.ElementsMatch(t, verbNames(), slices.Collect(maps.Keys(built)), kind)
		for verb, script := range built {
			early := ""
			if _, ok := files[kind+"/idle_"+verb]; ok {
				early = text(kind + "/idle_" + verb)
			}
			want := text(kind+"/keys") + text("clock") + early + text(kind+"/store") + text("queue") + text(verb)
			assert.Equal(t, want, script, "%s of %s", verb, kind)
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(files)), slices.Collect(maps.Keys(used)), "no file without a script")
}

// An idle lock is acquired and released before a function of the store or the queue is built.
func TestScripts_IdleLocksNeedNoStore(t *testing.T) {
	function := regexp.MustCompile(`(?m)^local function (\w+)`)
	for name, h := range scripts(t) {
		if !strings.HasPrefix(path.Base(name), "idle_") {
			continue
		}
		assert.NotContains(t, h.code, "function", name)
		assert.Contains(t, h.code, "\n  return {", name)
		for _, file := range []string{path.Dir(name) + "/store", "queue"} {
			for _, m := range function.FindAllStringSubmatch(scripts(t)[file].code, -1) {
				assert.NotRegexp(t, `\b`+m[1]+`\(`, h.code, "%s uses a function of %s", name, file)
			}
		}
	}
}

var (
	promised = regexp.MustCompile(`(?m)^--   (\w+)\(([\w, ]*)\)`)
	defined  = regexp.MustCompile(`(?m)^local function (\w+)\(`)
	aliases  = regexp.MustCompile(`(?m)^local ([\w, ]+) = nothing`)
)

// contract reads the list of functions at the top of a store.
func contract(t *testing.T, text string) (functions []string) {
	t.Helper()
	head, _, ok := strings.Cut(text, "\n\n") // the comment before the code
	require.True(t, ok)
	_, list, ok := strings.Cut(head, "-- Contract.")
	require.True(t, ok)
	for _, m := range promised.FindAllStringSubmatch(list, -1) {
		functions = append(functions, m[1]+"("+m[2]+")")
	}
	return functions
}

// definitions are the functions that a file defines at its top level.
func definitions(code string) (names []string) {
	for _, m := range defined.FindAllStringSubmatch(code, -1) {
		names = append(names, m[1])
	}
	for _, m := range aliases.FindAllStringSubmatch(code, -1) {
		names = append(names, strings.Split(m[1], ", ")...)
	}
	return names
}

// The contracts of the two stores list the same functions in the same order, both stores define them all, and the queue
// and the verbs use no other function of a store.
func TestStores_ProvideTheSameContract(t *testing.T) {
	files := scripts(t)
	want := contract(t, fileText(t, "scripts/mutex/store.lua"))
	require.Greater(t, len(want), 10)
	assert.Equal(t, want, contract(t, fileText(t, "scripts/permits/store.lua")))
	var names []string
	for _, f := range want {
		name, _, _ := strings.Cut(f, "(")
		names = append(names, name)
	}
	for _, kind := range []string{"mutex", "permits"} {
		has := definitions(files[kind+"/store"].code)
		assert.Subset(t, has, names, "%s: a function of the contract is not defined", kind)
		for _, own := range has {
			if slices.Contains(names, own) {
				continue
			}
			for _, user := range append(verbNames(), "queue") {
				assert.NotRegexp(t, `\b`+own+`\(`, files[user].code, "%s uses %s, which is not in the contract", user, own)
			}
		}
	}
	users := ""
	for _, user := range append(verbNames(), "queue") {
		users += files[user].code
	}
	for _, name := range names {
		assert.Regexp(t, `\b`+name+`\(`, users, "no script uses %s", name)
	}
}

// After Load, no request has to send a script.
func TestLoad_LoadsEveryScript(t *testing.T) {
	rdb := redistest.Start(t).Client()
	require.NoError(t, lua.Load(t.Context(), rdb))
	for _, k := range kinds {
		for _, v := range lua.Verbs {
			seen := &recorder{Scripter: rdb}
			require.NoError(t, send(t.Context(), k.lock(seen), v), v.Name)
			assert.Len(t, seen.calls, 1, "%s of %s", v.Name, k.name)
		}
	}
}
