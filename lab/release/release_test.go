package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository returns one with a library, a module of contrib, a command, and a module that is not published. extra are
// lines of the command's go.mod.
func repository(t *testing.T, extra string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.work": "go 1.26.0\n\nuse (\n\t.\n\t./cmd/tool\n\t./contrib/otel\n\t./lab\n)\n",
		"go.mod":  "module example.com/x\n\ngo 1.25.0\n\nrequire example.com/other v1.2.3\n",
		"contrib/otel/go.mod": "module example.com/x/contrib/otel\n\nrequire example.com/x v0.0.0\n\n" +
			"// Here.\nreplace example.com/x => ../..\n",
		"cmd/tool/go.mod": "module example.com/x/cmd/tool\n\nrequire (\n\texample.com/other v1.2.3\n\texample.com/x v0.0.0\n" +
			"\texample.com/x/contrib/otel v0.0.0\n)\n\n// Here.\nreplace (\n\texample.com/x => ../..\n" +
			"\texample.com/x/contrib/otel => ../../contrib/otel\n)\n" + extra,
		"lab/go.mod": "module example.com/x/lab\n",
	} {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return dir
}

// The go.mod of each tag requires the version, and nothing there says that the module was beside the others.
func TestPin(t *testing.T) {
	dir := repository(t, "")
	modules, err := published(dir)
	require.NoError(t, err)
	var tags []string
	for _, m := range modules {
		tags = append(tags, m.tag)
	}
	assert.Equal(t, []string{"", "contrib/otel/", "cmd/tool/"}, tags)

	require.NoError(t, pin(modules, "v0.2.0"))
	for name, want := range map[string]string{
		"go.mod":              "module example.com/x\n\ngo 1.25.0\n\nrequire example.com/other v1.2.3\n",
		"contrib/otel/go.mod": "module example.com/x/contrib/otel\n\nrequire example.com/x v0.2.0\n",
		"cmd/tool/go.mod": "module example.com/x/cmd/tool\n\nrequire (\n\texample.com/other v1.2.3\n\texample.com/x v0.2.0\n" +
			"\texample.com/x/contrib/otel v0.2.0\n)\n",
		"lab/go.mod": "module example.com/x/lab\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(text), name)
	}
}

func TestPin_RefusesWhatUsersCannotHave(t *testing.T) {
	for extra, want := range map[string]string{
		"require example.com/x/lab v0.0.0\n":         "example.com/x/cmd/tool requires example.com/x/lab, which is not published",
		"replace example.com/other => ../../other\n": "example.com/x/cmd/tool replaces example.com/other",
	} {
		modules, err := published(repository(t, extra))
		require.NoError(t, err)
		assert.EqualError(t, pin(modules, "v0.2.0"), want)
	}
}

// The modules of this repository can be pinned, and CHANGELOG.md has a version to publish. The rest of a release is not
// tried here: `make release-check` takes minutes.
func TestThisRepository(t *testing.T) {
	modules, err := published("../..")
	require.NoError(t, err)
	for i := range modules {
		modules[i].dir = t.TempDir() // that this tree is not changed
	}
	require.NoError(t, pin(modules, "v0.1.0"))
	require.NoError(t, changelog("../..", "v0.1.0"))
	require.Error(t, changelog("../..", "v0.1"))
}

var used = regexp.MustCompile(`(?m)^ *(?:- )?uses: (.*)$`)

// Each action is that of a commit, with the version as a comment.
func TestWorkflows_ArePinned(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := used.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, found, file)
		for _, m := range found {
			assert.Regexp(t, `^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+`, m[1], file)
		}
	}
}

// The SBOM has the modules of all programs, each once, and is refused for programs of another version.
func TestSBOM(t *testing.T) {
	dir := t.TempDir()
	require.ErrorContains(t, sbom(dir, "v0.1.0"), "no programs")
	self, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{"fairlock-linux-amd64", "fairlock-linux-arm64"} {
		require.NoError(t, os.Link(self, filepath.Join(dir, name)))
	}
	info, err := buildinfo.ReadFile(self)
	require.NoError(t, err)
	require.ErrorContains(t, sbom(dir, "v9.9.9"), "not of v9.9.9")
	replaced := slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Replace != nil })
	require.False(t, replaced, "this test needs a program without them")
	require.NoError(t, sbom(dir, info.Main.Version))
	text, err := os.ReadFile(filepath.Join(dir, sbomFile))
	require.NoError(t, err)
	var b bom
	require.NoError(t, json.Unmarshal(text, &b))
	assert.Equal(t, info.Main.Path, b.Metadata.Component.Name)
	assert.Len(t, b.Components, len(info.Deps)+1)
	for _, m := range info.Deps {
		assert.Contains(t, string(text), `"pkg:golang/`+m.Path+"@"+m.Version+`"`)
		assert.Contains(t, string(text), m.Sum)
	}
}
