package history_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// first holds the lock from 1 to 50 ms, and would to 1000.
const first = `
0  1 ask
1  1 granted fence=10 until=1000
`

func TestBeliefsMustNotOverlap(t *testing.T) {
	overlap := []history.Rule{history.Exclusion, history.Linear}
	second := "\n 2 2 ask \n 50 2 granted fence=20 until=1050"
	tell(t, []tale{
		{name: "one after the other", text: first + "49 1 unlock \n 51 1 released" + second},
		{name: "unlocked in the moment", text: first + "50 1 unlock \n 51 1 released" + second},
		{name: "unlocked a moment later", text: first + "50.000001 1 unlock \n 51 1 unknown" + second, broken: overlap},
		{name: "never unlocked", text: first + second, broken: overlap},
		{
			name: "never unlocked, and over", text: first + "\n 2 2 ask \n 1000 2 granted fence=20 until=2000",
		},
		{
			name: "renewed", text: first + "400 1 renewed until=1400 \n 2 2 ask \n 1000 2 granted fence=20 until=2000",
			broken: overlap,
		},
		{
			name: "renewed, as told when it was used", broken: overlap,
			text: first + "400 1 used until=1400 \n 2 2 ask \n 1000 2 granted fence=20 until=2000",
		},
		{
			name: "lost before", text: first + "49 1 lost err=no_longer_the_owner" + second,
			run: history.Run{Losses: []history.Loss{loss(48, 48)}},
		},
		{
			name: "stopped, which ends no belief", text: first + second, broken: overlap,
			run: history.Run{Stops: []history.Span{span(1, 10, 900)}},
		},
		{
			name: "killed, which does: but Redis does not know that",
			text: first + second, broken: []history.Rule{history.Linear},
			run: history.Run{Kills: []history.Span{span(1, 50, 51)}},
		},
		{
			name: "killed a moment later", text: first + second, broken: overlap,
			run: history.Run{Kills: []history.Span{span(1, 50.000001, 51)}},
		},
		{
			name: "told of the grant when it was over: there is no belief",
			text: "0 1 ask \n 1 2 ask \n 1010 2 granted fence=20 until=2000 \n 1020 1 granted fence=10 until=1000",
		},
		{
			name: "two locks", text: first + "\n 2 2 ask lock=y \n 50 2 granted lock=y fence=20 until=1050",
		},
		{
			name: "Redis lost its data in between", text: first + second,
			run:  history.Run{Losses: []history.Loss{loss(48, 50)}},
			rule: history.Exclusion, why: "lost its data",
		},
		{
			name: "Redis lost its data at the earliest when the second was granted it", text: first + second,
			run:  history.Run{Losses: []history.Loss{loss(50, 60)}},
			rule: history.Exclusion, why: "lost its data",
		},
		{
			name: "Redis lost its data at the latest when the first asked", text: first + second,
			run:  history.Run{Losses: []history.Loss{loss(-1, 0)}},
			rule: history.Exclusion, why: "lost its data",
		},
		{
			name: "Redis lost its data later", text: first + second, broken: overlap, rule: history.Exclusion,
			run: history.Run{Losses: []history.Loss{loss(50.000001, 60)}},
		},
		{
			name: "Redis lost its data before", text: first + second, broken: overlap, rule: history.Exclusion,
			run: history.Run{Losses: []history.Loss{loss(-2, -1)}},
		},
		{
			name: "Redis lost the data of another lock", text: first + second, broken: overlap, rule: history.Exclusion,
			run: history.Run{Losses: []history.Loss{{Lock: "y", From: at(48), To: at(50)}}},
		},
		{
			name: "the later one writes first, and Redis lost its data in between",
			rule: history.Exclusion, why: "lost its data",
			text: "0 1 ask \n 20 2 ask \n 21 2 granted fence=20 until=1020 \n 30 1 granted fence=10 until=1000",
			run:  history.Run{Losses: []history.Loss{loss(10, 10)}},
		},
		{
			name: "the third overlaps with the second, and with the first it may",
			text: first + `
				20 2 ask
				21 2 granted fence=20 until=1020
				22 3 ask
				23 3 granted fence=30 until=1023`,
			run:    history.Run{Losses: []history.Loss{loss(10, 10)}},
			broken: overlap,
		},
	})
}

func TestEveryOverlapIsFound(t *testing.T) {
	report := judged(t, story(t, first+`
		2  2 ask
		10 2 granted fence=20 until=20
		3  3 ask
		30 3 granted fence=30 until=40`), history.Run{}, history.Exclusion, history.Linear)
	assert.Equal(t, 2, report.Broken[history.Exclusion], "the second and the third both overlap with the first")
}

func TestALockIsUsedWithinOnesOwnBelief(t *testing.T) {
	use := []history.Rule{history.Use}
	tell(t, []tale{
		{name: "while it is held", text: first + "10 1 used \n 1000 1 used"},
		{name: "after it is over", text: first + "1000.002 1 used", broken: use},
		{name: "after it is over, and was renewed", text: first + "1200 1 used \n 1201 1 renewed until=1900"},
		{
			name: "after it is over, as it says itself",
			text: first + "1200 1 used until=1199 \n 1201 1 renewed until=1900", broken: use,
		},
		{name: "when it begins to unlock", text: first + "10 1 unlock \n 10 1 used \n 11 1 released"},
		{name: "after it has begun to unlock", text: first + "10 1 unlock \n 10.000001 1 used \n 11 1 released", broken: use},
		{
			name: "after it was found to be lost", broken: use,
			text: first + "10 1 lost err=no_longer_the_owner \n 10.000001 1 used",
			run:  history.Run{Losses: []history.Loss{loss(5, 5)}},
		},
		{
			name: "after a stop over its end", text: first + "1100 1 used", broken: use,
			run: history.Run{Stops: []history.Span{span(1, 900, 1099)}},
		},
		{
			name: "after it is over, just before it is killed", text: first + "1100 1 used",
			rule: history.Use, why: "may not have told its last renewal",
			run: history.Run{Kills: []history.Span{span(1, 2000, 2099)}},
		},
		{
			name: "after it is over, and killed a second later", text: first + "1100 1 used", broken: use, rule: history.Use,
			run: history.Run{Kills: []history.Span{span(1, 2000, 2100)}},
		},
	})
}

func TestALockIsUsedWithinNobodyElsesBelief(t *testing.T) {
	// The first is lost without a word to others, and used when the second has it.
	text := first + `
		40 1 unlock
		41 1 unknown
		2  2 ask
		50 2 granted fence=20 until=1050
		60 2 unlock
		61 2 released
	`
	tell(t, []tale{
		{name: "of one who had it", text: text + "55 1 used", broken: []history.Rule{history.Use}},
		{name: "of one who had it, a moment before", text: text + "50 1 used", broken: []history.Rule{history.Use}},
	})
	for _, c := range []struct {
		name string
		ms   string
		n    int
	}{{"before", "50", 1}, {"in it", "55", 2}, {"after", "60", 1}} {
		t.Run(c.name, func(t *testing.T) {
			report := judged(t, story(t, text+c.ms+" 1 used"), history.Run{}, history.Use)
			assert.Equal(t, c.n, report.Broken[history.Use], "%v", report.Err())
		})
	}
	tell(t, []tale{{
		name: "when Redis has lost its data", rule: history.Use, why: "lost its data",
		text: first + "2 2 ask \n 50 2 granted fence=20 until=1050 \n 55 2 unlock \n 56 2 released \n 52 1 used",
		run:  history.Run{Losses: []history.Loss{loss(48, 48)}},
	}})
}
