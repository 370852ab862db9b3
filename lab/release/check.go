package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	xmodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// checker publishes the modules into a folder that the go command takes for a proxy, and uses them from there as their
// users do. Nothing comes from the tree or from the module cache of this machine but modules of others.
type checker struct {
	version string
	dir     string   // temporary
	env     []string // of the go command
}

// check says why a version of the tree cannot be published; nil if it can.
func check(ctx context.Context, tree, version string) (err error) {
	if err := changelog(tree, version); err != nil {
		return err
	}
	c := checker{version: version}
	if c.dir, err = os.MkdirTemp("", "release"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	if err := copyTree(ctx, tree, c.tree()); err != nil {
		return err
	}
	modules, err := published(c.tree())
	if err != nil {
		return err
	}
	if err := pin(modules, version); err != nil {
		return err
	}
	if err := c.setEnv(ctx, modules[0].path()); err != nil {
		return err
	}
	for _, m := range modules {
		began := time.Now()
		if err := c.publish(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.path(), err)
		}
		if err := c.use(ctx, m); err != nil {
			return fmt.Errorf("%s, as its users have it: %w", m.path(), err)
		}
		fmt.Printf("%s@%s can be published (%.0f s); its tag is %s%s\n",
			m.path(), version, time.Since(began).Seconds(), m.tag, version)
	}
	return nil
}

// changelog checks that CHANGELOG.md has the version.
func changelog(tree, version string) error {
	text, err := os.ReadFile(filepath.Join(tree, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	for _, want := range []string{"\n## [" + version[1:] + "] - ", "\n[" + version[1:] + "]: "} {
		if !bytes.Contains(text, []byte(want)) {
			return fmt.Errorf("CHANGELOG.md has no line that begins with %q", strings.TrimPrefix(want, "\n"))
		}
	}
	return nil
}

// copyTree copies what is, or would be, in the repository, with uncommitted changes.
func copyTree(ctx context.Context, tree, to string) error {
	names, err := output(ctx, tree, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		if err := copyFile(filepath.Join(tree, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a regular file. It leaves out a file that is deleted or a link: a module has no links.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// setEnv makes the environment of the go command. Others' modules come from this machine's module cache, or from where
// the go command gets them otherwise. root is the path of the library, with which the paths of all modules begin.
func (c *checker) setEnv(ctx context.Context, root string) error {
	usual, err := output(ctx, c.dir, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return err
	}
	cache, proxies, _ := strings.Cut(strings.TrimSpace(usual), "\n")
	c.env = append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(c.proxy())+",file://"+filepath.ToSlash(cache)+"/cache/download,"+proxies,
		"GOMODCACHE="+filepath.Join(c.dir, "cache"),
		"GOBIN="+filepath.Join(c.dir, "bin"),
		"GONOSUMDB="+root, "GONOPROXY=", "GOPRIVATE=", "GOENV=off",
		"GOWORK=off", "GOFLAGS=-modcacherw", // so that it can be removed
	)
	return nil
}

func (c *checker) tree() string { return filepath.Join(c.dir, "tree") }

func (c *checker) proxy() string { return filepath.Join(c.dir, "proxy") }

// publish packs a module, as a proxy would from its tag, into the folder that stands for one.
func (c *checker) publish(ctx context.Context, m module) error {
	if err := c.goRun(ctx, m.dir, "mod", "tidy"); err != nil { // the sums of the modules that were published before
		return err
	}
	escaped, err := xmodule.EscapePath(m.path())
	if err != nil {
		return err
	}
	base := filepath.Join(c.proxy(), filepath.FromSlash(escaped), "@v", c.version)
	if err := copyFile(filepath.Join(m.dir, "go.mod"), base+".mod"); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, c.version, time.Now().UTC().Format(time.RFC3339))
	if err := os.WriteFile(base+".info", []byte(info), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(base), "list"), []byte(c.version+"\n"), 0o600); err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := zip.CreateFromDir(&packed, xmodule.Version{Path: m.path(), Version: c.version}, m.dir); err != nil {
		return err
	}
	return os.WriteFile(base+".zip", packed.Bytes(), 0o600)
}

// use installs a command and calls it, or has a new module import a library.
func (c *checker) use(ctx context.Context, m module) error {
	if strings.HasPrefix(m.tag, "cmd/") {
		return errors.Join(c.install(ctx, m), c.binaries(ctx, m))
	}
	return c.consume(ctx, m)
}

func (c *checker) install(ctx context.Context, m module) error {
	if err := c.goRun(ctx, c.dir, "install", m.path()+"@"+c.version); err != nil {
		return err
	}
	command := filepath.Join(c.dir, "bin", path.Base(m.path()))
	says, err := output(ctx, c.dir, command, "version")
	if err == nil && !strings.Contains(says, c.version) {
		err = fmt.Errorf("%s version does not say %s, but: %s", path.Base(command), c.version, says)
	}
	return err
}

// binaries builds what is attached to a release, as the workflow does it: in a clone at the command's tag.
func (c *checker) binaries(ctx context.Context, m module) error {
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "release"},
		{"tag", m.tag + c.version}} {
		args = append([]string{"-c", "user.name=release", "-c", "user.email=release@example.com"}, args...)
		if _, err := output(ctx, c.tree(), "git", args...); err != nil {
			return err
		}
	}
	build := exec.CommandContext(ctx, "bash", ".ci/binaries", c.version)
	build.Env = c.env
	if _, err := outputOf(build, c.tree()); err != nil {
		return err
	}
	sums := exec.CommandContext(ctx, "sha256sum", "--check", "--strict", "SHA256SUMS")
	checked, err := outputOf(sums, filepath.Join(c.tree(), "dist"))
	if err == nil && strings.Count(checked, ": OK\n") != 6 {
		err = fmt.Errorf("not five programs and an SBOM, but: %s", checked)
	}
	return err
}

// consume makes a module that imports each public package of m, and runs its examples there. Each must have one.
func (c *checker) consume(ctx context.Context, m module) error {
	dir := filepath.Join(c.dir, "consumer", filepath.FromSlash(m.path()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := c.goRun(ctx, dir, "mod", "init", "example.com/consumer"); err != nil {
		return err
	}
	if err := c.goRun(ctx, dir, "get", m.path()+"@"+c.version); err != nil {
		return err
	}
	list, err := c.goOutput(ctx, dir, "list", "-mod=mod", "-f", "{{if .GoFiles}}{{.ImportPath}} {{.Dir}}{{end}}", m.path()+
		"/...")
	if err != nil {
		return err
	}
	imports, found := "package consumer\n", 0
	for line := range strings.Lines(list) {
		pkg, source, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(pkg+"/", "/internal/") {
			continue
		}
		imports += fmt.Sprintf("import _ %q\n", pkg)
		examples, err := filepath.Glob(filepath.Join(source, "example*_test.go"))
		if err != nil {
			return err
		}
		for _, example := range examples {
			found++
			if err := copyFile(example, filepath.Join(dir, path.Base(pkg), filepath.Base(example))); err != nil {
				return err
			}
		}
	}
	if found == 0 {
		return errors.New("it has no examples")
	}
	if err := os.WriteFile(filepath.Join(dir, "consumer.go"), []byte(imports), 0o600); err != nil {
		return err
	}
	if err := c.goRun(ctx, dir, "mod", "tidy"); err != nil {
		return err
	}
	if err := c.goRun(ctx, dir, "build", "./..."); err != nil {
		return err
	}
	// vet knows what an example is of only beside its package
	return c.goRun(ctx, dir, "test", "-count=1", "-vet=off", "./...")
}

func (c *checker) goRun(ctx context.Context, dir string, args ...string) error {
	_, err := c.goOutput(ctx, dir, args...)
	return err
}

func (c *checker) goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = c.env
	return outputOf(cmd, dir)
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	return outputOf(exec.CommandContext(ctx, name, args...), dir)
}

// outputOf returns what a command prints. The error has everything that it printed.
func outputOf(cmd *exec.Cmd, dir string) (string, error) {
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}
