package fairlock_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/fairlock/fairlock-go"

// mayImport says which way imports run: what each package may import besides the standard library. Nothing imports
// upward, and the library depends on go-redis and uuid, and on nothing else.
var mayImport = map[string][]string{
	module + "/token":             {"github.com/google/uuid"},
	module + "/lua":               {module + "/token", "github.com/redis/go-redis/v9"},
	module + "/internal/clock":    {},
	module + "/internal/dispatch": {module + "/internal/clock", "github.com/redis/go-redis/v9"},
	module + "/fairlock": {
		module + "/token", module + "/lua", module + "/internal/clock", module + "/internal/dispatch",
		"github.com/redis/go-redis/v9",
	},
	// For tests; no package above may import them. Users import fairlocktest: it needs no more than the library's own tests.
	module + "/fairlocktest": {
		module + "/fairlock", module + "/lua", module + "/token", module + "/internal/clock", "github.com/redis/go-redis/v9",
		"github.com/alicebob/miniredis/v2",
	},
	module + "/internal/redistest": {"github.com/redis/go-redis/v9"},
	module + "/internal/model":     {},
	module + "/internal/history":   {module + "/fairlock"},
	module + "/internal/history/linear": {
		module + "/internal/history", "github.com/anishathalye/porcupine",
	},
	module + "/internal/sim": {
		module + "/fairlock", module + "/fairlocktest", module + "/lua", module + "/token", module + "/internal/history",
		module + "/internal/history/linear", "github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2/server",
	},
	module + "/internal/mutants":  {},
	module + "/internal/promises": {},
}

func TestImportsRunOneWay(t *testing.T) {
	for pkg, imports := range packages(t) {
		allowed, known := mayImport[pkg]
		if !assert.Truef(t, known, "%s has no line in mayImport: say what it may import", pkg) {
			continue
		}
		for _, path := range imports {
			std := !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
			assert.Truef(t, std || slices.Contains(allowed, path), "%s must not import %s", pkg, path)
		}
	}
}

// packages returns what the module's packages import, tests not counted. A directory of tests only is no package.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	list, err := exec.Command("go", "list", "-f",
		`{{if .GoFiles}}{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{end}}`, "./...").Output()
	require.NoError(t, err)
	imports := map[string][]string{}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			imports[fields[0]] = fields[1:]
		}
	}
	for pkg := range mayImport {
		require.Contains(t, imports, pkg, "mayImport has a line for a package that is not there")
	}
	return imports
}
