package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// module is one of the repository's.
type module struct {
	dir  string // absolute
	tag  string // what stands before the version in the name of its tag: "", or "cmd/fairlock/"
	file *modfile.File
}

func (m module) path() string { return m.file.Module.Mod.Path }

// published returns the modules that have versions, in the order in which they are tagged: the library, the modules of
// contrib, the commands. The other modules of go.work have none: nobody but this repository imports them.
func published(tree string) ([]module, error) {
	text, err := os.ReadFile(filepath.Join(tree, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	groups := [3][]module{}
	for _, use := range work.Use {
		rel := filepath.ToSlash(filepath.Clean(use.Path))
		m, group := module{dir: filepath.Join(tree, rel), tag: rel + "/"}, 0
		switch {
		case rel == ".":
			m.tag = ""
		case strings.HasPrefix(rel, "contrib/"):
			group = 1
		case strings.HasPrefix(rel, "cmd/"):
			group = 2
		default:
			continue
		}
		name := filepath.Join(m.dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if m.file, err = modfile.Parse(name, text, nil); err != nil {
			return nil, err
		}
		groups[group] = append(groups[group], m)
	}
	return slices.Concat(groups[:]...), nil
}

// pin changes each go.mod as the module's tag has it: the repository's modules are required in this version, and
// nothing is replaced. `go install` refuses a command that replaces a module, and a user's go ignores the replacement.
func pin(modules []module, version string) error {
	root := modules[0].path()
	ours := func(path string) bool { return path == root || strings.HasPrefix(path, root+"/") }
	for _, m := range modules {
		for _, require := range slices.Clone(m.file.Require) {
			if !ours(require.Mod.Path) {
				continue
			}
			if !slices.ContainsFunc(modules, func(m module) bool { return m.path() == require.Mod.Path }) {
				return fmt.Errorf("%s requires %s, which is not published", m.path(), require.Mod.Path)
			}
			if err := m.file.AddRequire(require.Mod.Path, version); err != nil {
				return err
			}
		}
		for _, replace := range slices.Clone(m.file.Replace) {
			if !ours(replace.Old.Path) {
				return fmt.Errorf("%s replaces %s", m.path(), replace.Old.Path)
			}
			if err := m.file.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
				return err
			}
		}
		m.file.Cleanup()
		text, err := m.file.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(m.dir, "go.mod"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
