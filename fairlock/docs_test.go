package fairlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests compare the documentation with the code.

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// The first Go text of the README is a program that runs, and the package's first example. The other stands word for
// word in an example.
func TestReadme_CodeRuns(t *testing.T) {
	t.Parallel()
	readme := read(t, "../README.md")
	blocks := goBlock.FindAllStringSubmatch(readme, -1)
	require.Len(t, blocks, 2)
	program, kinds := blocks[0][1], blocks[1][1]

	for line := range strings.Lines(kinds) {
		assert.Contains(t, body(t, read(t, "example_test.go"), "Example_kinds"), line)
	}
	assert.Equal(t, body(t, read(t, "example_test.go"), "Example"), body(t, program, "main"))
	assert.LessOrEqual(t, strings.Count(body(t, program, "main"), "\n"), 15, "the first program must stay short")

	want := regexp.MustCompile(`fmt\.Println\("(.*)"\)`).FindStringSubmatch(program)[1]
	assert.Equal(t, want+"\n", run(t, program))
}

// Every Go text of docs/testing.md stands word for word in an example.
func TestTestingPage_CodeIsTested(t *testing.T) {
	blocks := goBlock.FindAllStringSubmatch(read(t, "../docs/testing.md"), -1)
	require.Len(t, blocks, 4)
	for _, block := range blocks {
		assert.Contains(t, read(t, "../fairlocktest/example_test.go"), block[1])
	}
}

// docs/instrumentation.md explains every line that the library logs, and no other.
func TestLogTable_ExplainsEveryLine(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var logged []string
	for _, file := range files {
		for _, m := range regexp.MustCompile(`\.log\.(Debug|Info|Warn|Error)(?:Context)?\((?:ctx, )?"(.*?)"`).FindAllStringSubmatch(read(t, file), -1) {
			logged = append(logged, strings.ToUpper(m[1])+" "+m[2])
		}
	}
	var explained []string
	for _, m := range regexp.MustCompile("(?m)^\\| ([A-Z]+) \\| `(.*?)` \\|").FindAllStringSubmatch(read(t, "../docs/instrumentation.md"), -1) {
		explained = append(explained, m[1]+" "+m[2])
	}
	assert.ElementsMatch(t, logged, explained)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// body returns a function from its name to its end.
func body(t *testing.T, source, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(source, "\nfunc "+name+"() {\n")
	require.True(t, found, "no func %s", name)
	text, _, found := strings.Cut(rest, "\n}\n")
	require.True(t, found, "func %s does not end", name)
	return text + "\n}\n"
}

// run runs a program on a server in memory, in this module, and returns what it prints.
func run(t *testing.T, program string) string {
	t.Helper()
	const addr = "localhost:6379"
	require.Contains(t, program, addr)
	file := filepath.Join(t.TempDir(), "main.go")
	program = strings.Replace(program, addr, miniredis.RunT(t).Addr(), 1)
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
