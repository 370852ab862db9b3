package history_test

import (
	"testing"

	"github.com/fairlock/fairlock-go/chaos/history"
)

func TestFencesAreDistinctAndRise(t *testing.T) {
	both := []history.Rule{history.Fences, history.Linear}
	released := first + "49 1 unlock \n 51 1 released \n"
	tell(t, []tale{
		{name: "higher", text: released + "52 2 ask \n 53 2 granted fence=11 until=1050"},
		{
			name: "the same", text: released + "52 2 ask \n 53 2 granted fence=10 until=1050",
			broken: []history.Rule{history.Fences},
		},
		{name: "lower", text: released + "52 2 ask \n 53 2 granted fence=9 until=1050", broken: both},
		{name: "lower, of one who asked before", text: released + "0 2 ask \n 53 2 granted fence=9 until=1050", broken: both},
		{
			name: "lower, of another lock", text: released + "52 2 ask lock=y \n 53 2 granted lock=y fence=9 until=1050",
		},
		{
			name: "lower, of one who writes late",
			text: "0 2 ask \n 990 1 ask \n 991 1 granted fence=10 until=2000 \n 992 2 granted fence=9 until=980",
		},
		{
			name: "lower, of one who writes late, and asked when the other one had it", broken: both,
			text: "0 1 ask \n 500 1 granted fence=10 until=2 \n 3 2 ask \n 992 2 granted fence=9 until=980",
		},
		{
			name: "lower, of one who writes late, and Redis lost its data",
			text: "0 2 ask \n 20 1 ask \n 21 1 granted fence=10 until=22 \n 30 2 granted fence=9 until=980",
			run:  history.Run{Losses: []history.Loss{loss(10, 10)}},
		},
		{
			name: "lower than that of one between whom nothing is known", broken: both, text: `
				48  1 ask
				50  1 granted fence=30 until=60
				0   2 ask
				200 2 granted fence=20 until=190
				0   3 ask
				100 3 granted fence=10 until=190`,
		},
		{
			name: "lower than that of the last but one", broken: both,
			text: released + `
				52 2 ask
				53 2 granted fence=30 until=1050
				54 2 unlock
				55 2 released
				56 3 ask
				57 3 granted fence=20 until=1057`,
		},
	})
}
