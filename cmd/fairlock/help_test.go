//go:build unix

package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/usage.txt anew")

// shown is what the command writes to stdout that needs no server, in this process.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	cmd := root(new(bool))
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	require.NoError(t, cmd.Execute(), args)
	return out.String()
}

func TestHelp(t *testing.T) {
	f := newFixture(t)
	all := f.done()
	require.Equal(t, all, f.done("--help"))
	require.Equal(t, f.done("help", "run"), shown(t, "run", "--help"))
	for _, cmd := range root(new(bool)).Commands() {
		help := shown(t, "help", cmd.Name())
		assert.Contains(t, help, strings.TrimSpace(cmd.Long))
		for line := range strings.Lines(help) {
			assert.LessOrEqual(t, len([]rune(line)), 160, "wider than a wide terminal: %s", line)
		}
		switch {
		case cmd.Hidden:
			assert.NotContains(t, all, cmd.Name()+" ")
		case !cmd.IsAdditionalHelpTopicCommand() && cmd.Name() != "help":
			assert.Contains(t, help, "Examples:\n  fairlock "+cmd.Name())
			assert.Equal(t, help, shown(t, cmd.Name(), "--help"))
			assert.Contains(t, all, cmd.Short)
		}
	}
	codes := shown(t, "help", "exit-codes")
	for _, code := range []int{0, exitFailure, exitUsage, exitUnreachable, exitBusy, exitLost, exitTimeout, exitCannotRun, exitNotFound} {
		assert.Regexp(t, fmt.Sprintf(`(?m)^    %d  +\w`, code), codes)
	}
	variables := shown(t, "help", "environment")
	for _, name := range []string{envRedis, envPassword, envNamespace, envName, envFence, envToken} {
		assert.Contains(t, variables, "    "+name+" ")
	}
}

func TestHelp_ManualPages(t *testing.T) {
	f := newFixture(t).with("SOURCE_DATE_EPOCH=86400")
	require.Equal(t, result{}, f.call("man", f.dir))
	for _, cmd := range append(root(new(bool)).Commands(), root(new(bool))) {
		if !cmd.Hidden && cmd.Name() != "help" {
			page, err := os.ReadFile(filepath.Join(f.dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
			require.NoError(t, err)
			assert.Contains(t, string(page), cmd.Short)
			assert.Contains(t, string(page), "Jan 1970")
			assert.Equal(t, cmd.Name() == "exit-codes", strings.Contains(string(page), ".EX\n0        done\n"), "a table stays one")
		}
	}
	refused(t, f.call("man", "/no/such/dir"), exitFailure, "no such file")
	f = f.with("SOURCE_DATE_EPOCH=x")
	refused(t, f.call("man", f.dir), exitFailure, "SOURCE_DATE_EPOCH")
}

func TestHelp_Completion(t *testing.T) {
	for _, shell := range []string{"zsh", "fish", "powershell"} {
		require.Contains(t, shown(t, "completion", shell), "fairlock")
	}
	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(newFixture(t).done("completion", "bash"))
	require.NoError(t, check.Run())
	for typed, want := range map[string]string{
		"st":                "status",
		"run --kind ":       "semaphore",
		"release x --kind ": "rw",
		"help exit":         "exit-codes",
		"help completion z": "zsh",
		"run x --pass":      "--pass-redis",
		"status --namespac": "--namespace",
		"completion ":       "fish",
	} {
		have := shown(t, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(typed, " ")...)...)
		require.Contains(t, strings.Fields(have), want, typed)
	}
}

// A mistake is one line and exit code 2, and nothing is sent to Redis. testdata/usage.txt has the commands and what they
// say; it is written anew with -update.
func TestUsage(t *testing.T) {
	t.Setenv(envRedis, "unix:///no/such/socket")
	t.Setenv(envPassword, "")
	t.Setenv(envNamespace, "")
	text, err := os.ReadFile("testdata/usage.txt")
	require.NoError(t, err)
	var said strings.Builder
	for line := range strings.Lines(string(text)) {
		words, found := strings.CutPrefix(line, "$ fairlock ")
		if !found {
			continue
		}
		var out, errs strings.Builder
		words = strings.NewReplacer("$LONG", strings.Repeat("n", 1025), "$FILES", files).Replace(words)
		code := run(strings.Fields(words), strings.NewReader("y\n"), &out, &errs)
		refused(t, result{code, out.String(), errs.String()}, exitUsage, "")
		said.WriteString(line + strings.ReplaceAll(errs.String(), files, "$FILES"))
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/usage.txt", []byte(said.String()), 0o600))
	} else {
		require.Equal(t, string(text), said.String())
	}
}

func TestUsage_OfTheProgram(t *testing.T) {
	f := newFixture(t)
	refused(t, f.call("bench", "--namespace", "a{b"), exitUsage, "must not contain braces")
	refused(t, f.call("run", "", "--", "true"), exitUsage, "1 to 1024 bytes")
	refused(t, f.call("--\x1b[31mcolour"), exitUsage, `\x1b[31mcolour`)
	for _, inner := range []string{"demo-client", guardName, cmdName} {
		r := f.call(inner)
		require.Equal(t, exitFailure, r.code)
		require.Regexp(t, `^fairlock: .*started by [^\n]+\n$`, r.errs)
	}
}
