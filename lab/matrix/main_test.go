package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/compatibility.md is what the results say.
func TestPage_IsUpToDate(t *testing.T) {
	all, err := readResults("../..")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	have, err := os.ReadFile("../../docs/compatibility.md")
	require.NoError(t, err)
	assert.Equal(t, string(page(all)), string(have))
}

func TestPage_SaysWhatWasNotRun(t *testing.T) {
	text := string(page([]result{
		{"Redis 7.0.15", "2026-01-02", map[string][]string{"library": {}, "scripts": {"TestX", "TestY"}}},
		{"Valkey 8.1.3", "2026-01-03", map[string][]string{"library": {}, "scripts": {}, "command": {}}},
	}))
	for _, row := range []string{
		"| Redis 6.2 |  | not run | not run | not run |",
		"| Redis 7.0.15 | 2026-01-02 | passed | failed: TestX, TestY | not run |",
		"| Valkey 8.1.3 | 2026-01-03 | passed | passed | passed |",
	} {
		assert.Contains(t, text, row+"\n")
	}
	assert.NotContains(t, text, "| Valkey 8 |")
}

func TestNameOf(t *testing.T) {
	for output, want := range map[string]string{
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=x\n": "Redis 7.0.15",
		"Valkey server v=8.0.1 sha=00000000:1 malloc=libc bits=64 build=y\n":           "Valkey 8.0.1",
	} {
		have, err := nameOf(output)
		require.NoError(t, err)
		assert.Equal(t, want, have)
	}
	_, err := nameOf("cp (GNU coreutils) 9.1\n")
	assert.ErrorContains(t, err, "coreutils")
}

func TestFailures(t *testing.T) {
	failed, output := failures([]byte(strings.Join([]string{
		`# broken`,
		`{"Action":"output","Package":"p","Test":"TestA/one","Output":"one is wrong\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestA/one"}`,
		`{"Action":"fail","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"fine\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestB"}`,
		`{"Action":"fail","Package":"p"}`,
	}, "\n")))
	assert.Equal(t, []string{"TestA"}, failed)
	assert.Equal(t, "one is wrong\n", output)
	failed, _ = failures([]byte(`{"Action":"fail","Package":"p"}`))
	assert.Equal(t, []string{"p"}, failed)
}

// The tests of a package find the given server in PATH, and what it does not like is a result.
func TestRun_TriesTheGivenServer(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                      "module example.com/x\n\ngo 1.25\n",
		"x_test.go":                   "package x\n\nimport (\n\t\"os/exec\"\n\t\"testing\"\n)\n\nfunc TestOld(t *testing.T) {\n\tif out, _ := exec.Command(\"redis-server\").Output(); string(out) != \"Valkey server v=8.1.0\\n\" {\n\t\tt.Fatalf(\"%s\", out)\n\t}\n}\n",
		"internal/script/x_test.go":   "package script\n\nimport \"testing\"\n\nfunc TestNew(t *testing.T) { t.Error(\"no\") }\n",
		"cmd/fairlock/x.go":           "package main\n\nfunc main() {}\n",
		"internal/tools/doctor/x.go":  "package doctor\n",
		"internal/tools/inspect/x.go": "package inspect\n",
		"lab/matrix/x.go":             "package matrix\n",
		"docs/x.go":                   "package docs\n",
		"server":                      "#!/bin/sh\necho Valkey server v=8.1.0\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o755))
	}
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	err := run(t.Context(), root, []string{filepath.Join(root, "server")})
	require.EqualError(t, err, "Valkey 8.1.0: scripts: TestNew")
	all, err := readResults(root)
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, map[string][]string{"library": {}, "scripts": {"TestNew"}, "command": {}}, all[0].Failed)
	text, err := os.ReadFile(filepath.Join(root, "docs/compatibility.md"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "| Valkey 8.1.0 | "+all[0].Date+" | passed | failed: TestNew | passed |")
}
