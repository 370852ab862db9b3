package history_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/chaos/history"
	"github.com/fairlock/fairlock-go/fairlock"
)

func TestALiveLeaseIsNotLost(t *testing.T) {
	verdicts := []history.Rule{history.Verdicts}
	both := []history.Rule{history.Verdicts, history.Linear}
	robbed := history.Run{Losses: []history.Loss{loss(5, 6)}}
	tell(t, []tale{
		{name: "denied by Redis", text: first + "10 1 unlock \n 11 1 denied err=no_longer_the_owner", broken: both},
		{name: "denied without a reason", text: first + "10 1 unlock \n 11 1 denied", broken: both},
		{name: "denied when it is over", text: first + "10 1 unlock \n 1000 1 denied err=no_longer_the_owner"},
		{
			name: "denied after Redis lost its data", text: first + "10 1 unlock \n 11 1 denied err=no_longer_the_owner",
			run: robbed, rule: history.Verdicts, why: "lost its data",
		},
		{
			name: "denied before Redis lost its data", text: first + "3 1 unlock \n 4 1 denied err=no_longer_the_owner",
			run: robbed, rule: history.Verdicts, broken: both,
		},
		{name: "lost by Redis", text: first + "10 1 lost err=no_longer_the_owner", broken: both},
		{name: "lost when it is over", text: first + "1000 1 lost err=no_longer_the_owner"},
		{name: "lost by its clock when it is over", text: first + "1000 1 lost err=lease_expired"},
		{name: "denied by its clock", text: first + "1001 1 unlock \n 1002 1 denied err=lease_expired"},
		{
			name: "lost by its clock too early", broken: verdicts,
			text: first + "400 1 renewed until=3000 \n 1401 1 lost err=lease_expired",
		},
		{
			name: "denied by its clock too early, and Redis lost its data, which is no excuse", broken: verdicts, run: robbed,
			text: first + "400 1 renewed until=3000 \n 1401 1 unlock \n 1402 1 denied err=lease_expired",
		},
		{
			name: "lost by its clock when a renewal came too late",
			text: first + "1000 1 renewed until=3000 \n 1001 1 lost err=lease_expired",
		},
		{name: "closed", text: first + "10 1 lost err=client_is_closed \n 11 1 unlock \n 12 1 unknown err=client_is_closed"},
		{name: "closed long after", text: first + "400 1 renewed until=3000 \n 1500 1 lost err=client_is_closed"},
		{
			name: "denied after an Unlock of unknown outcome, which has released it", broken: verdicts,
			text: first + "10 1 unlock \n 11 1 unknown \n 12 1 unlock \n 13 1 denied err=no_longer_the_owner",
		},
	})
	assert.Equal(t, "no longer the owner", fairlock.ErrTaken.Error())
	assert.Equal(t, "client is closed", fairlock.ErrClosed.Error())
}

func TestNobodyReleasesWhatAnotherHas(t *testing.T) {
	// The lease of the first is over at 1000, and the second has the lock.
	second := first + "2 2 ask \n 1010 2 granted fence=20 until=2000 \n"
	tell(t, []tale{
		{name: "released when it is over, and nobody has it", text: first + "1010 1 unlock \n 1011 1 released"},
		{
			name: "released when another one has it", text: second + "1011 1 unlock \n 1012 1 released",
			broken: []history.Rule{history.Verdicts, history.Linear},
		},
		{name: "released in the moment", text: second + "1010 1 unlock \n 1012 1 released"},
		{
			name: "released when another one had it", broken: []history.Rule{history.Verdicts, history.Linear},
			text: second + `
				1020 2 unlock
				1021 2 released
				1022 1 unlock
				1023 1 released`,
		},
		{
			name: "released by a second try", broken: nil,
			text: first + `
				10 1 unlock
				20 1 unknown
				2  2 ask
				15 2 granted fence=20 until=1015
				21 1 unlock
				22 1 released`,
		},
		{
			name: "Redis lost its data", rule: history.Verdicts, why: "lost its data",
			text: second + "1011 1 unlock \n 1012 1 released",
			run:  history.Run{Losses: []history.Loss{loss(1005, 1005)}},
		},
		{
			name: "Redis lost its data later", text: second + "1011 1 unlock \n 1012 1 released", rule: history.Verdicts,
			run:    history.Run{Losses: []history.Loss{loss(1011, 1011)}},
			broken: []history.Rule{history.Verdicts, history.Linear},
		},
	})
}
