package history_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
)

func TestTwoOwnersThatNobodySees(t *testing.T) {
	// The first one's process is killed at 30, or its client closed: it believes no more, and Redis keeps its lease.
	linear := []history.Rule{history.Linear}
	killed := history.Run{Kills: []history.Span{span(1, 30, 31)}}
	second := "\n 2 2 ask \n 50 2 granted fence=20 until=1050"
	tell(t, []tale{
		{
			name: "granted to another one before the lease of a dead one ended", text: first + second,
			run: killed, broken: linear,
		},
		{name: "granted after that", text: first + "2 2 ask \n 1000 2 granted fence=20 until=2000", run: killed},
		{
			name: "granted before a renewed lease of a dead one ended", broken: linear,
			run:  history.Run{Kills: []history.Span{span(1, 500, 501)}},
			text: first + "400 1 renewed until=1390 \n 2 2 ask \n 1000 2 granted fence=20 until=2000",
		},
		{name: "granted after an Unlock that a dead one began", text: first + "29 1 unlock" + second, run: killed},
		{
			name: "granted after Redis lost its data", text: first + second,
			run: history.Run{Kills: killed.Kills, Losses: []history.Loss{loss(40, 50)}},
		},
		{
			name: "granted after Redis lost its data, and before it did again", text: first + second,
			run: history.Run{Kills: killed.Kills, Losses: []history.Loss{loss(900, 900), loss(40, 50)}},
		},
		{
			name: "granted before Redis lost its data", text: first + second, broken: linear,
			run: history.Run{Kills: killed.Kills, Losses: []history.Loss{loss(50.1, 60)}},
		},
		{
			name: "granted before the lease of a closed one ended",
			text: first + "30 1 lost err=client_is_closed" + second, broken: linear,
		},
		{
			name: "granted to a third when the second was dead", broken: linear,
			text: first + "40 1 unlock \n 41 1 released" + second + "\n 60 3 ask \n 70 3 granted fence=30 until=1070",
			run:  history.Run{Kills: []history.Span{span(2, 51, 52)}},
		},
	})
}

func TestAnUnknownOutcomeExplainsWhatItCan(t *testing.T) {
	linear := []history.Rule{history.Linear}
	second := "\n 2 2 ask \n 50 2 granted fence=20 until=1050"
	tell(t, []tale{
		{name: "an Unlock of unknown outcome", text: first + "49 1 unlock \n 60 1 unknown" + second},
		{
			name: "an Unlock without an answer", text: first + "49 1 unlock" + second,
			run: history.Run{Kills: []history.Span{span(1, 55, 56)}},
		},
		{
			name: "one that began too late", broken: linear,
			text: first + "30 1 lost err=client_is_closed \n 51 1 unlock \n 60 1 unknown err=client_is_closed" + second,
		},
		{
			name: "one that was done at the second try",
			text: first + "48 1 unlock \n 55 1 unknown \n 56 1 unlock \n 57 1 released" + second,
		},
		{
			name: "one whose second try came too late to be the one", broken: linear,
			text: first + `
				30 1 lost err=client_is_closed
				51 1 unlock
				55 1 unknown
				56 1 unlock
				57 1 unknown` + second,
		},
		{
			name: "a Lock that failed need not be explained",
			text: first + `
				49 1 unlock
				50 1 released
				2  2 ask
				60 2 failed
				3  3 ask
				61 3 granted fence=30 until=1000`,
		},
		{
			name: "nor one that never returned", text: first + "2 2 ask \n 3 3 ask",
			run: history.Run{Kills: []history.Span{span(2, 10, 11), span(3, 10, 11)}},
		},
		{
			name: "a Lock that failed explains no denial", broken: []history.Rule{history.Linear, history.Verdicts},
			text: first + "2 2 ask \n 5 2 failed \n 49 1 unlock \n 50 1 denied err=no_longer_the_owner",
		},
	})
}

func TestARenewalNeedsTheLock(t *testing.T) {
	// The second one's lease was renewed by a question that was sent at 700 at the earliest, when the third had the lock.
	text := `
		0   2 ask
		1   2 granted fence=10 until=100
		50  2 renewed until=110
		80  2 lost err=client_is_closed
		80  2 unlock
		81  2 unknown
		500 3 ask
		600 3 granted fence=20 until=610
		900 2 renewed until=1%d
	`
	run := history.Run{TTL: 900 * time.Millisecond}
	judged(t, story(t, fmt.Sprintf(text, 500)), run)
	judged(t, story(t, fmt.Sprintf(text, 501)), run, history.Linear)

	// By a question that was sent at 51 at the earliest, when it was released.
	text = `
		0  1 ask
		1  1 granted fence=10 until=890
		50 1 unlock
		51 1 released
		60 1 renewed until=95%d
	`
	judged(t, story(t, fmt.Sprintf(text, 1)), run)
	judged(t, story(t, fmt.Sprintf(text, 2)), run, history.Linear)
}

// crowd is a history of so many holders, one after the other, 10 ms apart. One of them was killed when it held it,
// under a lease that ends so many ms after the next one has asked, who is granted it 1 ms after that.
func crowd(t *testing.T, n, victim int, until float64) ([]history.Event, history.Run) {
	t.Helper()
	var text strings.Builder
	for i := range n {
		at := float64(i * 10)
		fmt.Fprintf(&text, "%f %d ask \n", at, i)
		if i == victim {
			fmt.Fprintf(&text, "%f %d granted fence=%d until=%f \n", at+1, i, i+1, at+10+until)
			continue
		}
		fmt.Fprintf(&text, "%f %d granted fence=%d until=%f \n", at+1, i, i+1, at+8)
		fmt.Fprintf(&text, "%f %d unlock \n %f %d released \n", at+2, i, at+3, i)
	}
	killed := float64(victim*10 + 5)
	return story(t, text.String()), history.Run{Kills: []history.Span{span(victim, killed, killed)}}
}

func TestALongHistoryIsJudgedAsAWhole(t *testing.T) {
	who := func(i int, what string) string {
		return fmt.Sprintf("process %d worker 0 call 0 (no ticket, fence %d): %s", i, i+1, what)
	}
	for _, victim := range []int{0, 1, 248, 249, 250, 251, 499, 500, 749, 998} {
		events, run := crowd(t, 1000, victim, 1)
		judged(t, events, run)
		events, run = crowd(t, 1000, victim, 1.1)
		report := judged(t, events, run, history.Linear)
		assert.Equal(t, 1, report.Broken[history.Linear])
		require.ErrorContains(t, report.Err(), who(victim, "expires at"))
		require.ErrorContains(t, report.Err(), who(victim+1, "granted by"))
	}
	// A lease of the first piece that lasts into the last one.
	events, run := crowd(t, 1000, 100, 8000)
	run.Pictures = t.TempDir()
	report := judged(t, events, run, history.Linear)
	assert.Equal(t, 4, report.Broken[history.Linear], "in the first piece, and where it is cut")
	for i, then := range []int{250, 500, 750, 101} {
		v := report.Violations[len(report.Violations)-4+i]
		assert.Contains(t, v.Text, who(100, "expires at"))
		assert.Contains(t, v.Text, who(then, "granted by"))
		html, err := os.ReadFile(v.Picture)
		require.NoError(t, err)
		assert.Contains(t, string(html), "process 100 ")
		assert.Contains(t, string(html), fmt.Sprintf("process %d ", then))
	}
}

func TestWhatIsNotDecidedInTimeHasFailed(t *testing.T) {
	report := judged(t, story(t, first), history.Run{Limit: 1}, history.Undecided)
	require.ErrorContains(t, report.Err(), "within 1ns")
}

func TestAContradictionIsDrawn(t *testing.T) {
	dir := t.TempDir()
	events, run := crowd(t, 1000, 249, 5)
	run.Pictures = dir
	report := judged(t, events, run, history.Linear)
	require.NotEmpty(t, report.Violations)
	picture := report.Violations[0].Picture
	require.FileExists(t, picture)
	require.ErrorContains(t, report.Err(), picture)
	html, err := os.ReadFile(picture)
	require.NoError(t, err)
	assert.Contains(t, string(html), "expires, by process 249 ")
	assert.Contains(t, string(html), "granted, by process 250 ")
	assert.NotContains(t, string(html), "process 200 ", "only what is near")

	run.Pictures = dir + "/not there"
	report = judged(t, events, run, history.Linear)
	require.ErrorContains(t, report.Err(), "no such file")

	events, run = crowd(t, 10, 5, 0)
	run.Pictures = t.TempDir()
	judged(t, events, run)
	files, err := os.ReadDir(run.Pictures)
	require.NoError(t, err)
	assert.Empty(t, files, "nothing is wrong")
}
