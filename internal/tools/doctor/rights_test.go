package doctor

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/script"
)

// senders are the commands of fairlock for operators that send each verb. Programs that lock send every verb.
var senders = map[string][]string{
	"acquire": nil, "renew": nil, "leave": nil, "resume": nil,
	"inspect":       {"status", "list", "watch", "ui"},
	"force_release": {"release"},
	"release":       {"release"}, // of one holder
	"heartbeat":     {"release"}, // admits the waiters that one release has not served
	"resize":        {"resize"},
}

var calls = regexp.MustCompile(`call\('(\w+)'`)

// The rights for each purpose are those to the commands that its scripts call, and to those that send the scripts. A
// new verb needs a row in senders. A new command of an operator needs a place in the texts that say what the rights are
// for.
func TestRights_FollowTheScripts(t *testing.T) {
	scripts := map[Purpose][]string{Use: {"eval", "evalsha", "subscribe", "ping"}, Look: {"eval_ro", "evalsha_ro", "scan"},
		Operate: {"eval", "evalsha", "scan"}}
	purposeOf := func(command string) Purpose {
		if slices.Contains(senders["inspect"], command) {
			return Look
		}
		return Operate
	}
	verbs := map[string]bool{}
	for _, source := range script.Sources() {
		text := source.Text
		var commands []string
		for _, m := range calls.FindAllStringSubmatch(text, -1) {
			commands = append(commands, strings.ToLower(m[1]))
		}
		require.NotEmpty(t, commands, text)
		scripts[Use] = append(scripts[Use], commands...)
		verb := source.Verb
		if verb == "" {
			continue
		}
		verbs[verb] = true
		for _, command := range senders[verb] {
			scripts[Operate] = append(scripts[Operate], commands...)
			if purposeOf(command) == Look {
				scripts[Look] = append(scripts[Look], commands...)
			}
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(verbs)), slices.Collect(maps.Keys(senders)), "senders has each verb")
	for _, purpose := range Purposes {
		want := slices.Compact(slices.Sorted(slices.Values(scripts[purpose])))
		assert.ElementsMatch(t, want, needsOf(purpose, "fairlock", false).commands, "the rights to %s", purpose)
	}

	guide, err := os.ReadFile("../../../docs/operating.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(guide), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n```\n")
	section = strings.ReplaceAll(strings.Join(strings.Fields(section), " "), "[the page]", "`ui`")
	for verb, commands := range senders {
		for _, command := range commands {
			purpose := purposeOf(command)
			assert.Regexp(t, `\b`+command+`\b`, purpose.Commands(), "%s sends %s", command, verb)
			assert.Regexp(t, "[` ]"+command+"`", section, "docs/operating.md, Rights: %s sends %s", command, verb)
		}
	}
}
