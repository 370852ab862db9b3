// Command mutants breaks the code in each of the ways that mutants.txt lists, one at a time, and prints what finds it.
// It fails if that does not notice. Nothing is changed in the tree: the Go command compiles a broken copy of one file
// in its place (-overlay).
//
//	go run ./lab/mutants                  # all
//	go run ./lab/mutants -run fence       # some
//	go run ./lab/mutants -timeout 10m     # a slow machine
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed mutants.txt
var list string

// mutant is one way to break the code: in a file, new stands in the place of old. by says what finds it.
type mutant struct{ name, file, by, old, new string }

// tier is the tests of some packages, or some of their tests: what go test is to run.
type tier struct {
	args  []string
	sound func() error // whether they pass without a mutant; that run also compiles what does not change
}

var (
	states  = newTier("-run=^TestStates$", "./lab/states")
	scripts = newTier("./internal/script")
	unit    = newTier("./fairlock", "./internal/wait", "./internal/hold", "./internal/call", "./internal/task",
		"./internal/dispatch", "./internal/script", "./token", "./leader")
)

var errUnsound = errors.New("fails without a mutant")

func newTier(args ...string) *tier {
	t := &tier{args: args}
	t.sound = sync.OnceValue(func() error {
		test, out, err := t.finds("")
		if test != "" {
			err = fmt.Errorf("%v: %s %w:\n%s", args, test, errUnsound, out)
		}
		return err
	})
	return t
}

// timeout is that of go test, which begins when the tests are compiled. A test that hangs has noticed the mutant.
var timeout = flag.Duration("timeout", 90*time.Second, "how long the tests of one package may run for one mutant")

func main() {
	pattern := flag.String("run", "", "only mutants whose name matches this regular expression")
	flag.Parse()
	if err := run(*pattern); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(pattern string) error {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	all, err := parse(list)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !match.MatchString(m.name) })
	if len(all) == 0 {
		return fmt.Errorf("no mutant matches %q", pattern)
	}
	fmt.Println("| mutant | found by | in | seconds |\n|---|---|---|---|")
	var (
		next atomic.Int64
		mu   sync.Mutex
		errs []error // guarded by mu
		wg   sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) { // most of what a tier does keeps one processor busy
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				found, err := all[i].try()
				mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", all[i].name, err))
				}
				fmt.Printf("| %s | %s |\n", all[i].name, found)
				mu.Unlock()
				if errors.Is(err, errUnsound) {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// parse reads the list. Its first lines describe the form.
func parse(text string) (all []mutant, err error) {
	for _, block := range strings.Split(text, "\n== ")[1:] {
		head, rest, ok := strings.Cut(block, "\n<<<\n")
		lines := strings.Split(head, "\n")
		before, after, ok2 := strings.Cut(rest, "\n---\n")
		after, _, ok3 := strings.Cut("\n"+after, "\n>>>")
		if !ok || len(lines) != 3 || !ok2 || !ok3 {
			return nil, fmt.Errorf("mutants.txt: %q is malformed", lines[0])
		}
		all = append(all, mutant{lines[0], lines[1], lines[2], before, strings.TrimPrefix(after, "\n")})
	}
	return all, nil
}

// history is the first that breaks a rule, for a kind of lock.
var history = regexp.MustCompile(`(?m)^\s+states_test.go:\d+: (.*) in (\d+) steps: rule (\w+): `)

// try runs what finds the mutant, and returns the rest of a line of the table.
func (m mutant) try() (string, error) {
	overlay, remove, err := m.overlay()
	if err != nil {
		return "", err
	}
	defer remove()
	if dir := filepath.Dir(m.file); filepath.Ext(m.file) == ".go" { // a test parses those of scripts
		if out, err := exec.Command("go", "build", "-overlay", overlay, "./"+dir).CombinedOutput(); err != nil {
			return "", fmt.Errorf("does not compile: %s", out)
		}
	}
	t, rule := unit, ""
	switch {
	case strings.HasPrefix(m.by, "states "):
		t, rule = states, strings.TrimPrefix(m.by, "states ")
	case filepath.Ext(m.file) == ".lua":
		t = scripts
	}
	if err := t.sound(); err != nil {
		return "", err
	}
	began := time.Now()
	test, out, err := t.finds(overlay)
	if err != nil || test == "" {
		return "nothing | | ", errors.Join(err, errors.New("it was not noticed"))
	}
	by := test
	if rule != "" {
		by = ""
		for _, found := range history.FindAllStringSubmatch(string(out), -1) {
			if found[3] == rule && !strings.Contains(by, found[1]) {
				by += fmt.Sprintf("%s in %s steps, ", found[1], found[2])
			}
		}
		if by == "" {
			return "nothing | | ", fmt.Errorf("the rule %q was not broken: %s", rule, out)
		}
	}
	return fmt.Sprintf("%s | %s | %.0f", m.by, strings.TrimSuffix(by, ", "), time.Since(began).Seconds()), nil
}

// overlay writes the broken file and the description of it that go build wants.
func (m mutant) overlay() (name string, remove func(), err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", nil, err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return "", nil, fmt.Errorf("the text to replace occurs %d times in %s", n, m.file)
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", nil, err
	}
	broken, name := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(m.file)
	if err == nil {
		err = os.WriteFile(broken, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o600)
	}
	if err == nil {
		var replace []byte
		replace, err = json.Marshal(map[string]map[string]string{"Replace": {original: broken}})
		err = errors.Join(err, os.WriteFile(name, replace, 0o600))
	}
	return name, func() { _ = os.RemoveAll(dir) }, err
}

var (
	failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	ended  = regexp.MustCompile(`(?m)^FAIL\t\S+\t[\d.]+s$`) // the line of a package whose tests have run
)

// finds runs the tests of a tier, and returns the first that failed, or "", and what they printed. It is an error if
// they did not run: they did not compile, for example.
func (t *tier) finds(overlay string) (test string, out []byte, err error) {
	args := []string{"test", "-v", "-count=1", "-vet=off", "-failfast", "-timeout", timeout.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	out, err = exec.Command("go", append(args, t.args...)...).CombinedOutput()
	if err == nil {
		return "", out, nil
	}
	if match := failed.FindSubmatch(out); match != nil {
		return string(match[1]), out, nil
	}
	if !ended.Match(out) {
		return "", out, fmt.Errorf("the tests did not run: %w: %s", err, out)
	}
	return "a test that hangs or panics", out, nil
}
