package lua_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// header is what the comment at the top of a file says.
type header struct {
	keys, args []string
	replies    [][]string          // the alternatives, each its fields
	lists      map[string][]string // of a field that is a list: the fields of each item
	code       string              // without comments
}

var (
	gap    = regexp.MustCompile(`\s{2,}`)
	listed = regexp.MustCompile(`([\w-]+): \{([^}]*)\} each`)
)

// scripts reads every file, by its path without the ending. Only a verb has a line KEYS in its header.
func scripts(t *testing.T) map[string]header {
	t.Helper()
	all := map[string]header{}
	for _, pattern := range []string{"scripts/*.lua", "scripts/*/*.lua"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), "scripts/"), ".lua")
			all[name] = parse(string(text))
		}
	}
	require.NotEmpty(t, all)
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

func fileText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
