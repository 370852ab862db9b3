// Package promises lists which tests show which promise. It reads the doc comments of the tests and writes tests.txt.
// The last lines of such a comment may be
//
//	//fairlock:promise <name>: <outcome>
//	//fairlock:fault <name>: <outcome>
//
// One test of a promise or a fault gives the outcome. The others leave it out. docs/promises.md is the page for users.
package promises

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const header = `Each promise and each fault, and the tests that fail when the code that keeps it is broken.
The package of a test is in brackets; without one, it is the root. make promises writes this list.
`

// directive is a line that looks like one.
var directive = regexp.MustCompile(`(?i)^//\s*fairl\w*:\s*(promise|fault)`)

// row is a promise or a fault: what holds then, and the tests that show it.
type row struct {
	name, outcome string
	tests         []string
}

// Generate returns the list for the tests of a tree. Its errors name wrong directives.
func Generate(tree fs.FS) ([]byte, error) {
	rows := map[string]map[string]*row{"promise": {}, "fault": {}}
	var errs []error
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		used := map[*ast.Comment]bool{}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Doc != nil && strings.HasPrefix(f.Name.Name, "Test") {
				errs = append(errs, collect(rows, f, path.Dir(name)))
				for _, c := range f.Doc.List {
					used[c] = true
				}
			}
		}
		for _, group := range file.Comments {
			for _, c := range group.List {
				if directive.MatchString(c.Text) && (!used[c] || !strings.HasPrefix(c.Text, "//fairlock:")) {
					errs = append(errs, fmt.Errorf("%s: this is no directive of a test: %s", name, c.Text))
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for kind, byName := range rows {
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			if byName[name].outcome == "" {
				errs = append(errs, fmt.Errorf("%s %q has no outcome; its tests: %v", kind, name, byName[name].tests))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return []byte(header + list("promise", rows["promise"]) + list("fault", rows["fault"])), nil
}

// collect adds what the comment of a test says.
func collect(rows map[string]map[string]*row, f *ast.FuncDecl, dir string) error {
	for _, c := range f.Doc.List {
		text, isOurs := strings.CutPrefix(c.Text, "//fairlock:")
		if !isOurs {
			continue
		}
		kind, rest, _ := strings.Cut(text, " ")
		name, outcome, _ := strings.Cut(strings.TrimSpace(rest), ": ")
		if rows[kind] == nil || name == "" {
			return fmt.Errorf("%s of %s: want //fairlock:promise or //fairlock:fault, and a name: %s", f.Name.Name, dir, c.Text)
		}
		r := rows[kind][name]
		if r == nil {
			r = &row{name: name}
			rows[kind][name] = r
		}
		if outcome != "" && r.outcome != "" && outcome != r.outcome {
			return fmt.Errorf("%s of %s: %q has two outcomes: %q and %q", f.Name.Name, dir, name, r.outcome, outcome)
		}
		if outcome != "" {
			r.outcome = outcome
		}
		test := f.Name.Name
		if dir != "." {
			test += " (" + filepath.ToSlash(dir) + ")"
		}
		r.tests = append(r.tests, test)
	}
	return nil
}

// list returns the rows of a kind, by name.
func list(kind string, rows map[string]*row) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		slices.Sort(r.tests)
		fmt.Fprintf(&b, "\n%s %s: %s\n\t%s\n", kind, name, r.outcome, strings.Join(slices.Compact(r.tests), ", "))
	}
	return b.String()
}
