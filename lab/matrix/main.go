// Command matrix tries the library, its scripts and the command on servers that are given to it, and writes
// docs/compatibility.md. `make matrix SERVERS="path/to/redis-server …"` calls it.
//
// The tests start the redis-server that they find in PATH. matrix puts each given binary there in turn.
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"
)

// result is what is known of one version of a server.
type result struct {
	Server string `json:"server"` // its name and version
	Date   string `json:"date"`
	// Failed has for each group of tests those that have failed. A group that is not there was not run.
	Failed map[string][]string `json:"failed"`
}

// group is a part of the tests.
type group struct {
	name     string
	packages []string
}

var groups = []group{
	{"library", []string{"."}},
	{"scripts", []string{"./internal/script"}},
	{"command", []string{"./cmd/fairlock", "./internal/tools/doctor", "./internal/tools/inspect"}},
}

// wanted are the servers that the page names, even untested ones: all versions with this beginning.
var wanted = []string{
	"Redis 6.2", "Redis 7.0", "Redis 7.4", "Redis 8", "Valkey 8", "Valkey 9", "KeyDB 6.3",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, ".", os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

const resultsFile = "lab/matrix/results.json"

// run tests each binary, and writes the results, even if tests have failed.
func run(ctx context.Context, root string, binaries []string) error {
	if len(binaries) == 0 {
		return errors.New(`which servers? make matrix SERVERS="path/to/redis-server path/to/valkey-server"`)
	}
	all, err := readResults(root)
	if err != nil {
		return err
	}
	var failed error
	for _, binary := range binaries {
		r, err := try(ctx, root, binary)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(old result) bool { return old.Server == r.Server })
		all = append(all, r)
		for _, g := range slices.Sorted(maps.Keys(r.Failed)) {
			if tests := r.Failed[g]; len(tests) > 0 {
				failed = errors.Join(failed, fmt.Errorf("%s: %s: %s", r.Server, g, strings.Join(tests, ", ")))
			}
		}
	}
	slices.SortFunc(all, func(a, b result) int { return strings.Compare(a.Server, b.Server) })
	return errors.Join(write(root, all), failed)
}

func readResults(root string) (all []result, err error) {
	text, err := os.ReadFile(filepath.Join(root, resultsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}

func write(root string, all []result) error {
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, resultsFile), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(root, "docs/compatibility.md"), page(all), 0o644),
	)
}

// try runs all groups on one server.
func try(ctx context.Context, root, binary string) (result, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return result{}, err
	}
	version, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", binary, err)
	}
	r := result{Date: time.Now().UTC().Format(time.DateOnly), Failed: map[string][]string{}}
	if r.Server, err = nameOf(string(version)); err != nil {
		return result{}, fmt.Errorf("%s: %w", binary, err)
	}
	dir, err := os.MkdirTemp("", "matrix")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Symlink(binary, filepath.Join(dir, "redis-server")); err != nil {
		return result{}, err
	}
	for _, g := range groups {
		fmt.Fprintf(os.Stderr, "%s: %s\n", r.Server, g.name)
		failed, err := test(ctx, root, dir, g.packages)
		if err != nil {
			return result{}, fmt.Errorf("%s: %s: %w", r.Server, g.name, err)
		}
		r.Failed[g.name] = failed
	}
	return r, nil
}

var versions = regexp.MustCompile(`(?m)^(\w+) server v=([0-9.]+)`)

// nameOf returns the name and version that a server's --version has.
func nameOf(output string) (string, error) {
	m := versions.FindStringSubmatch(output)
	if m == nil {
		return "", fmt.Errorf("its --version says %q", output)
	}
	return m[1] + " " + m[2], nil
}

// test runs the tests of packages with the server in dir, and returns those that have failed.
func test(ctx context.Context, root, dir string, packages []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1", "-timeout=20m"}, packages...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return nil, errors.Join(err, ctx.Err())
	}
	failed, output := failures(out)
	_, _ = os.Stderr.WriteString(output)
	if err != nil && len(failed) == 0 {
		return nil, err
	}
	return failed, nil
}

// failures returns which tests have failed, of what go test -json writes, and what these tests have written. If a test
// has failed in parts, it counts once. A package that fails without a test counts as well.
func failures(jsonLines []byte) (failed []string, output string) {
	type event struct{ Action, Package, Test, Output string }
	wrote := map[[2]string]string{}
	failed = []string{}
	lines := bufio.NewScanner(bytes.NewReader(jsonLines))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the compiler writes otherwise
		}
		name, _, _ := strings.Cut(e.Test, "/")
		key := [2]string{e.Package, name}
		if wrote[key] += e.Output; e.Action != "fail" || e.Test != name {
			continue
		}
		if name == "" {
			if len(failed) > 0 {
				continue // a test of it has
			}
			name = e.Package
		}
		failed = append(failed, name)
		output += wrote[key]
	}
	return failed, output
}

//go:embed compatibility.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page returns docs/compatibility.md.
func page(all []result) []byte {
	var rows strings.Builder
	row := func(name, date string, r result) {
		fmt.Fprintf(&rows, "\n| %s | %s |", name, date)
		for _, g := range groups {
			failed, run := r.Failed[g.name]
			switch {
			case !run:
				rows.WriteString(" not run |")
			case len(failed) == 0:
				rows.WriteString(" passed |")
			default:
				fmt.Fprintf(&rows, " failed: %s |", strings.Join(failed, ", "))
			}
		}
	}
	for _, name := range wanted {
		known := slices.Collect(func(yield func(result) bool) {
			for _, r := range all {
				if strings.HasPrefix(r.Server+".", name+".") && !yield(r) {
					return
				}
			}
		})
		for _, r := range known {
			row(r.Server, r.Date, r)
		}
		if len(known) == 0 {
			row(name, "", result{})
		}
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, rows.String()); err != nil {
		panic(err) // the template does not fit
	}
	return b.Bytes()
}
