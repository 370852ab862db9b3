package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	block    = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	inline   = regexp.MustCompile("`((?:fairlock|make|go) [^`\n]+)`")
	target   = regexp.MustCompile(`(?m)^([a-z-]+):`)
	testName = regexp.MustCompile(`(?m)^func (Test\w+|Benchmark\w+)\(`)
)

// Each command that a document tells its reader to type exists: fairlock knows its words and flags, make its target, go
// its package, its flags and its tests. Long ones are not run.
func TestTheCommandsOfTheDocumentsExist(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fairlock")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../cmd/fairlock"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	help := func(words ...string) string {
		out, err := exec.CommandContext(t.Context(), program, append(words, "--help")...).CombinedOutput()
		if err != nil {
			return err.Error() + "\n" + string(out)
		}
		return string(out)
	}
	all := help()
	// Of a command that does not exist, --help is that of fairlock.
	isFairlock := func(words []string, why string) {
		out := help(words...)
		assert.Contains(t, out, "\nUsage:\n  fairlock", why)
		assert.True(t, len(words) == 0 || words[0][0] == '-' || out != all, "no such command: %s", why)
	}
	var targets []string
	for _, m := range target.FindAllStringSubmatch(read(t, "../Makefile"), -1) {
		targets = append(targets, m[1])
	}
	seen := map[string]int{}
	for _, path := range documents(t) {
		for _, line := range commands(read(t, path)) {
			words, why := fields(line), path+": "+line
			seen[words[0]]++
			switch words[0] {
			case "fairlock":
				if before, _, cmd := strings.Cut(strings.Join(words[1:], "\x00"), "\x00--\x00"); cmd {
					words = append([]string{"fairlock"}, strings.Split(before, "\x00")...)
				}
				isFairlock(words[1:], why)
			case "make":
				words = slices.DeleteFunc(words[1:], func(word string) bool {
					return strings.ContainsAny(word, "=-.") && !slices.Contains(targets, word)
				})
				assert.Subset(t, targets, words, why)
			default:
				assert.Empty(t, wrongGo(t, filepath.Dir(path), words[1:]), why)
			}
		}
	}
	assert.Greater(t, seen["fairlock"], 40)
	assert.Greater(t, seen["make"], 15)
	assert.Greater(t, seen["go"], 30)
	listed := regexp.MustCompile(`\[Command\]\(\S+\): (.*) and others`).FindStringSubmatch(read(t, "../llms.txt"))[1]
	for name := range strings.SplitSeq(listed, ", ") {
		isFairlock([]string{name}, "llms.txt: "+name)
	}
}

// documents are the paths of all.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "../llms.txt", "../*/*.md", "../*/*/*.md", "../cmd/fairlock/help/*.txt"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		paths = append(paths, found...)
	}
	require.Greater(t, len(paths), 40)
	return paths
}

// commands are those in the blocks of a document for a shell, and between quotes in a line.
func commands(text string) (all []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) { // all, so that none begins where another one ends
		if !slices.Contains([]string{"", "sh", "console"}, m[1]) {
			continue
		}
		for line := range strings.Lines(m[2]) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			for part := range strings.SplitSeq(line, " && ") {
				if regexp.MustCompile(`^(fairlock|make|go) `).MatchString(part) {
					all = append(all, part)
				}
			}
		}
	}
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	_, examples, _ := strings.Cut(text, "\nExamples:\n") // of a help text
	for line := range strings.Lines(examples) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "fairlock ") {
			all = append(all, line)
		}
	}
	return all
}

// fields are the words of a command, up to a comment or a pipe.
func fields(line string) (words []string) {
	for _, m := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(line, -1) {
		if m == "#" || m == "|" || m == ">" || m == "&" || m == ";" {
			break
		}
		words = append(words, strings.Trim(m, `'"`))
	}
	return words
}

// wrongGo says what is wrong with a go command of a document in a folder; "" if nothing is.
func wrongGo(t *testing.T, folder string, words []string) string {
	t.Helper()
	verb, run := words[0], ""
	var source strings.Builder // of the packages that are named
	for i, word := range words {
		dir, ours := strings.CutPrefix(word, "github.com/fairlock/fairlock-go")
		if words[max(i-1, 0)] == "-run" || words[max(i-1, 0)] == "-bench" {
			run, _, _ = strings.Cut(word, "/")
		}
		if !ours && !strings.HasPrefix(word, "./") {
			continue
		}
		dir, _, _ = strings.Cut(strings.TrimSuffix(dir, "/..."), "@")
		var found []string
		for _, base := range []string{folder, "..", "../lab", "../cmd/fairlock"} {
			files, _ := filepath.Glob(filepath.Join(base, dir, "*.go"))
			found = append(found, files...)
		}
		if _, err := os.Stat(filepath.Join("..", dir, "go.mod")); len(found) == 0 || verb == "get" && err != nil {
			return "no package or module " + dir
		}
		for _, file := range found {
			source.WriteString(read(t, file))
		}
	}
	if verb != "test" || source.Len() == 0 || run == "" || run == "^$" {
		return ""
	}
	for _, m := range testName.FindAllStringSubmatch(source.String(), -1) {
		if regexp.MustCompile(run).MatchString(m[1]) {
			return ""
		}
	}
	return "no test is like " + run
}
