package lua_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// header is what a script's opening comment says of it.
type header struct {
	keys, args []string
	replies    [][]string          // the alternatives, each its fields
	lists      map[string][]string // of a field that is a list of lists: the fields of each
	code       string              // without comments
}

var (
	gap    = regexp.MustCompile(`\s{2,}`)
	listed = regexp.MustCompile(`([\w-]+): \{([^}]*)\} each`)
)

// scripts reads every script; only a verb has KEYS in its header.
func scripts(t *testing.T) map[string]header {
	t.Helper()
	paths, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	all := map[string]header{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(path), ".lua")] = parse(string(text))
	}
	return all
}

// parse reads a script and its header.
func parse(text string) (h header) {
	h.lists = map[string][]string{}
	var section string
	var about strings.Builder
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "--")
		if !ok {
			h.code += line
			continue
		}
		comment = strings.TrimPrefix(comment, " ")
		first, rest, _ := strings.Cut(comment, " ")
		switch {
		case h.code != "":
			continue
		case first == "KEYS" || first == "ARGV" || first == "reply":
			section = first
		case strings.HasPrefix(comment, "    | "):
			rest = strings.TrimPrefix(comment, "    | ")
		default:
			about.WriteString(" " + strings.TrimSpace(comment))
			continue
		}
		fields := gap.Split(strings.TrimSpace(rest), 2)
		about.WriteString(" " + strings.Join(fields[1:], " "))
		switch section {
		case "KEYS":
			h.keys = strings.Fields(fields[0])
		case "ARGV":
			h.args = strings.Fields(fields[0])
		case "reply":
			h.replies = append(h.replies, strings.Fields(fields[0]))
		}
	}
	for _, m := range listed.FindAllStringSubmatch(about.String(), -1) {
		h.lists[m[1]] = strings.Fields(m[2])
	}
	return h
}

// verbHeaders reads those of the verbs, by their names.
func verbHeaders(t *testing.T) map[string]header {
	t.Helper()
	all := scripts(t)
	lists := all["release"].lists // "as release"
	for name, h := range all {
		if h.keys == nil {
			delete(all, name)
		} else if name == "leave" || name == "force_release" {
			h.lists = lists
			all[name] = h
		}
	}
	return all
}
