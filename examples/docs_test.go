package examples_test

import (
	"flag"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"html"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bep/goat"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// guides are the documents whose code is built here.
var guides = []string{"concepts.md", "recipes.md", "migrating.md", "instrumentation.md", "lost-after-write.md"}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// packages are those that a Go text may import, by name; guides.go imports them.
func packages(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "guides.go", nil, parser.ImportsOnly)
	require.NoError(t, err)
	names := map[string]string{ // where the name is not the last part of the path
		"redis": "github.com/redis/go-redis/v9", "redisotel": "github.com/redis/go-redis/extra/redisotel/v9",
		"otelfairlock": "github.com/fairlock/fairlock-go/contrib/otel",
		"promfairlock": "github.com/fairlock/fairlock-go/contrib/prometheus",
	}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if !slices.Contains(slices.Collect(maps.Values(names)), path) {
			names[filepath.Base(path)] = path
		}
	}
	return names
}

// Each Go text in a guide is the top level of a file of its own, without its package clause and its imports. It builds,
// passes go vet, and is formatted. The texts are packages of a module in this workspace, so they are compiled with what
// the other tests have compiled.
func TestTheCodeOfTheGuidesIsTrue(t *testing.T) {
	module := t.TempDir()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	work, used := read(t, "../go.work"), regexp.MustCompile(`(?m)^\t\.`)
	require.Greater(t, len(used.FindAllString(work, -1)), 3)
	write(t, filepath.Join(module, "go.work"), used.ReplaceAllString(work, "\t"+root)+"use .\n")
	write(t, filepath.Join(module, "go.work.sum"), read(t, "../go.work.sum"))
	write(t, filepath.Join(module, "go.mod"), "module guides\n"+regexp.MustCompile(`(?m)^go .*$`).FindString(work)+"\n")
	imports := packages(t)
	for _, guide := range guides {
		path := filepath.Join(root, "docs", guide)
		text := read(t, path)
		blocks := goBlock.FindAllStringSubmatchIndex(text, -1)
		require.NotEmpty(t, blocks, "%s has no Go text", guide)
		require.Len(t, blocks, strings.Count(text, "```go"), "%s has a Go text that is not found", guide)
		for i, block := range blocks {
			at := fmt.Sprintf("%s:%d", path, strings.Count(text[:block[2]], "\n")+1)
			name := fmt.Sprintf("%s%d", strings.TrimSuffix(guide, ".md"), i)
			write(t, filepath.Join(module, name, name+".go"), complete(t, imports, at, text[block[2]:block[3]]))
		}
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
	vet.Dir, vet.Env = module, append(os.Environ(), "GOWORK="+filepath.Join(module, "go.work"))
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// complete makes a Go text a file: with a package clause and the imports that it needs. Its lines are called what they
// are in the guide.
func complete(t *testing.T, imports map[string]string, at, text string) string {
	t.Helper()
	formatted, err := format.Source([]byte(text))
	require.NoError(t, err, at)
	assert.Equal(t, string(formatted), text, "%s is not formatted", at)
	file, err := parser.ParseFile(token.NewFileSet(), at, "package guide\n"+text, 0)
	require.NoError(t, err, at)
	needed := map[string]bool{}
	for _, name := range file.Unresolved {
		if imports[name.Name] != "" {
			needed[name.Name] = true
		}
	}
	var header strings.Builder
	header.WriteString("package guide\n")
	for name := range needed {
		fmt.Fprintf(&header, "import %s %q\n", name, imports[name])
	}
	fmt.Fprintf(&header, "//line %s\n", at)
	require.Empty(t, file.Imports, "%s: imports are added by this test", at)
	return header.String() + text
}

// The first program of examples/README.md runs, and is the first example of package fairlock.
func TestTheFirstProgramRuns(t *testing.T) {
	program := goBlock.FindStringSubmatch(read(t, "README.md"))[1]
	_, main, _ := strings.Cut(program, "\nfunc main() {\n")
	assert.Contains(t, read(t, "../fairlock/example_test.go"), "\nfunc Example() {\n"+main)
	assert.LessOrEqual(t, strings.Count(main, "\n"), 15, "the first program must stay short")
	want := regexp.MustCompile(`fmt\.Println\("(.*)"\)`).FindStringSubmatch(program)[1]
	assert.Equal(t, want+"\n", run(t, program))
}

// The code of each page stands word for word, but for its indentation, in an example or a program, which are run. That
// of contrib/gocron leaves lines out.
func TestTheCodeOfThePagesRuns(t *testing.T) {
	indents := regexp.MustCompile(`(?m)^\s+`)
	for page, sources := range map[string][]string{
		"../README.md":       {"../fairlock/example_test.go", "../fairlocktest/example_test.go"},
		"../docs/testing.md": {"../fairlocktest/example_test.go"},
		"../docs/service.md": {"service/main.go"}, "../contrib/gocron/README.md": {"../contrib/gocron/example_test.go"},
	} {
		code := "\n"
		for _, source := range sources {
			code += indents.ReplaceAllString(read(t, source), "")
		}
		blocks := goBlock.FindAllStringSubmatch(read(t, page), -1)
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			assert.LessOrEqual(t, strings.Count(block[1], "\n"), 60, "lines")
			parts := []string{indents.ReplaceAllString(block[1], "")}
			if strings.Contains(page, "gocron") {
				parts = slices.Collect(strings.Lines(parts[0]))
			}
			for _, part := range parts {
				assert.Contains(t, code, "\n"+part, page)
			}
		}
	}
	readme := read(t, "../README.md")
	assert.Equal(t, 6, strings.Count(goBlock.FindString(readme), "\n")-1, "the first lines of code must stay few")
	assert.LessOrEqual(t, len(strings.Fields(readme)), 800, "words of the README")
}

// docs/instrumentation.md explains every line that the library logs, and no other.
func TestEveryLineThatIsLoggedIsExplained(t *testing.T) {
	files := []string{"../leader/elector.go", "../contrib/prometheus/locks.go"}
	for _, folder := range []string{"fairlock", "internal/call", "internal/wait", "internal/hold"} {
		found, err := filepath.Glob("../" + folder + "/*.go")
		require.NoError(t, err)
		files = append(files, found...)
	}
	var logged []string
	for _, file := range files {
		for _, m := range regexp.MustCompile(
			`\b(?:[lL]og|Logger)\.(Debug|Info|Warn|Error)(?:Context)?\((?:ctx, )?"(.*?)"`).FindAllStringSubmatch(
			read(t, file), -1) {
			logged = append(logged, strings.ToUpper(m[1])+" "+m[2])
		}
		for _, m := range regexp.MustCompile(`\b(begins|over|silent): +"(\w.*?)"`).FindAllStringSubmatch(read(t, file), -1) {
			logged = append(logged, map[bool]string{true: "WARN ", false: "INFO "}[m[1] == "begins"]+m[2]) // of an account
		}
	}
	var explained []string
	for _, m := range regexp.MustCompile("(?m)^\\| ([A-Z]+) \\| `(.*?)` \\|").FindAllStringSubmatch(read(t,
		"../docs/instrumentation.md"), -1) {
		explained = append(explained, m[1]+" "+m[2])
	}
	assert.ElementsMatch(t, logged, explained)
}

// run runs a program in this module, on a server of its own, and returns what it prints.
func run(t *testing.T, program string) string {
	t.Helper()
	const addr = "localhost:6379"
	require.Contains(t, program, addr)
	file := filepath.Join(t.TempDir(), "main.go")
	program = strings.Replace(program, addr, redistest.StartTCP(t).Addr(), 1)
	write(t, file, program)
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	title    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unlinked = regexp.MustCompile(`[^\pL\pN_-]`)
)

// Every link of a document to a file of the repository, or to a heading in it, leads there.
func TestTheLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	for _, path := range documents(t) {
		prose := fenced.ReplaceAllString(read(t, path), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(path), file)
			if file == "" {
				target = path
			}
			_, err := os.Stat(target)
			if assert.NoError(t, err, "%s: %s", path, m[1]) && heading != "" {
				assert.Contains(t, headings(read(t, target)), heading, "%s: %s", path, m[1])
			}
		}
	}
}

// headings returns the anchors of a document, as GitHub makes them.
func headings(text string) (all []string) {
	for _, m := range title.FindAllStringSubmatch(text, -1) {
		all = append(all, unlinked.ReplaceAllString(strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"), ""))
	}
	return all
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

//go:generate go test -run ^TestThePicturesAreThoseOfTheirSources$ . -update
var update = flag.Bool("update", false, "draw the pictures of the documentation anew")

// Its own ground makes a picture readable wherever it is shown, whatever that page's colours are.
const picture = `<svg xmlns="http://www.w3.org/2000/svg" role="img"
 width="%[1]d" height="%[2]d" viewBox="-16 -8 %[1]d %[2]d"
 font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13">
<title>%[3]s</title>
<style>
%[4]s</style>
<rect class="ground" x="-16" y="-8" width="100%%" height="100%%" rx="6"/>
%[5]s</svg>
`

// draw draws a picture from its source: a line with its title, an empty line, and what it looks like.
func draw(source, style string) string {
	title, art, _ := strings.Cut(source, "\n\n")
	svg := goat.BuildSVG(strings.NewReader(art))
	return fmt.Sprintf(picture, svg.Width+32, svg.Height+16, html.EscapeString(title), style, svg.Body)
}

func TestThePicturesAreThoseOfTheirSources(t *testing.T) {
	sources, err := filepath.Glob("../docs/pictures/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, source := range sources {
		file := strings.TrimSuffix(source, ".txt") + ".svg"
		drawn := draw(read(t, source), read(t, "../docs/pictures/style.css"))
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(drawn), 0o600))
		}
		if drawn != read(t, file) {
			t.Errorf("%s is not what %s says; go generate draws it anew", file, source)
		}
	}
}
