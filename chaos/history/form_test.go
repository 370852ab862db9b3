package history_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
)

func TestALogHasItsForm(t *testing.T) {
	form := []history.Rule{history.Form}
	for name, text := range map[string]string{
		"nothing before ask":            "0 2 queued ticket=5",
		"one ask":                       "0 2 ask \n 1 2 ask",
		"queued after granted":          first + "5 1 queued ticket=5",
		"queued after failed":           "0 2 ask \n 1 2 failed \n 2 2 queued ticket=5",
		"granted after granted":         first + "5 1 granted fence=11 until=1000",
		"granted after failed":          "0 2 ask \n 1 2 failed \n 2 2 granted fence=11 until=1000",
		"failed after granted":          first + "5 1 failed",
		"failed twice":                  "0 2 ask \n 1 2 failed \n 2 2 failed",
		"renewed after failed":          "0 2 ask \n 1 2 failed \n 2 2 renewed until=1000",
		"used before granted":           "0 2 ask \n 1 2 used",
		"lost before granted":           "0 2 ask \n 1 2 lost",
		"unlock before granted":         "0 2 ask \n 1 2 unlock",
		"unlock twice":                  first + "2 1 unlock \n 3 1 unlock",
		"unlock after released":         first + "2 1 unlock \n 3 1 released \n 4 1 unlock",
		"released without unlock":       first + "3 1 released",
		"released twice":                first + "2 1 unlock \n 3 1 released \n 4 1 released",
		"denied without unlock":         first + "1001 1 denied",
		"unknown without unlock":        first + "3 1 unknown",
		"another lock":                  first + "3 1 used lock=y",
		"another worker":                first + "3 1 used worker=7",
		"another token":                 first + "3 1 used token=z",
		"no such op":                    first + "3 1 sleeps",
		"no fence":                      "0 2 ask \n 1 2 granted until=1000",
		"no end of belief":              "0 2 ask \n 1 2 granted fence=11",
		"renewed without end of belief": first + "3 1 renewed",
		"queued without ticket":         "0 2 ask \n 1 2 queued",
	} {
		t.Run(name, func(t *testing.T) {
			// Another lock has something to judge.
			events := append(story(t, text), story(t, "0 9 ask lock=z \n 1 9 granted lock=z fence=1 until=1000")...)
			judged(t, events, history.Run{}, form...)
		})
	}
	judged(t, story(t, `
		0 1 ask
		1 1 queued ticket=5
		2 1 renewed until=1000
		2 1 queued ticket=5
		3 1 granted ticket=5 fence=10 until=1000
		4 1 used
		5 1 renewed until=1100
		6 1 unlock
		7 1 unknown
		8 1 unlock
		9 1 released
		10 1 renewed until=1100`), history.Run{})
}

func TestTheDeadAndTheStoppedWriteNothing(t *testing.T) {
	alive := []history.Rule{history.Alive}
	tell(t, []tale{
		{
			name: "before it is seen to be dead", text: first + "5 1 used",
			run: history.Run{Kills: []history.Span{span(1, 4, 5)}},
		},
		{
			name: "after that", text: first + "5 1 used",
			run: history.Run{Kills: []history.Span{span(1, 3, 4.9)}}, broken: alive,
		},
		{name: "another one is dead", text: first + "5 1 used", run: history.Run{Kills: []history.Span{span(2, 3, 4.9)}}},
		{
			name: "before and after a stop", text: first + "5 1 used \n 6 1 used",
			run: history.Run{Stops: []history.Span{span(1, 5, 6)}},
		},
		{name: "in a stop", text: first + "5 1 used", run: history.Run{Stops: []history.Span{span(1, 4, 6)}}, broken: alive},
		{
			name: "in the second stop", text: first + "5 1 used",
			run: history.Run{Stops: []history.Span{span(1, 2, 3), span(1, 4, 6)}}, broken: alive,
		},
		{name: "in a stop of another one", text: first + "5 1 used", run: history.Run{Stops: []history.Span{span(2, 4, 6)}}},
		{name: "in a silence", text: first + "5 1 used", run: history.Run{Silences: []history.Span{span(1, 4, 6)}}},
	})
}

func TestWhereNothingIsGrantedNothingIsJudged(t *testing.T) {
	judged(t, nil, history.Run{}, history.Nothing)
	judged(t, story(t, "0 1 ask \n 1 1 failed"), history.Run{}, history.Nothing)
}

func TestEventsNeedNotBeSorted(t *testing.T) {
	events := story(t, first+"5 1 used \n 10 1 unlock \n 11 1 released")
	events[0], events[4] = events[4], events[0]
	before := slices.Clone(events)
	judged(t, events, history.Run{})
	assert.Equal(t, before, events, "the caller's events were moved")
}

func TestAReportTellsWhatWasJudged(t *testing.T) {
	run := history.Run{
		Kills: []history.Span{span(9, 1, 2)}, Stops: []history.Span{span(9, 0, 1), span(8, 0, 1)},
		Silences: []history.Span{span(9, 0, 1)}, Losses: []history.Loss{loss(-5, -4)},
	}
	report := judged(t, story(t, first+`
		2   2 ask
		3   2 queued ticket=5
		4   3 ask
		5   3 failed
		40  1 unlock
		41  1 unknown
		42  2 granted ticket=5 fence=20 until=1042
		43  2 used
		44  2 unlock
		45  2 released
		46  4 ask lock=y
		47  4 granted lock=y fence=5 until=1047`), run)
	assert.Equal(t, 2, report.Locks)
	assert.Equal(t, 3, report.Grants)
	assert.Equal(t, 1, report.Handed)
	assert.Equal(t, 2, report.Unknown)
	assert.Equal(t, 1, report.Kills)
	assert.Equal(t, 2, report.Stops)
	assert.Equal(t, 1, report.Silences)
	assert.Equal(t, 1, report.Losses)
	assert.Equal(t, 4, report.Events[history.Ask])
	assert.Equal(t, 3, report.Judged[history.Exclusion])
	assert.Equal(t, 3, report.Judged[history.Fences])
	assert.Equal(t, 1, report.Judged[history.Use])
	assert.Equal(t, 1, report.Judged[history.Tickets])
	assert.Equal(t, 1, report.Judged[history.Verdicts])
	assert.Equal(t, 4, report.Judged[history.Form])
	assert.Equal(t, 6, report.Judged[history.Linear])
	assert.Contains(t, report.String(), "2 locks, 3 grants (1 to who queued), 2 unknown outcomes, 1 kills, 2 stops")
	assert.Contains(t, report.String(), "\nuse: 1 judged")

	var quiet recorder
	assert.True(t, report.Assert(&quiet))
	assert.Equal(t, recorder{logged: 1}, quiet)
}

// recorder counts what a test is told.
type recorder struct{ logged, failed int }

func (r *recorder) Helper()               {}
func (r *recorder) Logf(string, ...any)   { r.logged++ }
func (r *recorder) Errorf(string, ...any) { r.failed++ }

func TestAReportFailsATest(t *testing.T) {
	text := first + "2 2 ask \n"
	for range 30 {
		text += "2000 1 used \n"
	}
	report := judged(t, story(t, text), history.Run{}, history.Use)
	assert.Equal(t, 30, report.Broken[history.Use])
	assert.Len(t, report.Violations, 30)
	v := report.Violations[0]
	assert.Equal(t, "x", v.Lock)
	assert.Equal(t, `use: lock "x": process 1 worker 0 call 0 (no ticket, fence 10) used it at 2.000000 s, `+
		`and its belief ended at 1.000000 s`, v.String())
	require.Len(t, v.Events, 2)
	assert.Equal(t, history.Used, v.Events[0].Op)
	require.ErrorContains(t, report.Err(), "use: 10 more")

	var loud recorder
	assert.False(t, report.Assert(&loud))
	assert.Equal(t, recorder{logged: 1, failed: 1}, loud)
}
