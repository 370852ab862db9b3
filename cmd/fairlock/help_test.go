//go:build unix

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

// shown is what the command writes to stdout that needs no server, in this process.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	cmd := root(new(bool))
	cmd.SetArgs(args)
	cmd.SetOut(&out)
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
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(f.dir, name+".1"))
		require.NoError(t, err)
		return string(text)
	}
	for _, cmd := range append(root(new(bool)).Commands(), root(new(bool))) {
		if !cmd.Hidden && cmd.Name() != "help" {
			text := page(strings.ReplaceAll(cmd.CommandPath(), " ", "-"))
			assert.Contains(t, text, cmd.Short)
			assert.Contains(t, text, "Jan 1970")
		}
	}
	assert.Contains(t, page("fairlock-exit-codes"), ".EX\n0        done\n", "a table stays one")
	f.refused(f.call("man", "/no/such/dir"), exitFailure, "no such file")
	f = f.with("SOURCE_DATE_EPOCH=x")
	f.refused(f.call("man", f.dir), exitFailure, "SOURCE_DATE_EPOCH")
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

// A mistake is one line and exit code 2, and nothing is sent to Redis.
func TestUsage(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("n", 1025)
	t.Cleanup(func() { // after the parallel ones
		require.Empty(t, f.redis().Keys(t.Context(), f.namespace+":*").Val())
	})
	for words, why := range map[string]string{
		"dmeo":                                     `unknown command "dmeo"; did you mean demo?`,
		"help dmeo":                                "no help",
		"connection dmeo":                          `unknown command "dmeo"`,
		"completion bsh":                           `unknown command "bsh"; did you mean bash`,
		"--redis redis://h completion bsh":         `"bsh"`,
		"completion --colour":                      "--colour",
		"--colour":                                 "--colour",
		"man":                                      "arg",
		"run x true":                               "no CMD",
		"run x --":                                 "no CMD",
		"run -- true":                              "want the NAME",
		"run x y -- true":                          "want the NAME",
		"run x --ttl soon -- true":                 "--ttl",
		"run x --ttl 10ms -- true":                 "--ttl",
		"run x --ttl 9999h -- true":                "--ttl",
		"run x --wait 0 -- true":                   "--wait",
		"run x --wait -1s -- true":                 "--wait",
		"run x --try --wait 1s -- true":            "--wait",
		"run x --grace -1s -- true":                "--grace",
		"run x --grace 6s -- true":                 "half of --ttl, 5s",
		"run x --kind spinlock -- true":            "spinlock",
		"run x --permits 3 -- true":                "--kind semaphore",
		"run x --take 3 -- true":                   "--kind semaphore",
		"run x --kind semaphore -- true":           "--permits",
		"run x --kind semaphore --permits 0 -- a":  "--permits",
		"run x --kind semaphore --permits -1 -- a": "--permits",
		"run x --kind semaphore --permits 2 --take 3 -- true": "--take",
		"run x --kind semaphore --permits 2 --take 0 -- true": "--take",
		"run x --read -- true":                                "--kind rw",
		"run " + long + " -- true":                            "1 to 1024 bytes",
		"release x":                                           "--force",
		"release x --yes":                                     "--force",
		"release x --force":                                   "--yes",
		"release --force --yes":                               "NAME",
		"release x y --force --yes":                           "NAME",
		"release x --force --yes --kind spinlock":             "spinlock",
		"release " + long + " --force --yes":                  "1 to 1024 bytes",
		"status":                                              "NAME",
		"status x --kind spinlock":                            "spinlock",
		"status x --namespace {":                              "--namespace",
		"list x":                                              "unknown command",
		"list --json=perhaps":                                 "--json",
		"list --namespace " + strings.Repeat("n", 257):        "256 bytes",
		"watch --interval 1ms":                                "at least 100ms",
		"watch x --prefix y":                                  "--prefix",
		"watch x " + long:                                     "1 to 1024 bytes",
		"doctor extra":                                        "extra",
		"doctor --namespace a{b":                              "Namespace",
		"bench --kind spinlock":                               "kind",
		"bench --permits 5":                                   "--kind semaphore",
		"bench --duration 99ms":                               "at least 100ms",
		"bench --namespace a{b":                               "invalid Namespace",
		"demo extra":                                          "extra",
		"demo --clients 2":                                    "clients",
		"demo --permits 5":                                    "--kind semaphore",
		"demo --namespace other":                              "--namespace",
		"demo --redis redis://h?cluster=true":                 "single server",
	} {
		t.Run(words, func(t *testing.T) {
			f := f.in(t)
			f.refused(f.call(strings.Fields(words)...), exitUsage, why)
		})
	}
	f.refused(f.call("run", "", "--", "true"), exitUsage, "1 to 1024 bytes")
	for _, inner := range []string{"demo-client", guardName, cmdName} {
		r := f.call(inner)
		require.Equal(t, exitFailure, r.code)
		require.Regexp(t, `^fairlock: .*started by [^\n]+\n$`, r.errs)
	}
}
