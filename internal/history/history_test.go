package history_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/history"
)

// start is when the histories of these tests begin, in ms.
const start = 1_000_000

// at is a time of a history.
func at(ms float64) int64 { return int64((start + ms) * 1e6) }

func span(process int, from, to float64) history.Span {
	return history.Span{Process: process, From: at(from), To: at(to)}
}

func loss(from, to float64) history.Loss { return history.Loss{From: at(from), To: at(to)} }

// token is that of a client's only call.
func token(client string) string { return fmt.Sprintf("p:%022s", client) }

// events reads a history: a line is "<ms> <client> <op> [key=value]…", with the keys until (ms), fence, ticket, weight,
// worker, lock ("x" if there is none), token, err ("taken", "expired", "closed").
func events(t *testing.T, text string) (all []history.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		ms, err := strconv.ParseFloat(words[0], 64)
		require.NoError(t, err, line)
		e := history.Event{At: at(ms), Op: history.Op(strings.ReplaceAll(words[2], "_", " ")), Lock: "x"}
		e.Process, err = strconv.Atoi(words[1])
		require.NoError(t, err, line)
		if e.Op != history.Request {
			e.Token = token(words[1])
		}
		for _, word := range words[3:] {
			key, value, _ := strings.Cut(word, "=")
			n, _ := strconv.ParseFloat(value, 64)
			switch key {
			case "until":
				e.Until = at(n)
			case "fence":
				e.Fence = uint64(n)
			case "ticket":
				e.Ticket = uint64(n)
			case "weight":
				e.Weight = int(n)
			case "worker":
				e.Worker = int(n)
			case "lock":
				e.Lock = value
			case "token":
				e.Token = value
			case "err":
				e.Err = map[string]string{"taken": "lock is lost: no longer the owner", "expired": "lock is lost: lease expired", "closed": "client is closed"}[value]
			default:
				require.Fail(t, "unknown key", line)
			}
		}
		all = append(all, e)
	}
	return all
}

// server reads what was seen in the server: a line is "<µs> <op> [<token> [ticket, or until of keeps]]", of lock "x".
func server(t *testing.T, text string) (all []history.ServerEvent) {
	t.Helper()
	for line := range strings.Lines(text) {
		words := append(strings.Fields(line), "", "")
		if words[0] == "" {
			continue
		}
		when, err := strconv.ParseInt(words[0], 10, 64)
		require.NoError(t, err, line)
		e := history.ServerEvent{At: when, Op: history.ServerOp(words[1]), Lock: "x", Token: words[2]}
		if e.Op == history.Misses {
			e.Lock = ""
		}
		n, _ := strconv.ParseInt(words[3], 10, 64)
		if e.Op == history.Keeps {
			e.Until = n
		} else {
			e.Ticket = uint64(n)
		}
		all = append(all, e)
	}
	return all
}

// example is a history, what was done to the run, which rules are broken, and what was excused.
type example struct {
	name   string
	text   string
	run    history.Run
	broken []history.Rule
	why    string // parts of all excuses, separated by "; "
}

type rules = []history.Rule

// check checks each example. Linear is expected among the broken rules where package linear finds it.
func check(t *testing.T, examples []example) {
	t.Helper()
	for _, x := range examples {
		t.Run(x.name, func(t *testing.T) {
			x.run.TTL, x.run.WaiterTTL = cmp.Or(x.run.TTL, 5*time.Second), cmp.Or(x.run.WaiterTTL, 5*time.Second)
			report := history.Check(events(t, x.text), x.run)
			var broken rules
			for _, v := range report.Violations {
				if !slices.Contains(broken, v.Rule) {
					broken = append(broken, v.Rule)
				}
			}
			assert.ElementsMatch(t, x.broken, broken, "%v\n%v", report, report.Err())
			if len(x.broken) == 0 {
				require.NoError(t, report.Err())
			} else {
				require.Error(t, report.Err())
			}
			excused := slices.Sorted(maps.Keys(report.Excused))
			var whys []string
			if x.why != "" {
				whys = strings.Split(x.why, "; ")
			}
			require.Len(t, excused, len(whys), "%v", excused)
			for i, why := range whys {
				assert.Contains(t, excused[i], why)
			}
		})
	}
}

// first holds the lock from 1 ms on, with a lease until 1000.
const first = `
	0 1 request
	1 1 granted fence=10 until=1000
`

func TestCheck_Form(t *testing.T) {
	var examples []example
	for name, text := range map[string]string{
		"nothing before request":   "0 2 queued ticket=5",
		"one request":              "0 2 request \n 1 2 request",
		"queued after granted":     first + "5 1 queued ticket=5",
		"queued after failed":      "0 2 request \n 1 2 failed \n 2 2 queued ticket=5",
		"granted twice":            first + "5 1 granted fence=11 until=1000",
		"granted after failed":     "0 2 request \n 1 2 failed \n 2 2 granted fence=11 until=1000",
		"failed after granted":     first + "5 1 failed",
		"failed twice":             "0 2 request \n 1 2 failed \n 2 2 failed",
		"renewed after failed":     "0 2 request \n 1 2 failed \n 2 2 renewed until=1000",
		"used before granted":      "0 2 request \n 1 2 used",
		"lost before granted":      "0 2 request \n 1 2 lost",
		"unlock before granted":    "0 2 request \n 1 2 unlock",
		"unlock twice":             first + "2 1 unlock \n 3 1 unlock",
		"unlock after released":    first + "2 1 unlock \n 3 1 released \n 4 1 unlock",
		"released without unlock":  first + "3 1 released",
		"released twice":           first + "2 1 unlock \n 3 1 released \n 4 1 released",
		"not held without unlock":  first + "1001 1 not_held",
		"ambiguous without unlock": first + "3 1 ambiguous",
		"another lock":             first + "3 1 used lock=y",
		"another worker":           first + "3 1 used worker=7",
		"another token":            first + "3 1 used token=z",
		"unknown op":               first + "3 1 sleeps",
		"granted without fence":    "0 2 request \n 1 2 granted until=1000",
		"granted without until":    "0 2 request \n 1 2 granted fence=11",
		"renewed without until":    first + "3 1 renewed",
		"queued without ticket":    "0 2 request \n 1 2 queued",
	} {
		other := "\n 0 9 request lock=z \n 1 9 granted lock=z fence=1 until=1000"
		examples = append(examples, example{name: name, text: text + other, broken: rules{history.Form}})
	}
	check(t, append(examples, example{name: "everything that is possible", text: `
		0 1 request
		1 1 queued ticket=5
		2 1 renewed until=1000
		2 1 queued ticket=5
		3 1 granted ticket=5 fence=10 until=1000
		4 1 used
		5 1 renewed until=1100
		6 1 unlock
		7 1 ambiguous
		8 1 unlock
		9 1 released
		10 1 renewed until=1100`}))
}

func TestCheck_Alive(t *testing.T) {
	alive := rules{history.Alive}
	used := first + "5 1 used \n 6 1 used"
	check(t, []example{
		{name: "before it was seen to be dead", text: used, run: history.Run{Kills: []history.Span{span(1, 4, 6)}}},
		{name: "dead", text: first + "5 1 lost err=closed", run: history.Run{Kills: []history.Span{span(1, 3, 4.9)}}, broken: alive},
		{name: "before and after a pause", text: used, run: history.Run{Pauses: []history.Span{span(1, 5, 6)}}},
		{name: "paused", text: used, run: history.Run{Pauses: []history.Span{span(1, 2, 3), span(1, 4, 5.5)}}, broken: alive},
		{name: "not reachable", text: used, run: history.Run{Unreachable: []history.Span{span(1, 4, 6)}}},
	})
}

func TestCheck_Empty(t *testing.T) {
	check(t, []example{
		{name: "no events", broken: rules{history.Empty}},
		{name: "no grant", text: "0 1 request \n 1 1 failed", broken: rules{history.Empty}},
	})
}

// Histories that are wrong on purpose are refused, and right ones accepted, here and in the other tests of Check.
//
//fairlock:promise The checker notices: histories made wrong on purpose: overlapping leases, a waiter that is passed, a repeated or falling fence, a live lease that is reported lost, a grant to one behind the head of the queue
func TestCheck_Exclusion(t *testing.T) {
	overlap := rules{history.Exclusion, history.Linear}
	const second = "\n 2 2 request \n 50 2 granted fence=20 until=1050"
	lost := func(from, to float64) history.Run { return history.Run{Losses: []history.Loss{loss(from, to)}} }
	const excused = "exclusion: Redis may have lost"
	check(t, []example{
		{name: "one after the other", text: first + "49 1 unlock \n 51 1 released" + second},
		{name: "unlock at that moment", text: first + "50 1 unlock \n 51 1 released" + second},
		{name: "unlock a moment later", text: first + "50.000001 1 unlock \n 51 1 ambiguous" + second, broken: overlap},
		{name: "no unlock", text: first + second, broken: overlap},
		{name: "no unlock, after the lease", text: first + "2 2 request \n 1000 2 granted fence=20 until=2000"},
		{
			name: "no unlock, after the lease, which was renewed", broken: overlap,
			text: first + "400 1 renewed until=1400 \n 2 2 request \n 1000 2 granted fence=20 until=2000",
		},
		{name: "lost before", text: first + "49 1 lost err=taken" + second, run: lost(48, 48), why: "results: Redis may have lost"},
		{name: "paused, which ends no lease", text: first + second, run: history.Run{Pauses: []history.Span{span(1, 10, 900)}}, broken: overlap},
		{
			name: "killed, which Redis does not know", text: first + second, broken: rules{history.Linear},
			run: history.Run{Kills: []history.Span{span(1, 50, 51)}},
		},
		{name: "killed later", text: first + second, run: history.Run{Kills: []history.Span{span(1, 51, 52)}}, broken: overlap},
		{
			name: "granted was recorded after the lease",
			text: "0 1 request \n 1 2 request \n 1010 2 granted fence=20 until=2000 \n 1020 1 granted fence=10 until=1000",
		},
		{name: "data lost in between", text: first + second, run: lost(48, 50), why: excused},
		{name: "data lost at the second grant at the earliest", text: first + second, run: lost(50, 60), why: excused},
		{name: "data lost at the first request at the latest", text: first + second, run: lost(-1, 0), why: excused},
		{name: "data lost later", text: first + second, run: lost(50.001, 60), broken: overlap},
		{name: "data lost before", text: first + second, run: lost(-2, -1), broken: overlap},
		{
			name: "data of another lock lost", text: first + second, broken: overlap,
			run: history.Run{Losses: []history.Loss{{Lock: "y", From: at(48), To: at(50)}}},
		},
		{
			name: "data lost in between, and the later grant is recorded first", run: lost(10, 10), why: excused,
			text: "0 1 request \n 20 2 request \n 21 2 granted fence=20 until=1020 \n 30 1 granted fence=10 until=1000",
		},
		{
			name: "data lost between the first and the second, and the third holds it beside both", run: lost(10, 10),
			text:   first + "20 2 request \n 21 2 granted fence=20 until=1020 \n 22 3 request \n 23 3 granted fence=30 until=1023",
			broken: overlap, why: excused,
		},
	})
}

// Of five permits the first two hold all; the third waits for three; the last two are granted one each by the release
// that grants it.
const semaphore = `
	10  1 request weight=2
	12  1 granted fence=11 until=1000
	13  2 request weight=3
	15  2 granted fence=14 until=1000
	20  3 request weight=3
	22  3 queued ticket=21
	30  4 request
	32  4 queued ticket=31
	40  5 request
	42  5 queued ticket=41
	100 1 unlock
	101 1 released
	120 2 unlock
	130 2 released
	124 5 granted fence=123 ticket=41 until=1000
	125 4 granted fence=122 ticket=31 until=1000
	126 3 granted fence=121 ticket=21 until=1000
`

// Two read, the third writes, and two read together.
const readers = `
	10  1 request
	12  1 granted fence=11 until=1000
	13  2 request
	15  2 granted fence=14 until=1000
	20  3 request weight=1073741824
	22  3 queued ticket=21
	30  4 request
	32  4 queued ticket=31
	40  5 request
	42  5 queued ticket=41
	100 1 unlock
	101 1 released
	110 2 unlock
	111 2 released
	115 3 granted fence=112 ticket=21 until=1000
	200 3 unlock
	201 3 released
	205 5 granted fence=203 ticket=41 until=1000
	207 4 granted fence=202 ticket=31 until=1000
`

func changed(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func TestCheck_Permits(t *testing.T) {
	run := func(capacity int) history.Run { return history.Run{Capacity: map[string]int{"x": capacity}} }
	rw := run(1 << 30)
	overlap := rules{history.Exclusion, history.Linear}
	check(t, []example{
		{name: "semaphore", text: semaphore, run: run(5)},
		{name: "readers and writers", text: readers, run: rw},
		{name: "fewer permits", text: semaphore, run: run(4), broken: overlap},
		{name: "one more than there are", text: changed(t, semaphore, "126 3 granted", "119 3 granted"), run: run(5), broken: overlap},
		{
			name: "one that never unlocks", text: changed(t, semaphore, "120 2 unlock", "", "130 2 released", ""), run: run(5),
			broken: overlap,
		},
		{name: "a writer beside a reader", text: changed(t, readers, "115 3 granted", "109 3 granted"), run: rw, broken: overlap},
		{name: "a reader beside a writer", text: changed(t, readers, "205 5 granted", "199 5 granted"), run: rw, broken: overlap},
		{
			name: "a smaller request passes a larger one", run: run(5), broken: rules{history.Order},
			text: changed(t, semaphore, "125 4 granted fence=122", "105 4 granted fence=101", "123", "104", "124 5", "106 5"),
		},
		{
			name: "a reader passes a writer and a reader", run: rw, broken: rules{history.Order},
			text: changed(t, readers, "205 5 granted fence=203", "50 5 granted fence=45", "110 2 unlock", "60 5 unlock \n 61 5 released \n 110 2 unlock"),
		},
		{
			name: "the fences of one release are swapped", run: run(5), broken: rules{history.Order},
			text: changed(t, semaphore, "fence=123", "fence=122", "fence=122", "fence=123"),
		},
		{
			name: "a writer starves", run: rw, broken: rules{history.Order},
			text: changed(t, readers, "115 3 granted fence=112 ticket=21 until=1000", "", "200 3 unlock", "", "201 3 released", ""),
		},
		{
			name: "a waiter leaves before it hears of its grant", run: run(5), why: "may have been granted it before",
			text: changed(t, semaphore, "20  3 request", "20 3 request until=126", "126 3 granted fence=121 ticket=21 until=1000", "127 3 failed"),
		},
		{
			name: "a waiter leaves that had no room", run: run(5), broken: rules{history.Order},
			text: changed(t, semaphore, "20  3 request", "20 3 request until=126", "126 3 granted fence=121 ticket=21 until=1000", "127 3 failed",
				"40  5 request", "40 5 request weight=3"),
		},
		{
			name: "fences of two readers that were recorded in the other order", run: rw,
			text: "0 1 request \n 0 2 request \n 10 1 granted fence=6 until=100 \n 11 2 granted fence=5 until=100",
		},
		{
			name: "fences of two readers, the second of which was requested later", run: rw, broken: rules{history.Fences, history.Linear},
			text: "0 1 request \n 10 1 granted fence=6 until=100 \n 11 2 request \n 12 2 granted fence=5 until=100",
		},
		{
			name: "the fence of a writer is lower than that of a reader before", run: rw, broken: rules{history.Fences, history.Linear},
			text: "0 1 request \n 0 2 request weight=1073741824 \n 1 1 granted fence=6 until=100 \n 3 1 unlock \n 4 1 released \n 10 2 granted fence=5 until=100",
		},
	})
}

func TestCheck_Use(t *testing.T) {
	use := rules{history.Use}
	check(t, []example{
		{name: "while it is held", text: first + "10 1 used \n 1000 1 used"},
		{name: "after the lease", text: first + "1000.002 1 used", broken: use},
		{name: "after the lease, which was renewed", text: first + "1200 1 used \n 1201 1 renewed until=1900"},
		{name: "when it begins to unlock", text: first + "10 1 unlock \n 10 1 used \n 11 1 released"},
		{name: "after it began to unlock", text: first + "10 1 unlock \n 10.001 1 used \n 11 1 released", broken: use},
		{name: "after it was lost", text: first + "1000 1 lost err=taken \n 1000.001 1 used", broken: use},
		{name: "after a pause", text: first + "1100 1 used", run: history.Run{Pauses: []history.Span{span(1, 900, 1099)}}, broken: use},
		{name: "just before a kill, before its renewal is recorded", text: first + "1100 1 used", run: history.Run{Kills: []history.Span{span(1, 2000, 2099)}}},
		{name: "long before a kill", text: first + "1100 1 used", run: history.Run{Kills: []history.Span{span(1, 2000, 2100)}}, broken: use},
		{
			name: "just before a kill, while another one holds it", broken: rules{history.Exclusion, history.Linear},
			text: first + "1100 1 used \n 2 2 request \n 1050 2 granted fence=20 until=2000",
			run:  history.Run{Kills: []history.Span{span(1, 1101, 1102)}},
		},
	})
}

//fairlock:promise The checker notices
func TestCheck_Fences(t *testing.T) {
	both := rules{history.Fences, history.Linear}
	const released = first + "49 1 unlock \n 51 1 released \n"
	stepped := func(back bool, losses ...history.Loss) history.Run {
		return history.Run{Losses: losses, ClockBack: back}
	}
	check(t, []example{
		{name: "higher", text: released + "52 2 request \n 53 2 granted fence=11 until=1050"},
		{name: "the same", text: released + "52 2 request \n 53 2 granted fence=10 until=1050", broken: rules{history.Fences}},
		{name: "lower", text: released + "52 2 request \n 53 2 granted fence=9 until=1050", broken: both},
		{name: "lower, requested before", text: released + "0 2 request \n 53 2 granted fence=9 until=1050", broken: both},
		{name: "lower, of another lock", text: released + "52 2 request lock=y \n 53 2 granted lock=y fence=9 until=1050"},
		{
			name: "lower, recorded late",
			text: "0 2 request \n 990 1 request \n 991 1 granted fence=10 until=2000 \n 992 2 granted fence=9 until=980",
		},
		{
			name: "lower, recorded late, and requested when the other one was over", broken: both,
			text: "0 1 request \n 500 1 granted fence=10 until=2 \n 3 2 request \n 992 2 granted fence=9 until=980",
		},
		{
			name: "lower, data lost", broken: both, run: stepped(false, loss(51.5, 51.6)),
			text: released + "52 2 request \n 53 2 granted fence=9 until=1050",
		},
		{
			name: "lower, data lost and the clock stepped back", run: stepped(true, loss(51.5, 51.6)), why: "fences: Redis may have lost",
			text: released + "52 2 request \n 53 2 granted fence=9 until=1050",
		},
		{
			name: "lower, data lost at about that time and the clock stepped back", run: stepped(true, loss(40, 55)), why: "fences: Redis may have lost",
			text: released + "52 2 request \n 53 2 granted fence=9 until=1050",
		},
		{
			name: "lower, the clock stepped back and no data lost", run: stepped(true), broken: both,
			text: released + "52 2 request \n 53 2 granted fence=9 until=1050",
		},
		{
			name: "lower than that of the last but one", broken: both,
			text: released + `
				52 2 request
				53 2 granted fence=30 until=1050
				54 2 unlock
				55 2 released
				56 3 request
				57 3 granted fence=20 until=1057`,
		},
	})
}

//fairlock:promise The checker notices
func TestCheck_Results(t *testing.T) {
	results := rules{history.Results}
	both := rules{history.Results, history.Linear}
	lost := history.Run{Losses: []history.Loss{loss(5, 6)}}
	const second = first + "2 2 request \n 1010 2 granted fence=20 until=2000 \n"
	check(t, []example{
		{name: "not held, by Redis", text: first + "10 1 unlock \n 11 1 not_held err=taken", broken: results},
		{name: "not held, without a reason", text: first + "10 1 unlock \n 11 1 not_held", broken: results},
		{name: "not held, after the lease", text: first + "10 1 unlock \n 1000 1 not_held err=taken"},
		{name: "not held, after a loss of data", text: first + "10 1 unlock \n 11 1 not_held err=taken", run: lost, why: "results: Redis may have lost"},
		{name: "not held, before a loss of data", text: first + "3 1 unlock \n 4 1 not_held err=taken", run: lost, broken: results},
		{name: "lost, by Redis", text: first + "10 1 lost err=taken", broken: results},
		{name: "lost, by Redis after the lease", text: first + "1000 1 lost err=taken"},
		{name: "not held, by the clock", text: first + "1001 1 unlock \n 1002 1 not_held err=expired"},
		{name: "lost, by the clock too early", text: first + "400 1 renewed until=3000 \n 1401 1 lost err=expired", broken: results},
		{
			name: "lost, by the clock too early, and a loss of data is no excuse", run: lost, broken: results,
			text: first + "400 1 renewed until=3000 \n 1401 1 unlock \n 1402 1 not_held err=expired",
		},
		{name: "lost, by the clock when a renewal was answered", text: first + "1000 1 renewed until=3000 \n 1001 1 lost err=expired"},
		{name: "closed", text: first + "10 1 lost err=closed \n 11 1 unlock \n 12 1 ambiguous err=closed"},
		{name: "released after the lease", text: first + "1010 1 unlock \n 1011 1 released"},
		{name: "released when another one holds it", text: second + "1011 1 unlock \n 1012 1 released", broken: both},
		{name: "released at that moment", text: second + "1010 1 unlock \n 1012 1 released"},
		{
			name: "released when another one has held it", broken: both,
			text: second + "1020 2 unlock \n 1021 2 released \n 1022 1 unlock \n 1023 1 released",
		},
		{
			name: "released by an earlier attempt",
			text: first + "2 2 request \n 10 1 unlock \n 15 2 granted fence=20 until=1015 \n 20 1 ambiguous \n 21 1 unlock \n 22 1 released",
		},
		{
			name: "released when another one holds it after a loss of data", text: second + "1011 1 unlock \n 1012 1 released",
			run: history.Run{Losses: []history.Loss{loss(1005, 1005)}}, why: "exclusion: Redis may have lost",
		},
	})
}

// The first holds the lock from 1 to 500 ms; 2 queues, then 3; 3 is granted it.
const passed = `
	0   1 request
	1   1 granted fence=1000 until=890
	10  2 request
	11  2 queued ticket=10000
	20  3 request
	21  3 queued ticket=20000
	500 1 unlock
	502 1 released
	501 3 granted ticket=20000 fence=501000 until=1390
	510 3 unlock
	512 3 released
`

const thenGranted = "511 2 granted ticket=10000 fence=511000 until=1400"

// The same a second later, when there was time to come back.
var passedLate = strings.NewReplacer("500 1 unlock", "300 1 renewed until=1190 \n 600 1 renewed until=1490 \n 900 1 renewed until=1790 \n 1500 1 unlock",
	"502 1", "1502 1", "501 3", "1501 3", "501000", "1501000", "1390", "2390", "510 3", "1510 3", "512 3", "1512 3").Replace(passed) +
	"1511 2 granted ticket=10000 fence=1511000 until=2400"

// 3 is granted it before 2, and knows of no ticket: the answer with it may have been lost, after which it asked again.
const resent = `
	10 2 request
	10 3 request
	12 2 queued ticket=10000
	34 3 granted fence=20000 until=800
	40 3 unlock
	42 3 released
	41 2 granted ticket=10000 fence=41000 until=900`

//fairlock:promise The checker notices
func TestCheck_Order(t *testing.T) {
	order := rules{history.Order}
	sees := func(text string) history.Run {
		return history.Run{Server: server(t, text+"20000 owns "+token("3")+" \n 20000 ends "+token("3")+" \n 41000 owns "+token("2"))}
	}
	check(t, []example{
		{name: "in order", text: changed(t, passed+thenGranted, "2 queued ticket=10000", "2 queued ticket=30000",
			"granted ticket=10000", "granted ticket=30000", "20  3", "5 3", "21  3", "6 3")},
		{name: "passed", text: passed + thenGranted, broken: order},
		{name: "passed, and never granted it", text: passed, broken: order},
		{
			name: "passed by one that found no queue", broken: order,
			text: changed(t, passed+thenGranted, "20  3 request", "501 3 request", "21  3 queued ticket=20000", "",
				"501 3 granted ticket=20000 fence=501000", "503 3 granted fence=502000"),
		},
		{
			name: "passed by one that was requested later, slowly", broken: order,
			text: changed(t, passed, "20  3 request", "501 3 request", "21  3 queued ticket=20000", "",
				"501 3 granted ticket=20000 fence=501000", "540 3 granted fence=502000", "510 3", "541 3", "512 3", "543 3"),
		},
		{name: "passed by one that was requested before, quickly", text: resent, broken: order},
		{
			name: "passed by one that was requested before, and may have had a ticket", text: strings.Replace(resent, "34 3", "36 3", 1),
			why: "may have had a ticket",
		},
		{
			name: "passed by one that had a lower ticket and did not know it", text: resent,
			run: sees("9000 joins " + token("3") + " 9000 \n 10000 joins " + token("2") + " 10000 \n"),
		},
		{
			name: "passed by one that had a higher ticket and did not know it", text: resent,
			broken: rules{history.Order, history.Server},
			run:    sees("10000 joins " + token("2") + " 10000 \n 11000 joins " + token("3") + " 11000 \n"),
		},
		{name: "granted in the microsecond in which the other one came", text: strings.Replace(resent, "fence=20000", "fence=10000", 1)},
		{
			name: "granted before the other one was requested, after a step back of the clock", run: history.Run{ClockBack: true}, text: `
				0 3 request
				1 3 queued ticket=20000
				2 3 granted ticket=20000 fence=9000 until=890
				3 3 unlock
				5 3 released
				4 2 request
				6 2 queued ticket=10000
				7 2 granted ticket=10000 fence=11000 until=890`,
		},
		{
			name: "granted before the other one joined, after a step back of the clock", run: history.Run{ClockBack: true}, text: `
				0 3 request
				1 3 queued ticket=20000
				3 2 request
				4 3 granted ticket=20000 fence=9000 until=890
				5 3 unlock
				7 3 released
				6 2 queued ticket=10000
				8 2 granted ticket=10000 fence=11000 until=890`,
		},
		{
			name: "granted before the other one was requested, the clock stepped back and data lost", why: "exclusion: ; fences: ",
			run: history.Run{ClockBack: true, Losses: []history.Loss{loss(3, 3)}}, text: `
				0 3 request
				2 3 granted fence=9000 until=890
				4 2 request
				6 2 queued ticket=5000
				7 4 request
				8 4 granted fence=4000 until=100`,
		},
		{
			name: "passed on another lock only",
			text: changed(t, passed, "2 request", "2 request lock=y", "2 queued", "2 queued lock=y"),
		},
	})
}

func TestCheck_OrderGoneWaiter(t *testing.T) {
	order := rules{history.Order}
	const gone = "may have given up or been killed"
	kill := func(from float64) history.Run { return history.Run{Kills: []history.Span{span(2, from, from+1)}} }
	until := func(ms string) string { return strings.Replace(passed, "2 request", "2 request until="+ms, 1) }
	check(t, []example{
		{name: "failed a second later", text: passed + "1501 2 failed", why: gone},
		{name: "failed later than that", text: passed + "1502 2 failed", broken: order},
		{
			name: "failed later than that, after a pause", text: passed + "1502 2 failed",
			run: history.Run{Pauses: []history.Span{span(2, 1400, 1501)}},
		},
		{
			name: "failed later than that, long after a pause", text: passed + "1502 2 failed", broken: order,
			run: history.Run{Unreachable: []history.Span{span(2, 300, 501)}},
		},
		{name: "ctx had ended", text: until("501") + "502 2 failed", why: gone},
		{name: "ctx ended then", text: until("501.1") + "502 2 failed", broken: order},
		{name: "failed before its deadline", text: until("5000") + "502 2 failed"},
		{name: "killed", text: passed, run: kill(501)},
		{name: "killed, and may have given up before", text: passed, run: kill(1501), why: gone},
		{name: "killed more than a second later", text: passed, run: kill(1502), broken: order},
		{
			name: "another one was killed", text: passed + thenGranted, broken: order,
			run: history.Run{Kills: []history.Span{span(4, 300, 301)}},
		},
	})
}

func TestCheck_OrderSilentWaiter(t *testing.T) {
	order := rules{history.Order}
	const silent = "the ticket may have expired"
	text := passed + thenGranted
	run := func(run history.Run) history.Run {
		run.WaiterTTL, run.TTL = 600*time.Millisecond, 900*time.Millisecond
		return run
	}
	paused := func(spans ...history.Span) history.Run { return run(history.Run{Pauses: spans}) }
	cut := func(spans ...history.Span) history.Run { return run(history.Run{Unreachable: spans}) }
	lost := func(l history.Loss) history.Run { return run(history.Run{Losses: []history.Loss{l}}) }
	check(t, []example{
		{name: "paused for a third, half a WaiterTTL before", text: text, run: paused(span(2, 201, 401)), why: silent},
		{
			name: "paused for a third of a TTL that is shorter", text: text, why: silent,
			run: history.Run{TTL: 600 * time.Millisecond, WaiterTTL: 900 * time.Millisecond, Pauses: []history.Span{span(2, 201, 401)}},
		},
		{
			name: "paused, and later the fences fall", text: text + "\n 5000 4 request \n 5001 4 granted fence=5 until=5900",
			run: run(history.Run{ClockBack: true, Pauses: []history.Span{span(2, 201, 401)}, Losses: []history.Loss{loss(3000, 3000)}}),
			why: "fences: Redis may have lost; " + silent,
		},
		{name: "cut off", text: text, run: cut(span(2, 201, 401)), why: silent},
		{name: "all cut off", text: text, run: cut(span(history.All, 201, 401)), why: silent},
		{name: "paused for less than a third", text: text, run: paused(span(2, 201, 400)), broken: order},
		{name: "paused twice without a heartbeat in between", text: text, run: paused(span(2, 201, 300), span(2, 499, 500)), why: silent},
		{name: "paused twice with a heartbeat in between", text: text, run: paused(span(2, 201, 300), span(2, 500, 501)), broken: order},
		{name: "cut off, and its ticket was safe yet", text: text, run: cut(span(2, 202, 802)), broken: order},
		{name: "paused, and perhaps not back", text: passedLate, run: paused(span(2, 100, 950)), why: silent},
		{name: "paused, and back", text: passedLate, run: paused(span(2, 100, 899)), broken: order},
		{name: "paused just before it was requested", text: text, run: paused(span(2, -700, 9)), broken: order},
		{name: "another one was paused", text: text, run: paused(span(3, 201, 401), span(1, 201, 401)), broken: order},
		{name: "data lost just before", text: text, run: lost(loss(400, 401)), why: "order: Redis may have lost"},
		{name: "data lost a WaiterTTL before", text: passedLate, run: lost(loss(901, 902)), why: "order: Redis may have lost"},
		{name: "data lost later", text: text, run: lost(loss(501.1, 502)), broken: order},
		{name: "data lost before it was requested", text: text, run: lost(loss(9, 9.9)), broken: order},
		{name: "data of another lock lost", text: text, run: lost(history.Loss{Lock: "y", From: at(400), To: at(401)}), broken: order},
	})
}

func TestCheck_Tickets(t *testing.T) {
	tickets := rules{history.Tickets}
	const one = first + "10 2 request \n 11 2 queued ticket=10000 \n"
	const lower = one + "12 3 request \n 13 3 queued ticket=9999"
	check(t, []example{
		{name: "kept", text: one + "12 2 queued ticket=10000 \n 1001 2 granted ticket=10000 fence=20 until=2000"},
		{name: "another one after it came back", text: one + "12 2 queued ticket=10001", broken: tickets},
		{
			name: "another one after it came back, after a step back of the clock", text: one + "12 2 queued ticket=10001", broken: tickets,
			run: history.Run{ClockBack: true},
		},
		{name: "another one when it is granted it", text: one + "1001 2 granted ticket=10001 fence=20 until=2000", broken: tickets},
		{name: "none when it is granted it", text: one + "1001 2 granted fence=20 until=2000", broken: tickets},
		{name: "one for two", text: one + "10 3 request \n 11 3 queued ticket=10000", broken: tickets},
		{name: "lower, requested at that moment", text: one + "11 3 request \n 13 3 queued ticket=9999"},
		{name: "lower, requested later", text: lower, broken: tickets},
		{
			name: "lower than that of the last but one", broken: tickets,
			text: one + "10 4 request \n 11 4 queued ticket=9000 \n 12 3 request \n 13 3 queued ticket=9999",
		},
		{name: "lower, after a step back of the clock", text: lower, run: history.Run{ClockBack: true}},
		{
			name: "lower, after a loss of data", text: lower, why: "tickets: Redis may have lost",
			run: history.Run{Losses: []history.Loss{loss(11.5, 11.5)}},
		},
		{name: "lower, after an earlier loss of data", text: lower, broken: tickets, run: history.Run{Losses: []history.Loss{loss(5, 5)}}},
	})
}

//fairlock:promise The checker notices
func TestCheck_Server(t *testing.T) {
	wrong := rules{history.Server}
	const other = "0 1 request lock=y \n 1 1 granted lock=y fence=1 until=1000"
	var examples []example
	for _, x := range []struct {
		name, seen string
		broken     rules
		why        string
	}{
		{name: "in order", seen: "1 owns a \n 2 joins b 2 \n 3 joins c 3 \n 4 ends a \n 4 owns b \n 5 ends b \n 5 owns c \n 6 ends c \n 7 owns d"},
		{name: "granted to one behind the head", seen: "2 joins b 2 \n 3 joins c 3 \n 4 owns c", broken: wrong},
		{name: "granted to one that does not wait", seen: "2 joins b 2 \n 4 owns c", broken: wrong},
		{name: "granted while another one holds it", seen: "1 owns a \n 2 joins b 2 \n 3 owns b", broken: wrong},
		{name: "granted to its holder again", seen: "1 owns a \n 2 owns a"},
		{name: "a holder joins", seen: "1 owns a \n 2 joins a 2", broken: wrong},
		{name: "the head left", seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 owns c"},
		{name: "the head was dropped after its WaiterTTL", seen: "2 joins b 2 \n 2 keeps b 6000 \n 3 joins c 3 \n 5000 drops b \n 5001 owns c"},
		{name: "the head was dropped before", seen: "2 joins b 2 \n 2 keeps b 6000 \n 3 joins c 3 \n 4999 drops b \n 5001 owns c", broken: wrong},
		{name: "dropped before its last heartbeat expired", seen: "2 joins b 2 \n 2 keeps b 6000 \n 3 keeps b 7000 \n 5500 drops b", broken: wrong},
		{name: "dropped, unknown until when it keeps its ticket", seen: "2 joins b 2 \n 4999 drops b", why: "keeps its ticket was not seen"},
		{
			name: "kept by the end of its token", broken: wrong,
			seen: "2 joins client:123456789012345678 2 \n 2 keeps 56789012345678 6000 \n 4999 drops client:123456789012345678",
		},
		{name: "back in its place", seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 joins b 2 \n 6 owns b \n 7 ends b \n 7 owns c"},
		{name: "back, and passed", seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 joins b 2 \n 7 owns c", broken: wrong},
		{name: "joins with another ticket", seen: "2 joins b 2 \n 3 joins c 3 \n 4 joins b 4 \n 6 owns c", broken: wrong},
		{name: "comes back with another ticket", seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 joins b 1 \n 6 owns b", broken: wrong},
		{name: "its ticket was given to a lesser name", seen: "2 joins c 2 \n 3 leaves c \n 4 joins b 2 \n 5 joins c 2 \n 6 owns b"},
		{name: "its ticket was given to a greater name", seen: "2 joins b 2 \n 3 leaves b \n 4 joins c 2 \n 5 joins b 2 \n 6 owns c", broken: wrong},
		{name: "joins before others", seen: "3 joins b 3 \n 4 joins c 2", broken: wrong},
		{name: "joins with the ticket of another one", seen: "3 joins b 3 \n 4 joins c 3", broken: wrong},
		{name: "joins before others, and something was missed", seen: "3 misses \n 3 joins b 3 \n 4 joins c 2", why: "may come back"},
		{name: "granted to one that does not wait, and something was missed", seen: "3 misses \n 3 joins b 3 \n 4 owns c", why: "was not seen to join"},
		{name: "granted to one behind the head, and something was missed", seen: "2 misses \n 3 joins b 3 \n 4 joins c 4 \n 5 owns c", broken: wrong},
		{name: "all data lost", seen: "1 owns a \n 2 joins b 2 \n 3 deletes \n 4 owns c \n 5 joins d 5 \n 6 joins b 2 \n 7 ends c \n 7 owns b"},
		{name: "all data lost, and joins before others", seen: "2 joins b 2 \n 3 deletes \n 5 joins d 5 \n 6 joins b 1", broken: wrong},
		{name: "unknown op", seen: "2 sleeps b", broken: wrong},
	} {
		seen := append(server(t, x.seen), history.ServerEvent{At: 1, Op: history.Owns, Lock: "y", Token: token("1")})
		examples = append(examples, example{name: x.name, text: other, run: history.Run{Server: seen}, broken: x.broken, why: x.why})
	}
	const text = `
		0 1 request weight=2
		1 1 granted fence=1000 until=890
		2 2 request weight=3
		3 2 granted fence=2000 until=890`
	run := history.Run{Capacity: map[string]int{"x": 5}, Server: server(t, "1 owns "+token("1")+"\n 2 owns "+token("2"))}
	less := run
	less.Capacity = map[string]int{"x": 4}
	check(t, append(examples, example{name: "permits", text: text, run: run},
		example{name: "too few permits", text: text, run: less, broken: rules{history.Server, history.Exclusion, history.Linear}}))
}

func TestCheck_ServerAgreesWithClients(t *testing.T) {
	const text = `
		0   1 request
		1   1 granted fence=1000 until=890
		10  2 request
		11  2 queued ticket=10000
		500 1 unlock
		502 1 released
		501 2 granted ticket=10000 fence=501000 until=1390`
	wrong := rules{history.Server}
	var examples []example
	for _, x := range []struct {
		name, seen string
		broken     rules
	}{
		{name: "all", seen: "1 owns %[1]s \n 2 joins %[2]s 10000 \n 3 ends %[1]s \n 3 owns %[2]s"},
		{name: "a grant more, of which its client did not hear", seen: "1 owns a \n 1 ends a \n 1 owns %[1]s \n 2 joins %[2]s 10000 \n 3 ends %[1]s \n 3 owns %[2]s"},
		{name: "no grant", seen: "1 owns %[1]s \n 2 joins %[2]s 10000", broken: wrong},
		{name: "no grant, and something was missed", seen: "1000 owns %[1]s \n 1001 joins %[2]s 10000 \n 1002 misses"},
		{name: "another order", seen: "2 joins %[2]s 10000 \n 3 owns %[2]s \n 3 ends %[2]s \n 3 owns %[1]s", broken: wrong},
		{name: "another ticket", seen: "1 owns %[1]s \n 2 joins %[2]s 10001 \n 3 ends %[1]s \n 3 owns %[2]s", broken: wrong},
		{name: "no ticket", seen: "1 owns %[1]s \n 3 ends %[1]s \n 3 owns %[2]s", broken: wrong},
	} {
		seen := server(t, fmt.Sprintf(x.seen, token("1"), token("2")))
		examples = append(examples, example{name: x.name, text: text, run: history.Run{Server: seen}, broken: x.broken})
	}
	again := history.Run{
		Losses: []history.Loss{loss(600, 601)},
		Server: server(t, fmt.Sprintf("1 owns %[1]s \n 2 joins %[2]s 10000 \n 3 ends %[1]s \n 3 owns %[2]s \n 4 deletes \n 5 owns %[1]s", token("1"), token("2"))),
	}
	check(t, append(examples, example{name: "granted again after a loss of data", text: text, run: again, why: "server: Redis may have lost"}))
}

func TestCheck_Linear(t *testing.T) {
	order := rules{history.Linear}
	// The first client is killed at 30, or closed: it trusts no lease any more, and Redis keeps it.
	killed := history.Run{Kills: []history.Span{span(1, 30, 31)}}
	lost := func(from, to float64) history.Run {
		return history.Run{Kills: killed.Kills, Losses: []history.Loss{loss(from, to)}}
	}
	const second = "\n 2 2 request \n 50 2 granted fence=20 until=1050"
	check(t, []example{
		{name: "granted before the lease of a killed client ended", text: first + second, run: killed, broken: order},
		{name: "granted after that", text: first + "2 2 request \n 1000 2 granted fence=20 until=2000", run: killed},
		{
			name: "granted before the renewed lease of a killed client ended", broken: order,
			run:  history.Run{Kills: []history.Span{span(1, 500, 501)}},
			text: first + "400 1 renewed until=1390 \n 2 2 request \n 1000 2 granted fence=20 until=2000",
		},
		{name: "granted after an Unlock that a killed client began", text: first + "29 1 unlock" + second, run: killed},
		{name: "granted after a loss of data", text: first + second, run: lost(40, 50)},
		{name: "granted before a loss of data", text: first + second, run: lost(50.1, 60), broken: order},
		{name: "granted before the lease of a closed client ended", text: first + "30 1 lost err=closed" + second, broken: order},
		{name: "granted after an ambiguous Unlock", text: first + "49 1 unlock \n 60 1 ambiguous" + second},
		{
			name: "granted before an ambiguous Unlock", broken: order,
			text: first + "30 1 lost err=closed \n 51 1 unlock \n 60 1 ambiguous err=closed" + second,
		},
		{name: "granted between two attempts to unlock", text: first + "48 1 unlock \n 55 1 ambiguous \n 56 1 unlock \n 57 1 released" + second},
		{name: "a Lock that failed", text: first + "49 1 unlock \n 50 1 released \n 2 2 request \n 60 2 failed \n 3 3 request \n 61 3 granted fence=30 until=1000"},
		{
			name: "a renewal that was sent when another one held it", broken: order, run: history.Run{TTL: 900 * time.Millisecond},
			text: `
				0   2 request
				1   2 granted fence=10 until=100
				80  2 lost err=closed
				80  2 unlock
				81  2 ambiguous
				500 3 request
				600 3 granted fence=20 until=610
				900 2 renewed until=1501`,
		},
		{
			name: "a renewal that was sent after the release", broken: order, run: history.Run{TTL: 900 * time.Millisecond},
			text: "0 1 request \n 1 1 granted fence=10 until=890 \n 50 1 unlock \n 51 1 released \n 60 1 renewed until=952",
		},
		{
			name: "a renewal that was sent before the release", run: history.Run{TTL: 900 * time.Millisecond},
			text: "0 1 request \n 1 1 granted fence=10 until=890 \n 50 1 unlock \n 51 1 released \n 60 1 renewed until=951",
		},
	})
}

// many is a history of so many holders, one each 10 ms. One of them is killed while it holds the lock; its lease lasts
// until so many ms after the next one has requested it, which is granted it 1 ms after its request.
func many(n, victim int, until float64) (string, history.Run) {
	var text strings.Builder
	for i := range n {
		ms := float64(i * 10)
		fmt.Fprintf(&text, "%f %d request \n", ms, i)
		if i == victim {
			fmt.Fprintf(&text, "%f %d granted fence=%d until=%f \n", ms+1, i, i+1, ms+10+until)
			continue
		}
		fmt.Fprintf(&text, "%f %d granted fence=%d until=%f \n %f %d unlock \n %f %d released \n", ms+1, i, i+1, ms+8, ms+2, i, ms+3, i)
	}
	killed := float64(victim*10 + 5)
	return text.String(), history.Run{Kills: []history.Span{span(victim, killed, killed)}}
}

// A history of more grants than porcupine gets at once is checked as a whole, also across its parts.
func TestCheck_LinearLong(t *testing.T) {
	for _, victim := range []int{0, 1, 249, 250, 251, 499, 998} {
		text, run := many(1000, victim, 1)
		late, _ := many(1000, victim, 1.1)
		check(t, []example{{name: "ended", text: text, run: run}, {name: "too early", text: late, run: run, broken: rules{history.Linear}}})
		require.ErrorContains(t, history.Check(events(t, late), run).Err(), fmt.Sprintf("client %d worker 0 call 0 fence %d", victim, victim+1))
	}
	text, run := many(1000, 100, 8000)
	check(t, []example{{name: "a lease that lasts into the last part", text: text, run: run, broken: rules{history.Linear}}})
}

func TestCheck_SortsEvents(t *testing.T) {
	all := events(t, first+"10 1 unlock \n 11 1 released")
	slices.Reverse(all)
	require.NoError(t, history.Check(all, history.Run{TTL: time.Second}).Err())
	assert.Equal(t, history.Released, all[0].Op, "the caller's events were moved")
}

func TestReport(t *testing.T) {
	run := history.Run{TTL: time.Second, Losses: []history.Loss{loss(48, 50)}}
	text := first + "2 2 request \n 50 2 granted fence=20 until=1050"
	report := history.Check(events(t, text), run)
	assert.Equal(t, "2 grants; events: 2 granted 2 request\n1 not checked: exclusion: Redis may have lost its data in between", report.String())
	for i := range 30 {
		text += fmt.Sprintf("\n 10 %d unlock", i+3)
	}
	err := history.Check(events(t, text), run).Err()
	require.ErrorContains(t, err, `form: lock "x": client 3 worker 0 call 0: "unlock" cannot follow on ""`)
	require.ErrorContains(t, err, "form: 10 more")
	assert.Equal(t, 20, strings.Count(err.Error(), "cannot follow"))
}

func TestStory(t *testing.T) {
	run := history.Run{
		Kills: []history.Span{span(1, 30, 31)}, Unreachable: []history.Span{span(history.All, 2, 3)}, Losses: []history.Loss{loss(40, 50)},
		Server: server(t, "7 joins b 5"),
	}
	var text strings.Builder
	require.NoError(t, history.Story(&text, events(t, first+"20 1 lost err=taken \n 2 2 request weight=3 until=60"), run))
	assert.Equal(t, `
   0.000000s  client 1 worker 0 call 0  request    x
   0.001000s  client 1 worker 0 call 0  granted    x  fence 10  until 1.000000s  token p:0000000000000000000001
   0.002000s  every client cannot reach Redis until 0.003000s
   0.002000s  client 2 worker 0 call 0  request    x  weight 3  until 0.060000s
   0.020000s  client 1 worker 0 call 0  lost       x  token p:0000000000000000000001  error lock is lost: no longer the owner
   0.030000s  client 1 is killed until 0.031000s
   0.040000s  data lost until 0.050000s
server 7 µs  joins    x  b  ticket 5  until 0
`, "\n"+text.String())
}
