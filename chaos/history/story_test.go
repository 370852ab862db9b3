package history_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// dawn is when stories begin, in ms.
const dawn = 1_000_000

// at is a time of a story.
func at(ms float64) int64 { return int64((dawn + ms) * 1e6) }

func span(process int, from, to float64) history.Span {
	return history.Span{Process: process, From: at(from), To: at(to)}
}

func loss(from, to float64) history.Loss { return history.Loss{From: at(from), To: at(to)} }

// story reads a history for people: a line is an event, "<ms> <process>[/<call>] <op> [key=value]…", with the keys
// until (ms), fence, ticket, lock ("x" if none), token (one for the call if none), worker and err. Its order is that of
// the lines.
func story(t *testing.T, text string) []history.Event {
	t.Helper()
	var events []history.Event
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		require.GreaterOrEqual(t, len(words), 3, line)
		ms, err := strconv.ParseFloat(words[0], 64)
		require.NoError(t, err, line)
		process, call, _ := strings.Cut(words[1], "/")
		e := history.Event{At: at(ms), Op: history.Op(words[2]), Lock: "x"}
		e.Process, err = strconv.Atoi(process)
		require.NoError(t, err, line)
		if call != "" {
			e.Call, err = strconv.Atoi(call)
			require.NoError(t, err, line)
		}
		if e.Op != history.Ask {
			e.Token = token(words[1])
		}
		for _, word := range words[3:] {
			key, value, _ := strings.Cut(word, "=")
			switch n, _ := strconv.ParseUint(value, 10, 64); key {
			case "until":
				ms, err := strconv.ParseFloat(value, 64)
				require.NoError(t, err, line)
				e.Until = at(ms)
			case "fence":
				e.Fence = n
			case "ticket":
				e.Ticket = n
			case "worker":
				e.Worker = int(n)
			case "lock":
				e.Lock = value
			case "token":
				e.Token = value
			case "err":
				e.Err = strings.ReplaceAll(value, "_", " ")
			default:
				require.Fail(t, "no such key", line)
			}
		}
		events = append(events, e)
	}
	return events
}

// token is that of a call in a story.
func token(call string) string { return fmt.Sprintf("p:%022s", call) }

// judged checks a history, and asserts that these rules are broken and no other.
func judged(t *testing.T, events []history.Event, run history.Run, broken ...history.Rule) *history.Report {
	t.Helper()
	report := history.Check(events, run)
	assert.ElementsMatch(t, broken, slices.Collect(maps.Keys(report.Broken)), "%v\n%v", report, report.Err())
	if len(broken) == 0 {
		require.NoError(t, report.Err())
	} else {
		require.Error(t, report.Err())
	}
	return report
}

// exempted asserts that a rule was not applied so often for a reason that has this in it, and for no other.
func exempted(t *testing.T, report *history.Report, rule history.Rule, times int, why string) {
	t.Helper()
	for reason, n := range report.Exempted[rule] {
		assert.Contains(t, reason, why)
		assert.Equal(t, times, n, reason)
	}
	assert.Len(t, report.Exempted[rule], 1)
}

// tale is a case of a table: a story, what the run did, and what is broken.
type tale struct {
	name   string
	text   string
	run    history.Run
	broken []history.Rule
	why    string // not judged once, of the first broken rule, or of rule
	rule   history.Rule
}

func tell(t *testing.T, tales []tale) {
	t.Helper()
	for _, tale := range tales {
		t.Run(tale.name, func(t *testing.T) {
			report := judged(t, story(t, tale.text), tale.run, tale.broken...)
			if tale.why != "" {
				exempted(t, report, tale.rule, 1, tale.why)
			} else if tale.rule != "" {
				assert.Empty(t, report.Exempted[tale.rule])
			}
		})
	}
}
