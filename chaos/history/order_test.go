package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// In these stories places last for 600 ms, and leases for 900.
func patient(run history.Run) history.Run {
	run.Patience, run.TTL = 600*time.Millisecond, 900*time.Millisecond
	return run
}

// The first holds the lock from 1 to 500 ms. 2 queues, then 3; 3 is granted it.
const overtaking = `
	0    1 ask
	1    1 granted fence=1000 until=890
	10   2 ask
	11   2 queued ticket=10000
	20   3 ask
	21   3 queued ticket=20000
	500  1 unlock
	502  1 released
	501  3 granted ticket=20000 fence=501000 until=1390
	510  3 unlock
	512  3 released
`

// 3 is granted it before 2, and was told no ticket: the answer was lost, and go-redis asked again.
const resent = `
	10  2 ask
	10  3 ask
	12  2 queued ticket=10000
	34  3 granted fence=20000 until=800
	40  3 unlock
	42  3 released
	41  2 granted ticket=10000 fence=41000 until=900`

var inOrder = "20000 given " + token("3") + " \n 41000 given " + token("2")

const thenGranted = "511 2 granted ticket=10000 fence=511000 until=1400"

func TestNobodyIsGrantedItBeforeWhoCameEarlier(t *testing.T) {
	order := []history.Rule{history.Order}
	tell(t, []tale{
		{
			name: "in order", text: `
				0   1 ask
				1   1 granted fence=1000 until=890
				10  2 ask
				11  2 queued ticket=10000
				20  3 ask
				21  3 queued ticket=20000
				500 1 unlock
				502 1 released
				501 2 granted ticket=10000 fence=501000 until=1390
				510 2 unlock
				512 2 released
				511 3 granted ticket=20000 fence=511000 until=1400`,
		},
		{name: "overtaken", text: overtaking + thenGranted, broken: order},
		{name: "overtaken, and never granted it", text: overtaking, broken: order},
		{
			name: "overtaken by one who found nobody there", broken: order, text: `
				0   1 ask
				1   1 granted fence=1000 until=890
				10  2 ask
				11  2 queued ticket=10000
				500 1 unlock
				502 1 released
				501 3 ask
				503 3 granted fence=502000 until=1390
				510 3 unlock
				512 3 released
				511 2 granted ticket=10000 fence=511000 until=1400`,
		},
		{
			name: "overtaken by one who asked later, and may have been told a ticket", broken: order, text: `
				0   1 ask
				1   1 granted fence=1000 until=890
				10  2 ask
				11  2 queued ticket=10000
				500 1 unlock
				502 1 released
				501 3 ask
				540 3 granted fence=502000 until=1390
				541 3 unlock
				543 3 released
				542 2 granted ticket=10000 fence=542000 until=1400`,
		},
		{
			name: "overtaken by one who had asked before and took no time", broken: order, text: `
				10  2 ask
				10  3 ask
				12  2 queued ticket=10000
				34  3 granted fence=20000 until=800
				40  3 unlock
				42  3 released
				41  2 granted ticket=10000 fence=41000 until=900`,
		},
		{
			name: "overtaken by one who had asked before, and may have been told its ticket", rule: history.Order,
			why: "place of the one who was granted it is not known", text: `
				10  2 ask
				10  3 ask
				12  2 queued ticket=10000
				36  3 granted fence=20000 until=800
				40  3 unlock
				42  3 released
				41  2 granted ticket=10000 fence=41000 until=900`,
		},
		{
			name: "overtaken by one who took no time, and was not told its ticket, which was lower", text: resent,
			run: history.Run{Witness: seen(t, "9000 joins "+token("3")+" 9000 \n 10000 joins "+token("2")+" 10000 \n"+inOrder)},
		},
		{
			name: "overtaken by one who was not told its ticket, which was higher", text: resent,
			broken: []history.Rule{history.Order, history.Server},
			run:    history.Run{Witness: seen(t, "10000 joins "+token("2")+" 10000 \n 11000 joins "+token("3")+" 11000 \n"+inOrder)},
		},
		{
			name: "overtaken by one who had been dropped with a lower ticket", text: resent,
			broken: []history.Rule{history.Order, history.Server},
			run: history.Run{Witness: seen(t, "9000 joins "+token("3")+" 9000 \n 10000 joins "+token("2")+" 10000 \n 11000 dropped "+
				token("3")+" \n"+inOrder)},
			rule: history.Order,
		},
		{
			name: "granted in the microsecond in which the other one came", text: `
				10 2 ask
				10 3 ask
				11 2 queued ticket=10000
				12 3 granted fence=10000 until=800
				40 3 unlock
				42 3 released
				41 2 granted ticket=10000 fence=41000 until=900`,
		},
		{
			name:   "granted before the other one asked, and Redis's clock stepped back",
			broken: []history.Rule{history.Tickets}, text: `
				0   3 ask
				1   3 queued ticket=20000
				2   3 granted ticket=20000 fence=9000 until=890
				3   3 unlock
				5   3 released
				4   2 ask
				6   2 queued ticket=10000
				7   2 granted ticket=10000 fence=11000 until=890`,
		},
		{
			name: "overtaken on another lock only by ticket", text: `
				0   1 ask
				1   1 granted fence=1000 until=890
				10  2 ask lock=y
				11  2 queued lock=y ticket=10000
				20  3 ask
				21  3 queued ticket=20000
				500 1 unlock
				502 1 released
				501 3 granted ticket=20000 fence=501000 until=1390`,
		},
	})
}

func TestWhoMayHaveGoneIsNotJudged(t *testing.T) {
	order := []history.Rule{history.Order}
	gaveUp, killed := "may have given up", "may have been killed"
	kill := func(from float64) history.Run { return history.Run{Kills: []history.Span{span(2, from, from+1)}} }
	// With a deadline for the second.
	until := func(ms string) string { return strings.Replace(overtaking, "2 ask", "2 ask until="+ms, 1) }
	tell(t, []tale{
		{name: "it failed a second later", text: overtaking + "1501 2 failed", rule: history.Order, why: gaveUp},
		{name: "it failed later than that", text: overtaking + "1502 2 failed", broken: order, rule: history.Order},
		{name: "it failed before", text: overtaking + "20 2 failed", rule: history.Order},
		{
			name: "it failed later than that, and was stopped until then",
			text: overtaking + "1502 2 failed", rule: history.Order, why: gaveUp,
			run: history.Run{Stops: []history.Span{span(2, 1400, 1501)}},
		},
		{
			name: "it failed later than that, and was stopped before",
			text: overtaking + "1502 2 failed", broken: order, rule: history.Order,
			run: history.Run{Silences: []history.Span{span(2, 300, 501)}},
		},
		{name: "its ctx had ended", text: until("501") + "502 2 failed", rule: history.Order, why: gaveUp},
		{name: "its ctx ended then", text: until("501.1") + "502 2 failed", broken: order, rule: history.Order},
		{
			name: "its ctx had not ended, but it failed", text: until("5000") + "502 2 failed", rule: history.Order, why: gaveUp,
		},
		{name: "it was killed", text: until("5000"), run: kill(501), rule: history.Order, why: killed},
		{name: "it was killed then", text: until("5000"), run: kill(501.1), broken: order, rule: history.Order},
		{name: "it was killed before", text: until("5000"), run: kill(499), rule: history.Order},
		{
			name: "it was killed, and may have given up before", text: overtaking, run: kill(1501), rule: history.Order,
			why: killed,
		},
		{
			name: "it was killed more than a second later", text: overtaking, run: kill(1502), broken: order,
			rule: history.Order,
		},
		{
			name: "another one was killed", text: overtaking + thenGranted, broken: order, rule: history.Order,
			run: history.Run{Kills: []history.Span{span(4, 300, 301)}},
		},
	})
}

func TestWhoWasSilentIsNotJudged(t *testing.T) {
	order := []history.Rule{history.Order}
	const silent = "silent for too long"
	stops := func(spans ...history.Span) history.Run { return patient(history.Run{Stops: spans}) }
	silences := func(spans ...history.Span) history.Run { return patient(history.Run{Silences: spans}) }
	text := overtaking + thenGranted
	tell(t, []tale{
		{
			name: "stopped for a third, half a patience before", text: text,
			run: stops(span(2, 201, 401)), rule: history.Order, why: silent,
		},
		{
			name: "stopped for a third of a TTL, which is shorter", text: text, rule: history.Order, why: silent,
			run: history.Run{
				TTL: 600 * time.Millisecond, Patience: 900 * time.Millisecond, Stops: []history.Span{span(2, 201, 401)},
			},
		},
		{name: "cut off", text: text, run: silences(span(2, 201, 401)), rule: history.Order, why: silent},
		{
			name: "all were cut off", text: text, run: silences(span(history.Everybody, 201, 401)), rule: history.Order,
			why: silent,
		},
		{
			name: "stopped for less than a third", text: text, run: stops(span(2, 201, 400)), broken: order, rule: history.Order,
		},
		{
			name: "stopped twice, without a beat in between", text: text,
			run: stops(span(2, 201, 300), span(2, 499, 500)), rule: history.Order, why: silent,
		},
		{
			name: "stopped twice, with a beat in between", text: text,
			run: stops(span(2, 201, 300), span(2, 500, 501)), broken: order, rule: history.Order,
		},
		{
			name: "stopped, and its place was safe yet", text: text, run: silences(span(2, 202, 802)), broken: order,
			rule: history.Order,
		},
		{name: "stopped, and back again", text: text, run: stops(span(2, -700, -101)), broken: order, rule: history.Order},
		{
			name: "stopped, and perhaps not back", text: overtakingLate + thenGrantedLate,
			run: stops(span(2, 100, 950)), rule: history.Order, why: silent,
		},
		{
			name: "stopped, and certainly back", text: overtakingLate + thenGrantedLate,
			run: stops(span(2, 100, 899)), broken: order, rule: history.Order,
		},
		{
			name: "stopped just before it asked", text: text, run: stops(span(2, -700, 9)), broken: order, rule: history.Order,
		},
		{
			name: "another one was stopped", text: text,
			run: stops(span(3, 201, 401), span(1, 201, 401)), broken: order, rule: history.Order,
		},
	})
}

// The same a second later, so that there is time to come back.
const (
	overtakingLate = `
	0    1 ask
	1    1 granted fence=1000 until=890
	10   2 ask
	11   2 queued ticket=10000
	20   3 ask
	21   3 queued ticket=20000
	300  1 renewed until=1190
	600  1 renewed until=1490
	900  1 renewed until=1790
	1500 1 unlock
	1502 1 released
	1501 3 granted ticket=20000 fence=1501000 until=2390
	1510 3 unlock
	1512 3 released
`
	thenGrantedLate = "1511 2 granted ticket=10000 fence=1511000 until=2400"
)

func TestWhoWaitedWhenRedisLostItsDataIsNotJudgedForAPatience(t *testing.T) {
	order := []history.Rule{history.Order}
	const lost = "had just lost its data"
	losses := func(l history.Loss) history.Run { return patient(history.Run{Losses: []history.Loss{l}}) }
	tell(t, []tale{
		{name: "just before", text: overtaking + thenGranted, run: losses(loss(400, 401)), rule: history.Order, why: lost},
		{
			name: "a patience before", text: overtakingLate + thenGrantedLate,
			run: losses(loss(901, 902)), rule: history.Order, why: lost,
		},
		{
			name: "a patience before, and somebody asked since", run: losses(loss(800, 890)),
			rule: history.Order, why: lost, text: `
				0    1 ask
				1    1 granted fence=1000 until=890
				10   2 ask
				11   2 queued ticket=10000
				1490 3 ask
				1491 3 granted fence=1490500 until=2390
				1492 3 unlock
				1493 3 released
				1500 2 granted ticket=10000 fence=1492500 until=2400`,
		},
		{
			name: "longer before", run: losses(loss(800, 880)), broken: order, rule: history.Order, text: `
				0    1 ask
				1    1 granted fence=1000 until=890
				10   2 ask
				11   2 queued ticket=10000
				1490 3 ask
				1491 3 granted fence=1490500 until=2390
				1492 3 unlock
				1493 3 released
				1500 2 granted ticket=10000 fence=1492500 until=2400`,
		},
		{name: "later", text: overtaking + thenGranted, run: losses(loss(501.1, 502)), broken: order, rule: history.Order},
		{
			name: "before it asked", text: overtaking + thenGranted, run: losses(loss(9, 9.9)), broken: order,
			rule: history.Order,
		},
		{
			// What the first one believes says nothing of when the third one was granted it.
			name: "just before, and who held it believes for longer", run: losses(loss(700, 701)), rule: history.Order,
			why: lost, text: `
				0   1 ask
				1   1 granted fence=1000 until=890
				600 1 renewed until=1490
				10  2 ask
				11  2 queued ticket=10000
				702 3 ask
				703 3 granted fence=702500 until=1590
				704 3 unlock
				706 3 released
				705 2 granted ticket=10000 fence=705500 until=1590`,
		},
		{
			name: "of another lock", text: overtaking + thenGranted, broken: order, rule: history.Order,
			run: losses(history.Loss{Lock: "y", From: at(400), To: at(401)}),
		},
	})
}

func TestPairsAreCounted(t *testing.T) {
	// When 1 is granted it nobody waits; when 3 is, 2 does; when 2 is, nobody.
	report := judged(t, story(t, overtaking+thenGranted), history.Run{}, history.Order)
	assert.Equal(t, 1, report.Judged[history.Order])
	report = judged(t, story(t, overtaking+thenGranted), patient(history.Run{Stops: []history.Span{span(2, 201, 401)}}))
	assert.Equal(t, 0, report.Judged[history.Order])
	four := "22 4 ask \n 23 4 queued ticket=22000 \n"
	report = judged(t, story(t, overtaking+four+thenGranted), history.Run{}, history.Order)
	assert.Equal(t, 3, report.Judged[history.Order], "4 waits when 2 and 3 are granted it")
}

func TestTicketsAreKeptAndRise(t *testing.T) {
	tickets := []history.Rule{history.Tickets}
	tell(t, []tale{
		{
			name: "kept",
			text: first + `
				10   2 ask
				11   2 queued ticket=10000
				12   2 queued ticket=10000
				1001 2 granted ticket=10000 fence=20 until=2000`,
		},
		{
			name: "another one after it came back",
			text: first + "10 2 ask \n 11 2 queued ticket=10000 \n 12 2 queued ticket=10001", broken: tickets,
		},
		{
			name:   "another one when it is granted it",
			text:   first + "10 2 ask \n 11 2 queued ticket=10000 \n 1001 2 granted ticket=10001 fence=20 until=2000",
			broken: tickets,
		},
		{
			name: "none when it is granted it",
			text: first + "10 2 ask \n 11 2 queued ticket=10000 \n 1001 2 granted fence=20 until=2000", broken: tickets,
		},
		{
			name: "one for two",
			text: first + "10 2 ask \n 11 2 queued ticket=10000 \n 10 3 ask \n 11 3 queued ticket=10000", broken: tickets,
		},
		{
			name: "one for two, on two locks",
			text: first + "10 2 ask \n 11 2 queued ticket=10000 \n 10 3 ask lock=y \n 11 3 queued lock=y ticket=10000",
		},
		{
			name: "lower, asked at once",
			text: first + "10 2 ask \n 12 2 queued ticket=10000 \n 12 3 ask \n 13 3 queued ticket=9999",
		},
		{
			name: "lower, asked later",
			text: first + "10 2 ask \n 11 2 queued ticket=10000 \n 12 3 ask \n 13 3 queued ticket=9999", broken: tickets,
		},
		{
			name: "lower than that of the last but one", broken: tickets,
			text: first + `
				10 2 ask
				11 2 queued ticket=10000
				10 4 ask
				11 4 queued ticket=9000
				12 3 ask
				13 3 queued ticket=9999`,
		},
		{
			name: "lower, asked later, and Redis's clock stepped", rule: history.Tickets, why: "lost its data",
			text: first + "10 2 ask \n 11 2 queued ticket=10000 \n 12 3 ask \n 13 3 queued ticket=9999",
			run:  history.Run{Losses: []history.Loss{loss(11.5, 11.5)}},
		},
		{
			name: "lower, asked later, and Redis's clock stepped before", broken: tickets, rule: history.Tickets,
			text: first + "10 2 ask \n 11 2 queued ticket=10000 \n 12 3 ask \n 13 3 queued ticket=9999",
			run:  history.Run{Losses: []history.Loss{loss(5, 5)}},
		},
	})
}
