package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// widest is the length of a line of help, in characters, that a wide terminal bears.
const widest = 160

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	for _, cmd := range root(new(bool)).Commands() {
		r := call(t, "", "help", cmd.Name())
		assert.Equal(t, 0, r.code, cmd.Name())
		assert.Empty(t, r.errs)
		assert.Contains(t, r.out, strings.TrimSpace(cmd.Long))
		for line := range strings.Lines(r.out) {
			assert.LessOrEqual(t, len([]rune(line)), widest, line)
		}
		if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() || cmd.Name() == "help" {
			continue
		}
		assert.Contains(t, r.out, "Examples:\n  fairlock "+cmd.Name())
		assert.Equal(t, r, call(t, "", cmd.Name(), "--help"))
		assert.Contains(t, call(t, "").out, cmd.Short)
	}
}

func TestEveryExitCodeIsExplained(t *testing.T) {
	help := call(t, "", "help", "exit-codes").out
	for _, code := range []int{
		0, exitFailure, exitUsage, exitUnreachable, exitBusy, exitLost, exitTimeout, exitCannotRun, exitNotFound,
	} {
		assert.Regexp(t, fmt.Sprintf(`(?m)^    %d  +\w`, code), help)
	}
	assert.Contains(t, help, "128+n")
}

func TestEveryVariableIsExplained(t *testing.T) {
	help := call(t, "", "help", "environment").out
	for _, name := range []string{envRedis, envPassword, envNamespace, envName, envFence, envToken} {
		assert.Contains(t, help, "    "+name+" ")
	}
}

func TestManualPagesSayWhatTheHelpSays(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		r := begin(t, withEnv(command(t, "", "man", dir), "SOURCE_DATE_EPOCH=86400")).wait()
		require.Equal(t, result{}, r)
	}
	for _, cmd := range append(root(new(bool)).Commands(), root(new(bool))) {
		if cmd.Hidden || cmd.Name() == "help" {
			continue
		}
		page := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		text, err := os.ReadFile(filepath.Join(dirs[0], page))
		require.NoError(t, err)
		assert.Contains(t, string(text), cmd.Short)
		assert.Contains(t, string(text), "Jan 1970")
		again, err := os.ReadFile(filepath.Join(dirs[1], page))
		require.NoError(t, err)
		assert.Equal(t, string(text), string(again))
	}
	text, err := os.ReadFile(filepath.Join(dirs[0], "fairlock-exit-codes.1"))
	require.NoError(t, err)
	assert.Contains(t, string(text), ".EX\n0        done\n", "a table stays one")
	refused(t, call(t, "", "man", "/no/such/dir"), exitFailure, "no such file")
	refused(t, begin(t, withEnv(command(t, "", "man", dirs[0]), "SOURCE_DATE_EPOCH=x")).wait(), exitFailure, "SOURCE_DATE_EPOCH")
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := call(t, "", "completion", shell)
		require.Equal(t, 0, r.code)
		require.Contains(t, r.out, "fairlock")
	}
	script := call(t, "", "completion", "bash").out
	check := exec.Command("bash", "-n")
	check.Stdin = strings.NewReader(script)
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
		r := call(t, "", append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(typed, " ")...)...)
		require.Contains(t, strings.Fields(r.out), want, typed)
	}
}

func TestAPasswordLeavesTheCommandLine(t *testing.T) {
	const safe = "env:" + envRedis
	for line, want := range map[string]string{
		"run x --redis redis://:p@h -- a":      "run x --redis " + safe + " -- a",
		"run x --redis=redis://u:p@h":          "run x --redis=" + safe,
		"--redis rediss://u:p@h status x":      "--redis " + safe + " status x",
		"--redis redis://h?password=p&x=1 run": "--redis " + safe + " run",
		"--redis redis://u:12/p@h run":         "--redis " + safe + " run",
		"run x --redis redis://u@h":            "",
		"run x --redis redis://h:6379":         "",
		"run x --redis env:URL":                "",
		"run x -- a --redis redis://:p@h":      "",
		"run redis://:p@h":                     "",
		"run --redis":                          "",
	} {
		args := append([]string{"fairlock"}, strings.Fields(line)...)
		before := strings.Join(args, " ")
		cleaned, env, found := withoutPassword(args, []string{"A=1", envRedis + "=old"})
		require.Equal(t, want != "", found, line)
		require.Equal(t, before, strings.Join(args, " "))
		if found {
			require.Equal(t, "fairlock "+want, strings.Join(cleaned, " "))
			require.Len(t, env, 2)
			require.NotContains(t, env, envRedis+"=old")
		}
	}
}
