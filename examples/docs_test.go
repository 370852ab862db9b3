package examples_test

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guides are the documents whose code is built here.
var guides = []string{"concepts.md", "recipes.md", "migrating.md", "faq.md"}

// Each Go text in a guide is the top level of a file of its own, without its package clause and its imports. It may
// import these.
var imports = map[string]string{
	"clientv3":     "go.etcd.io/etcd/client/v3",
	"concurrency":  "go.etcd.io/etcd/client/v3/concurrency",
	"context":      "context",
	"errors":       "errors",
	"fairlock":     "github.com/fairlock/fairlock-go/fairlock",
	"fairlocktest": "github.com/fairlock/fairlock-go/fairlocktest",
	"fmt":          "fmt",
	"goredis":      "github.com/go-redsync/redsync/v4/redis/goredis/v9",
	"http":         "net/http",
	"log":          "log",
	"os":           "os",
	"redis":        "github.com/redis/go-redis/v9",
	"redislock":    "github.com/bsm/redislock",
	"redsync":      "github.com/go-redsync/redsync/v4",
	"require":      "github.com/stretchr/testify/require",
	"rueidis":      "github.com/redis/rueidis",
	"rueidislock":  "github.com/redis/rueidis/rueidislock",
	"signal":       "os/signal",
	"slices":       "slices",
	"slog":         "log/slog",
	"sql":          "database/sql",
	"sync":         "sync",
	"synctest":     "testing/synctest",
	"syscall":      "syscall",
	"testing":      "testing",
	"time":         "time",
	"token":        "github.com/fairlock/fairlock-go/token",
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Every Go text of the guides builds, passes go vet, and is formatted.
func TestTheCodeOfTheGuidesIsTrue(t *testing.T) {
	module := t.TempDir() // one like this, with a package for each text
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	mod := read(t, "go.mod")
	require.Contains(t, mod, "=> ..\n")
	write(t, filepath.Join(module, "go.mod"), strings.Replace(mod, "=> ..\n", "=> "+strconv.Quote(root)+"\n", 1))
	write(t, filepath.Join(module, "go.sum"), read(t, "go.sum"))
	for _, guide := range guides {
		path := filepath.Join(root, "docs", guide)
		text := read(t, path)
		blocks := goBlock.FindAllStringSubmatchIndex(text, -1)
		require.NotEmpty(t, blocks, "%s has no Go text", guide)
		require.Len(t, blocks, strings.Count(text, "```go"), "%s has a Go text that is not found", guide)
		for i, block := range blocks {
			at := fmt.Sprintf("%s:%d", path, strings.Count(text[:block[2]], "\n")+1)
			name := fmt.Sprintf("%s%d", strings.TrimSuffix(guide, ".md"), i)
			write(t, filepath.Join(module, name, name+".go"), complete(t, at, text[block[2]:block[3]]))
		}
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
	vet.Dir, vet.Env = module, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// complete makes a Go text a file: with a package clause and the imports that it needs. Its lines are called what they
// are in the guide.
func complete(t *testing.T, at, text string) string {
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
	require.False(t, slices.ContainsFunc(file.Decls, isImport), "%s: imports are added by this test", at)
	return header.String() + text
}

func isImport(d ast.Decl) bool {
	g, ok := d.(*ast.GenDecl)
	return ok && g.Tok == token.IMPORT
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
)

// Every link of the guides to a file of the repository, or to a heading in it, leads there.
func TestTheLinksOfTheGuidesLeadSomewhere(t *testing.T) {
	paths := []string{"README.md"}
	for _, guide := range guides {
		paths = append(paths, filepath.Join("../docs", guide))
	}
	for _, path := range paths {
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
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		all = append(all, regexp.MustCompile(`[^\pL\pN_-]`).ReplaceAllString(anchor, ""))
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
