package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	luaparse "github.com/yuin/gopher-lua/parse"

	"github.com/fairlock/fairlock-go/internal/tools/rules"
)

// Each mutant changes one place, which is still there, and each rule has one. A script that did not compile would be
// found by any test.
func TestMutants_ReplaceOneText(t *testing.T) {
	all, err := parse(list)
	require.NoError(t, err)
	require.Len(t, all, strings.Count(list, "\n== "))
	broken := map[string]bool{}
	for _, m := range all {
		text, err := os.ReadFile("../../" + m.file)
		require.NoError(t, err, m.name)
		assert.Equal(t, 1, strings.Count(string(text), m.old), "%s: occurrences in %s of %q", m.name, m.file, m.old)
		assert.NotEqual(t, m.old, m.new, m.name)
		broken[m.by] = true
		if filepath.Ext(m.file) == ".lua" {
			_, err := luaparse.Parse(strings.NewReader(strings.Replace(string(text), m.old, m.new, 1)), m.file)
			assert.NoError(t, err, m.name)
		}
	}
	for _, r := range rules.All {
		assert.True(t, broken["states "+r.Name], "no mutant breaks the rule %q", r.Name)
	}
}
