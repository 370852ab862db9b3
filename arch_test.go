package fairlock_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/fairlock/fairlock-go"

// mayImport returns what each package may import besides the standard library, as testdata/imports.txt says.
func mayImport(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/imports.txt")
	require.NoError(t, err)
	all, importer := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.FieldsSeq(line) {
			path, of := strings.CutSuffix(word, ":")
			if root, _, _ := strings.Cut(path, "/"); !strings.Contains(root, ".") {
				path = module + "/" + path
			}
			if of {
				importer, all[path] = path, nil
			} else {
				all[importer] = append(all[importer], path)
			}
		}
	}
	return all
}

// Tests do not count. A directory of tests only is no package.
func TestPackages_ImportOneWay(t *testing.T) {
	list, err := exec.Command("go", "list", "-f",
		`{{if .GoFiles}}{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{end}}`, "./...").Output()
	require.NoError(t, err)
	all := mayImport(t)
	missing := maps.Clone(all)
	for line := range strings.Lines(string(list)) {
		imports := strings.Fields(line)
		if len(imports) == 0 {
			continue
		}
		allowed, known := all[imports[0]]
		assert.Truef(t, known, "%s has no line in testdata/imports.txt", imports[0])
		delete(missing, imports[0])
		for _, path := range imports[1:] {
			std := !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
			assert.Truef(t, std || slices.Contains(allowed, path), "%s must not import %s", imports[0], path)
		}
	}
	assert.Empty(t, missing, "there are no such packages")
}

// What starts a goroutine waits for its end. A timer or a context.AfterFunc is stopped by who sets it.
func TestGoroutines_OnlyOfTasks(t *testing.T) {
	packages := mayImport(t)
	for _, pattern := range []string{"fairlock/*.go", "internal/*/*.go", "leader/*.go", "fence/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range files {
			folder := filepath.ToSlash(filepath.Dir(path))
			if _, library := packages[module+"/"+folder]; !library || strings.HasSuffix(path, "_test.go") ||
				startsGoroutines[folder] {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					assert.Failf(t, "goroutine", "%s has a go statement", path)
				case *ast.SelectorExpr:
					assert.NotEqual(t, "WaitGroup", n.Sel.Name, path)
				}
				return true
			})
		}
	}
}

// startsGoroutines are the packages of the library whose goroutines Close waits for.
var startsGoroutines = map[string]bool{"internal/task": true, "internal/dispatch": true}

// bench compares with other libraries. Nobody who uses this one or its command gets them.
func TestPackages_DoNotNeedBench(t *testing.T) {
	for _, file := range []string{"go.mod", "cmd/fairlock/go.mod"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, path := range []string{module + "/bench", "go.etcd.io/", "google.golang.org/grpc"} {
			assert.NotContains(t, string(text), path, file)
		}
	}
}

// A module of contrib has versions of its own, and its users may have it with a later version of this one: it knows the
// public packages alone. Tests do not count. The files are parsed, because the oldest Go of this module may be too old
// to list others.
func TestContrib_ImportsPublicPackages(t *testing.T) {
	found := 0
	err := filepath.WalkDir("contrib", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found++
			internal := strings.HasPrefix(name, module+"/") && slices.Contains(strings.Split(name, "/"), "internal")
			assert.Falsef(t, internal || name == module+"/lua", "%s imports %s", path, name)
		}
		return nil
	})
	require.NoError(t, err)
	assert.NotZero(t, found)
}

// What this module requires, its users get. Prometheus, OpenTelemetry and others are for the modules of contrib.
func TestModule_Requires(t *testing.T) {
	text, err := exec.Command("go", "mod", "edit", "-json").Output()
	require.NoError(t, err)
	var file struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal(text, &file))
	var paths []string
	for _, r := range file.Require {
		if !r.Indirect {
			paths = append(paths, r.Path)
		}
	}
	assert.ElementsMatch(t, []string{
		// the last for fairlocktest
		"github.com/google/uuid", "github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2",
		"github.com/stretchr/testify", "go.uber.org/goleak", "github.com/yuin/gopher-lua", // for tests alone
	}, paths)
}
