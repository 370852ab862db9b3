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

	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// at is a time of a history, in ms.
func at(ms float64) int64 { return int64((1_000_000 + ms) * 1e6) }

// token is that of a client's only call.
func token(client any) string { return fmt.Sprintf("p:%022v", client) }

// parse reads a history of the lock x, of lines that end with "\n" or ";":
//
//	<ms> <client> <op> [key=value]…                          until (ms), fence, ticket, weight, permits, worker, lock, token, err
//	server <µs> <op> [<token or client> [<ticket or until> [<lock>]]]  seen in the server; lasts: ms, until in ms, and after the lock a fence, 10
//	kill|pause|cut <client> <from> <to>                      -1: all clients
//	loss <from> <to> [<lock>|* [<part>]]                     of data
//	ttl <TTL> <WaiterTTL>                                    5000 ms each if it is missing
//	permits <capacity>
//	clockback
func parse(t *testing.T, text string) (events []history.Event, run history.Run) {
	t.Helper()
	run = history.Run{TTL: 5 * time.Second, WaiterTTL: 5 * time.Second, Capacity: map[string]int{}}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\n", ";"), ";") {
		words := append(strings.Fields(line), "", "", "", "", "")
		number := func(i int) float64 {
			n, _ := strconv.ParseFloat(words[i], 64)
			return n
		}
		span := history.Span{Process: int(number(1)), From: at(number(2)), To: at(number(3))}
		switch words[0] {
		case "":
		case "kill":
			run.Kills = append(run.Kills, span)
		case "pause":
			run.Pauses = append(run.Pauses, span)
		case "cut":
			run.Unreachable = append(run.Unreachable, span)
		case "loss":
			run.Losses = append(run.Losses, history.Loss{
				From: at(number(1)), To: at(number(2)), Lock: strings.Trim(words[3], "*"), Part: history.Part(words[4]),
			})
		case "ttl":
			run.TTL, run.WaiterTTL = time.Duration(number(1)*1e6), time.Duration(number(2)*1e6)
		case "permits":
			run.Capacity["x"] = int(number(1))
		case "clockback":
			run.ClockBack = true
		case "server":
			e := history.ServerEvent{At: int64(number(1)), Op: history.ServerOp(words[2]), Lock: cmp.Or(words[5], "x"),
				Token: words[3]}
			switch n := number(4); e.Op {
			case history.Lasts:
				e.Until, e.Seen, e.Ticket = at(n), at(number(1)), uint64(cmp.Or(number(6), 10))
			case history.Resizes:
				e.Seen, e.Ticket = at(number(1)), uint64(n)
			case history.Misses:
				e.Lock = ""
			case history.Keeps, history.Drops:
				e.Until = int64(n)
			default:
				e.Ticket = uint64(n)
			}
			if n, err := strconv.Atoi(e.Token); err == nil && e.Op != history.Keeps {
				e.Token = token(n)
			}
			run.Server = append(run.Server, e)
		default:
			events = append(events, event(t, words))
		}
	}
	return events, run
}

// event reads "<ms> <client> <op> [key=value]…".
func event(t *testing.T, words []string) history.Event {
	t.Helper()
	ms, err := strconv.ParseFloat(words[0], 64)
	require.NoError(t, err, words)
	e := history.Event{At: at(ms), Op: history.Op(strings.ReplaceAll(words[2], "_", " ")), Lock: "x"}
	e.Process, err = strconv.Atoi(words[1])
	require.NoError(t, err, words)
	if e.Op != history.Request {
		e.Token = token(words[1])
	}
	errs := map[string]string{
		"taken": "lock is lost: no longer the owner", "expired": "lock is lost: lease expired", "closed": "client is closed",
	}
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.ParseFloat(value, 64)
		switch key {
		case "":
		case "until":
			e.Until = at(n)
		case "fence":
			e.Fence = uint64(n)
		case "ticket":
			e.Ticket = uint64(n)
		case "weight":
			e.Weight = int(n)
		case "permits":
			e.Permits = int(n)
		case "worker":
			e.Worker = int(n)
		case "lock":
			e.Lock = value
		case "token":
			e.Token = value
		case "err":
			e.Err = errs[value]
		default:
			require.Fail(t, "unknown key", words)
		}
	}
	return e
}

// changed returns a text with some parts replaced, which must be there.
func changed(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// example is a history with what is done to the run, and what the checker finds: the broken rules, and after "|" parts
// of the excuses, separated by "; ".
type example struct{ name, want, text string }

// seen returns examples in whose histories the server sees what their texts say.
func seen(history string, examples []example) []example {
	for i := range examples {
		examples[i].text = history + "; server " + strings.ReplaceAll(examples[i].text, ";", "; server")
	}
	return examples
}

// with returns examples with more text before each of theirs.
func with(text string, examples []example) []example {
	for i := range examples {
		examples[i].text = text + examples[i].text
	}
	return examples
}

func check(t *testing.T, examples []example) {
	t.Helper()
	for _, x := range examples {
		t.Run(x.name, func(t *testing.T) {
			events, run := parse(t, x.text)
			report := history.Check(events, run)
			broken := map[string]bool{}
			for _, v := range report.Violations {
				broken[string(v.Rule)] = true
			}
			rules, excuses, excused := strings.Cut(x.want, "|")
			assert.ElementsMatch(t, strings.Fields(rules), slices.Collect(maps.Keys(broken)), "%v\n%v", report, report.Err())
			assert.Equal(t, len(broken) > 0, report.Err() != nil)
			found := slices.Sorted(maps.Keys(report.Excused))
			if !excused {
				require.Empty(t, found)
				return
			}
			whys := strings.Split(excuses, "; ")
			require.Len(t, found, len(whys), "%v", found)
			for i, why := range whys {
				assert.Contains(t, found[i], strings.TrimSpace(why))
			}
		})
	}
}

// first holds the lock from 1 ms on, with a lease until 1000.
const first = "0 1 request; 1 1 granted fence=10 until=1000; "

func TestCheck_Form(t *testing.T) {
	var examples []example
	for name, text := range map[string]string{
		"nothing before request":   "0 2 queued ticket=5",
		"one request":              "0 2 request; 1 2 request",
		"queued after granted":     first + "5 1 queued ticket=5",
		"queued after failed":      "0 2 request; 1 2 failed; 2 2 queued ticket=5",
		"granted twice":            first + "5 1 granted fence=11 until=1000",
		"granted after failed":     "0 2 request; 1 2 failed; 2 2 granted fence=11 until=1000",
		"failed after granted":     first + "5 1 failed",
		"failed twice":             "0 2 request; 1 2 failed; 2 2 failed",
		"renewed after failed":     "0 2 request; 1 2 failed; 2 2 renewed until=1000",
		"used before granted":      "0 2 request; 1 2 used",
		"lost before granted":      "0 2 request; 1 2 lost",
		"unlock before granted":    "0 2 request; 1 2 unlock",
		"unlock twice":             first + "2 1 unlock; 3 1 unlock",
		"unlock after released":    first + "2 1 unlock; 3 1 released; 4 1 unlock",
		"released without unlock":  first + "3 1 released",
		"released twice":           first + "2 1 unlock; 3 1 released; 4 1 released",
		"not held without unlock":  first + "1001 1 not_held",
		"ambiguous without unlock": first + "3 1 ambiguous",
		"another lock":             first + "3 1 used lock=y",
		"another worker":           first + "3 1 used worker=7",
		"another token":            first + "3 1 used token=z",
		"unknown op":               first + "3 1 sleeps",
		"granted without fence":    "0 2 request; 1 2 granted until=1000",
		"granted without until":    "0 2 request; 1 2 granted fence=11",
		"renewed without until":    first + "3 1 renewed",
		"queued without ticket":    "0 2 request; 1 2 queued",
	} {
		other := "; 0 9 request lock=z; 1 9 granted lock=z fence=1 until=1000"
		examples = append(examples, example{name, "form", text + other})
	}
	check(t, append(examples, example{"everything that is possible", "", `
		0 1 request; 1 1 queued ticket=5; 2 1 renewed until=1000
		3 1 granted ticket=5 fence=10 until=1000; 4 1 used; 5 1 renewed until=1100; 6 1 unlock; 7 1 ambiguous
		8 1 unlock; 9 1 released; 10 1 renewed until=1100`}))
}

func TestCheck_Alive(t *testing.T) {
	used := first + "5 1 used; 6 1 used"
	check(t, []example{
		{"before it was seen to be dead", "", used + "; kill 1 4 6"},
		{"dead", "alive", first + "5 1 lost err=closed; kill 1 3 4.9"},
		{"before and after a pause", "", used + "; pause 1 5 6"},
		{"paused", "alive", used + "; pause 1 2 3; pause 1 4 5.5"},
		{"not reachable", "", used + "; cut 1 4 6"},
	})
}

func TestCheck_Empty(t *testing.T) {
	check(t, []example{
		{"no events", "empty", ""},
		{"no grant", "empty", "0 1 request; 1 1 failed"},
	})
}

// Histories that are wrong on purpose are refused, and right ones accepted, here and in the other tests of Check.
//
//fairlock:promise The checker notices: histories made wrong on purpose: overlapping leases, a waiter that is passed, a repeated or falling fence, a live lease that is reported lost, a grant to one behind the head of the queue
func TestCheck_Exclusion(t *testing.T) {
	const second = "; 2 2 request; 50 2 granted fence=20 until=1050"
	check(t, []example{
		{"one after the other", "", first + "49 1 unlock; 51 1 released" + second},
		{"unlock at that moment", "", first + "50 1 unlock; 51 1 released" + second},
		{"unlock a moment later", "exclusion", first + "50.000001 1 unlock; 51 1 ambiguous" + second},
		{"no unlock", "exclusion", first + second},
		{"no unlock, after the lease", "", first + "2 2 request; 1000 2 granted fence=20 until=2000"},
		{"no unlock, after the lease, which was renewed", "exclusion",
			first + "400 1 renewed until=1400; 2 2 request; 1000 2 granted fence=20 until=2000"},
		{"lost before", "| results: Redis may have lost", first + "49 1 lost err=taken" + second + "; loss 48 48"},
		{"paused, which ends no lease", "exclusion", first + second + "; pause 1 10 900"},
		{"killed", "", first + second + "; kill 1 50 51"},
		{"granted was recorded after the lease", "",
			"0 1 request; 1 2 request; 1010 2 granted fence=20 until=2000; 1020 1 granted fence=10 until=1000"},
		{"data lost in between", "| exclusion: Redis may have lost", first + second + "; loss 48 50"},
		{"data lost at the second grant at the earliest", "| exclusion: Redis may have lost", first + second +
			"; loss 50 60"},
		{"data lost at the first request at the latest", "| exclusion: Redis may have lost", first + second + "; loss -1 0"},
		{"its holder lost in between", "| exclusion: Redis may have lost", first + second + "; loss 48 50 x holders"},
		{"its number lost in between", "exclusion", first + second + "; loss 48 50 x numbers"},
		{"data lost later", "exclusion", first + second + "; loss 50.001 60"},
		{"data lost before", "exclusion", first + second + "; loss -2 -1"},
		{"data of another lock lost", "exclusion", first + second + "; loss 48 50 y"},
		{"data lost in between, and the later grant is recorded first", "| exclusion: Redis may have lost",
			"0 1 request; 20 2 request; 21 2 granted fence=20 until=1020; 30 1 granted fence=10 until=1000; loss 10 10"},
		{"data lost between the first and the second, and the third holds it beside both",
			"exclusion | exclusion: Redis may have lost",
			first + "20 2 request; 21 2 granted fence=20 until=1020; 22 3 request; 23 3 granted fence=30 until=1023; loss 10 10"},
	})
}

// Of five permits the first two hold all; the third waits for three; the last two are granted one each by the release
// that grants it.
const semaphore = `
		10 1 request weight=2; 12 1 granted fence=11 until=1000; 13 2 request weight=3
		15 2 granted fence=14 until=1000; 20 3 request weight=3; 22 3 queued ticket=21; 30 4 request
		32 4 queued ticket=31; 40 5 request; 42 5 queued ticket=41; 100 1 unlock; 101 1 released; 120 2 unlock
		130 2 released; 124 5 granted fence=123 ticket=41 until=1000; 125 4 granted fence=122 ticket=31 until=1000
		126 3 granted fence=121 ticket=21 until=1000
`

// Two read, the third writes, and two read together.
const readers = `
		10 1 request; 12 1 granted fence=11 until=1000; 13 2 request; 15 2 granted fence=14 until=1000
		20 3 request weight=1073741824; 22 3 queued ticket=21; 30 4 request; 32 4 queued ticket=31; 40 5 request
		42 5 queued ticket=41; 100 1 unlock; 101 1 released; 110 2 unlock; 111 2 released
		115 3 granted fence=112 ticket=21 until=1000; 200 3 unlock; 201 3 released
		205 5 granted fence=203 ticket=41 until=1000; 207 4 granted fence=202 ticket=31 until=1000
`

func TestCheck_Permits(t *testing.T) {
	const requests, fails = "20 3 request", "126 3 granted fence=121 ticket=21 until=1000"
	left := []string{requests, "20 3 request until=126", fails, "127 3 failed"}
	check(t, with("permits 5; ", []example{
		{"semaphore", "", semaphore},
		{"fewer permits", "exclusion", "permits 4; " + semaphore},
		{"one more than there are", "exclusion", changed(t, semaphore, "126 3 granted", "119 3 granted")},
		{"one that never unlocks", "exclusion", changed(t, semaphore, "120 2 unlock", "", "130 2 released", "")},
		{"a smaller request passes a larger one", "order",
			changed(t, semaphore, "125 4 granted fence=122", "105 4 granted fence=101", "123", "104", "124 5", "106 5")},
		{"the fences of one release are swapped", "order",
			changed(t, semaphore, "fence=123", "fence=122", "fence=122", "fence=123")},
		{"a waiter leaves before it hears of its grant", "| may have been granted it before", changed(t, semaphore, left...)},
		{"a waiter leaves that had no room", "order",
			changed(t, semaphore, append(left, "40 5 request", "40 5 request weight=3")...)},
	}))
	two := func(first, second int) string {
		return fmt.Sprintf(`0 1 request weight=2 permits=%d; 1 1 granted fence=10 until=1000
			0 2 request weight=2 permits=%d; 2 2 granted fence=20 until=1000`, first, second)
	}
	check(t, with("permits 3; ", []example{
		{"two numbers, of which the first suffices", "", two(4, 3)},
		{"two numbers, of which the second suffices", "", two(3, 4)},
		{"two numbers, and more than either", "exclusion", two(3, 3)},
		{"two numbers, and resized to more", "", two(2, 3) + "; server -1 resizes - 4; server 0 owns 1; server 1 owns 2"},
		{"two numbers, and resized to fewer", "exclusion server", two(4, 4) +
			"; server -1 resizes - 3; server 0 owns 1; server 1 owns 2"},
		{"two numbers, and the resize has ended", "",
			two(4, 4) + "; server -2 resizes - 3; server -1 resizes - 0; server 0 owns 1; server 1 owns 2"},
		{"two numbers in the server, of which the second does not suffice", "server", two(4, 3) +
			"; server 0 owns 1; server 1 owns 2"},
	}))
	check(t, with("permits 1073741824; ", []example{
		{"readers and writers", "", readers},
		{"a writer beside a reader", "exclusion", changed(t, readers, "115 3 granted", "109 3 granted")},
		{"a reader beside a writer", "exclusion fences", changed(t, readers, "205 5 granted", "199 5 granted")},
		{"a reader passes a writer and a reader", "order",
			changed(t, readers, "205 5 granted fence=203", "50 5 granted fence=45",
				"110 2 unlock", "60 5 unlock; 61 5 released; 110 2 unlock")},
		{"a writer starves", "order", changed(t, readers, "115 3 granted fence=112 ticket=21 until=1000", "",
			"200 3 unlock", "", "201 3 released", "")},
		{"fences of two readers that were recorded in the other order", "",
			"0 1 request; 0 2 request; 10 1 granted fence=6 until=100; 11 2 granted fence=5 until=100"},
		{"fences of two readers, the second of which was requested later", "fences",
			"0 1 request; 10 1 granted fence=6 until=100; 11 2 request; 12 2 granted fence=5 until=100"},
		{"the fence of a writer is lower than that of a reader before", "fences", `
			0 1 request; 0 2 request weight=1073741824; 1 1 granted fence=6 until=100; 3 1 unlock; 4 1 released
			10 2 granted fence=5 until=100`},
	}))
}

func TestCheck_Use(t *testing.T) {
	check(t, with(first, []example{
		{"while it is held", "", "10 1 used; 1000 1 used"},
		{"after the lease", "use", "1000.002 1 used"},
		{"after the lease, which was renewed", "", "1200 1 used; 1201 1 renewed until=1900"},
		{"when it begins to unlock", "", "10 1 unlock; 10 1 used; 11 1 released"},
		{"after it began to unlock", "use", "10 1 unlock; 10.001 1 used; 11 1 released"},
		{"after it was lost", "use", "1000 1 lost err=taken; 1000.001 1 used"},
		{"after a pause", "use", "1100 1 used; pause 1 900 1099"},
		{"just before a kill, before its renewal is recorded", "", "1100 1 used; kill 1 2000 2099"},
		{"long before a kill", "use", "1100 1 used; kill 1 2000 2100"},
		{"just before a kill, while another one holds it", "exclusion",
			"1100 1 used; 2 2 request; 1050 2 granted fence=20 until=2000; kill 1 1101 1102"},
	}))
}

//fairlock:promise The checker notices
func TestCheck_TrustedForTooLong(t *testing.T) {
	check(t, seen(first+"10 1 renewed until=1010; server 0 owns 1", []example{
		{"for no longer than Redis lets it last", "", "0 lasts 1 1000; 9 lasts 1 1010"},
		{"a renewal that Redis did not make", "use", "0 lasts 1 1000"},
		{"a renewal that Redis made for less", "use", "0 lasts 1 1000; 9 lasts 1 1009"},
		{"a renewal that Redis made later", "use", "0 lasts 1 1000; 11 lasts 1 1010"},
		{"a grant for less, and a renewal", "use", "0 lasts 1 999; 9 lasts 1 1010"},
		{"of another token", "", "0 lasts 2 999"},
		{"an earlier grant to the token", "use", "0 lasts 1 1000 x 9; 9 lasts 1 1010 x 9"},
		{"its end was missed", "| server: something was missed", "0 lasts 1 999; 1 misses"},
	}))
}

// If the clock had stepped back, its number may be below that of a notification from before a loss.
func TestCheck_TrustsANotificationFromBeforeALoss(t *testing.T) {
	check(t, with(first+"server 0 owns 1; server 0 lasts 1 500; ", []example{
		{"of the number, and the clock had stepped back", "| use: Redis may have lost", "loss 0.5 0.5 x numbers; clockback"},
		{"of the number", "use", "loss 0.5 0.5 x numbers"},
		{"of the holder, and the clock had stepped back", "use", "loss 0.5 0.5 x holders; clockback"},
		{"later, and the clock had stepped back", "use", "loss 1.5 1.5; clockback"},
	}))
}

//fairlock:promise The checker notices
func TestCheck_Fences(t *testing.T) {
	const released = first + "49 1 unlock; 51 1 released; "
	const lower = released + "52 2 request; 53 2 granted fence=9 until=1050"
	check(t, []example{
		{"higher", "", released + "52 2 request; 53 2 granted fence=11 until=1050"},
		{"the same", "fences", released + "52 2 request; 53 2 granted fence=10 until=1050"},
		{"lower, requested before", "fences", released + "0 2 request; 53 2 granted fence=9 until=1050"},
		{"lower, of another lock", "", released + "52 2 request lock=y; 53 2 granted lock=y fence=9 until=1050"},
		{"lower, recorded late", "",
			"0 2 request; 990 1 request; 991 1 granted fence=10 until=2000; 992 2 granted fence=9 until=980"},
		{"lower, recorded late, and requested when the other one was over", "fences",
			"0 1 request; 500 1 granted fence=10 until=2; 3 2 request; 992 2 granted fence=9 until=980"},
		{"lower, data lost", "fences", lower + "; loss 51.5 51.6"},
		{"the same, data lost and the clock stepped back", "",
			released + "52 2 request; 53 2 granted fence=10 until=1050; clockback; loss 51.5 51.6"},
		{"lower, data lost at about that time and the clock stepped back", "", lower + "; clockback; loss 40 55"},
		{"lower, the number lost at about that time and the clock stepped back", "", lower +
			"; clockback; loss 40 55 * numbers"},
		{"lower, the holder lost at about that time and the clock stepped back", "fences", lower +
			"; clockback; loss 40 55 * holders"},
		{"lower, the clock stepped back and no data lost", "fences", lower + "; clockback"},
		{"lower than that of the last but one", "fences", released + `
		52 2 request; 53 2 granted fence=30 until=1050; 54 2 unlock; 55 2 released; 56 3 request
		57 3 granted fence=20 until=1057`},
	})
}

//fairlock:promise The checker notices
func TestCheck_Results(t *testing.T) {
	const second = "2 2 request; 1010 2 granted fence=20 until=2000 \n"
	check(t, with(first, []example{
		{"not held, by Redis", "results", "10 1 unlock; 11 1 not_held err=taken"},
		{"not held, without a reason", "results", "10 1 unlock; 11 1 not_held"},
		{"not held, after the lease", "", "10 1 unlock; 1000 1 not_held err=taken"},
		{"not held, after a loss of data", "| results: Redis may have lost",
			"10 1 unlock; 11 1 not_held err=taken; loss 5 6"},
		{"not held, after a loss of the holder", "| results: Redis may have lost",
			"10 1 unlock; 11 1 not_held err=taken; loss 5 6 * holders"},
		{"not held, after a loss of the number", "results", "10 1 unlock; 11 1 not_held err=taken; loss 5 6 * numbers"},
		{"not held, before a loss of data", "results", "3 1 unlock; 4 1 not_held err=taken; loss 5 6"},
		{"lost, by Redis", "results", "10 1 lost err=taken"},
		{"not held, by the clock", "", "1001 1 unlock; 1002 1 not_held err=expired"},
		{"lost, by the clock too early", "results", "400 1 renewed until=3000; 1401 1 lost err=expired"},
		{"lost, by the clock too early, and a loss of data is no excuse", "results",
			"400 1 renewed until=3000; 1401 1 unlock; 1402 1 not_held err=expired; loss 5 6"},
		{"lost, by the clock when a renewal was answered", "", "1000 1 renewed until=3000; 1001 1 lost err=expired"},
		{"closed", "", "400 1 renewed until=3000; 1500 1 lost err=closed; 1501 1 unlock; 1502 1 ambiguous err=closed"},
		{"released when another one holds it", "results", second + "1011 1 unlock; 1012 1 released"},
		{"released at that moment", "", second + "1010 1 unlock; 1012 1 released"},
		{"released when another one has held it", "results",
			second + "1020 2 unlock; 1021 2 released; 1022 1 unlock; 1023 1 released"},
		{"released by an earlier attempt", "",
			"2 2 request; 10 1 unlock; 15 2 granted fence=20 until=1015; 20 1 ambiguous; 21 1 unlock; 22 1 released"},
		{"released when another one holds it after a loss of data", "| exclusion: Redis may have lost",
			second + "1011 1 unlock; 1012 1 released; loss 1005 1005"},
	}))
}

// The first holds the lock from 1 to 500 ms; 2 queues, then 3; 3 is granted it.
const passed = `
		0 1 request; 1 1 granted fence=1000 until=890; 10 2 request; 11 2 queued ticket=10000; 20 3 request
		21 3 queued ticket=20000; 500 1 unlock; 502 1 released; 501 3 granted ticket=20000 fence=501000 until=1390
		510 3 unlock; 512 3 released
`

const thenGranted = "511 2 granted ticket=10000 fence=511000 until=1400"

// The same a second later, when there was time to come back.
var passedLate = strings.NewReplacer("502 1", "1502 1", "501 3", "1501 3", "501000", "1501000", "1390", "2390", "510 3",
	"1510 3",
	"512 3", "1512 3", "500 1 unlock",
	"300 1 renewed until=1190; 600 1 renewed until=1490; 900 1 renewed until=1790; 1500 1 unlock",
).Replace(passed) + "1511 2 granted ticket=10000 fence=1511000 until=2400"

// 3 is granted it before 2, and knows of no ticket: the answer with it may have been lost, after which it asked again.
const resent = `
		10 2 request; 10 3 request; 12 2 queued ticket=10000; 34 3 granted fence=20000 until=800; 40 3 unlock
		42 3 released; 41 2 granted ticket=10000 fence=41000 until=900
`

//fairlock:promise The checker notices
func TestCheck_Order(t *testing.T) {
	check(t, []example{
		{"in order", "", changed(t, passed+thenGranted, "2 queued ticket=10000", "2 queued ticket=30000",
			"granted ticket=10000", "granted ticket=30000", "20 3", "5 3", "21 3", "6 3")},
		{"passed", "order", passed + thenGranted},
		{"passed, and never granted it", "order", passed},
		{"passed by one that found no queue", "order", changed(t, passed+thenGranted,
			"20 3 request", "501 3 request", "21 3 queued ticket=20000", "",
			"501 3 granted ticket=20000 fence=501000", "503 3 granted fence=502000")},
		{"passed by one that was requested later, slowly", "order", changed(t, passed,
			"20 3 request", "501 3 request", "21 3 queued ticket=20000", "",
			"501 3 granted ticket=20000 fence=501000", "540 3 granted fence=502000", "510 3", "541 3", "512 3", "543 3")},
		{"passed by one that was requested before, quickly", "order", resent},
		{"passed by one that was requested before, and may have had a ticket", "| may have had a ticket",
			strings.Replace(resent, "34 3", "36 3", 1)},
		{"passed by one that knew its ticket and took long", "order",
			changed(t, passed+thenGranted, "20 3 request", "5 3 request")},
		{"granted in the microsecond in which the other one came", "",
			strings.Replace(resent, "fence=20000", "fence=10000", 1)},
		{"granted before the other one was requested, the clock stepped back and data lost", "| exclusion: Redis may have lost", `
		0 3 request; 2 3 granted fence=9000 until=890; 4 2 request; 6 2 queued ticket=5000; 7 4 request
		8 4 granted fence=4000 until=100` + "; clockback; loss 3 3"},
		{"passed on another lock only", "", changed(t, passed, "2 request", "2 request lock=y", "2 queued",
			"2 queued lock=y")},
	})
}

func TestCheck_OrderGoneWaiter(t *testing.T) {
	until := func(ms string) string { return strings.Replace(passed, "2 request", "2 request until="+ms, 1) }
	check(t, []example{
		{"failed a second later", "| may have given up or been killed", passed + "1501 2 failed"},
		{"failed later than that", "order", passed + "1502 2 failed"},
		{"failed later than that, after a pause", "", passed + "1502 2 failed; pause 2 1400 1501"},
		{"failed later than that, long after a pause", "order", passed + "1502 2 failed; cut 2 300 501"},
		{"ctx had ended", "| may have given up or been killed", until("501") + "502 2 failed"},
		{"ctx ended then", "order", until("501.1") + "502 2 failed"},
		{"failed before its deadline", "", until("5000") + "502 2 failed"},
		{"killed", "", passed + "; kill 2 501 502"},
		{"killed, and may have given up before", "| may have given up or been killed", passed + "; kill 2 1501 1502"},
		{"killed more than a second later", "order", passed + "; kill 2 1502 1503"},
		{"another one was killed", "order", passed + thenGranted + "; kill 4 300 301"},
	})
}

func TestCheck_OrderSilentWaiter(t *testing.T) {
	text := passed + thenGranted
	check(t, with("ttl 900 600; ", []example{
		{"paused for a third, half a WaiterTTL before", "| the ticket may have expired", text + "; pause 2 201 401"},
		{"paused for a third of a TTL that is shorter", "| the ticket may have expired",
			text + "; ttl 600 900; pause 2 201 401"},
		{"paused, and later the fences fall", "| the ticket may have expired",
			text + "; 5000 4 request; 5001 4 granted fence=5 until=5900; clockback; pause 2 201 401; loss 3000 3000"},
		{"cut off", "| the ticket may have expired", text + "; cut 2 201 401"},
		{"all cut off", "| the ticket may have expired", text + "; cut -1 201 401"},
		{"paused for less than a third", "order", text + "; pause 2 201 400"},
		{"paused twice without a heartbeat in between", "| the ticket may have expired",
			text + "; pause 2 201 300; pause 2 499 500"},
		{"paused twice with a heartbeat in between", "order", text + "; pause 2 201 300; pause 2 500 501"},
		{"cut off, and its ticket was safe yet", "order", text + "; cut 2 202 802"},
		{"paused, and perhaps not back", "| the ticket may have expired", passedLate + "; pause 2 100 950"},
		{"paused, and back", "order", passedLate + "; pause 2 100 899"},
		{"paused just before it was requested", "order", text + "; pause 2 -700 9"},
		{"another one was paused", "order", text + "; pause 3 201 401; pause 1 201 401"},
		{"data lost just before", "| order: Redis may have lost", text + "; loss 400 401"},
		{"data lost a WaiterTTL before", "| order: Redis may have lost", passedLate + "; loss 901 902"},
		{"data lost later", "order", text + "; loss 501.1 502"},
		{"data lost before it was requested", "order", text + "; loss 9 9.9"},
		{"data of another lock lost", "order", text + "; loss 400 401 y"},
	}))
}

func TestCheck_Tickets(t *testing.T) {
	const one = first + "10 2 request; 11 2 queued ticket=10000 \n"
	const lower = one + "12 3 request; 13 3 queued ticket=9999"
	check(t, []example{
		{"kept", "", one + "1001 2 granted ticket=10000 fence=20 until=2000"},
		{"queued twice", "form", one + "12 2 queued ticket=10000"},
		{"another one when it is granted it", "tickets", one + "1001 2 granted ticket=10001 fence=20 until=2000"},
		{"another one when it is granted it, after a step back of the clock", "tickets",
			one + "1001 2 granted ticket=10001 fence=20 until=2000; clockback"},
		{"none when it is granted it", "tickets", one + "1001 2 granted fence=20 until=2000"},
		{"one for two", "tickets", one + "10 3 request; 11 3 queued ticket=10000"},
		{"lower, requested just before", "", one + "10.9 3 request; 13 3 queued ticket=9999"},
		{"lower, requested later", "tickets", lower},
		{"lower than that of the last but one", "tickets",
			one + "10 4 request; 11 4 queued ticket=9000; 12 3 request; 13 3 queued ticket=9999"},
		{"lower, after a step back of the clock", "tickets", lower + "; clockback"},
		{"the same, after a loss of data", "| tickets: Redis may have lost",
			changed(t, lower, "ticket=9999", "ticket=10000") + "; loss 11.5 11.5"},
		{"lower, after a loss of data", "| tickets: Redis may have lost", lower + "; loss 11.5 11.5"},
		{"lower, after a loss of the number", "| tickets: Redis may have lost", lower + "; loss 11.5 11.5 x numbers"},
		{"lower, after a loss of the holder", "tickets", lower + "; loss 11.5 11.5 x holders"},
		{"lower, after an earlier loss of data", "tickets", lower + "; loss 5 5"},
	})
}

//fairlock:promise The checker notices
func TestCheck_Server(t *testing.T) {
	const other = "0 9 request lock=y; 1 9 granted lock=y fence=1 until=1000; server 1 owns 9 0 y"
	check(t, seen(other, []example{
		{"in order", "", "1 owns a; 2 joins b 2; 3 joins c 3; 4 ends a; 4 owns b; 5 ends b; 5 owns c; 6 ends c; 7 owns d"},
		{"granted to one behind the head", "server", "2 joins b 2; 3 joins c 3; 4 owns c"},
		{"granted to one that does not wait", "server", "2 joins b 2; 4 owns c"},
		{"granted while another one holds it", "server", "1 owns a; 2 joins b 2; 3 owns b"},
		{"granted to its holder again", "", "1 owns a; 2 owns a"},
		{"a holder joins", "server", "1 owns a; 2 joins a 2"},
		{"the head left", "", "2 joins b 2; 3 joins c 3; 4 leaves b; 5 owns c"},
		{"the head was dropped after its WaiterTTL", "",
			"2 joins b 2; 2 keeps b 6000; 3 joins c 3; 5000 drops b 5000; 5001 owns c"},
		{"the head was dropped before", "server", "2 joins b 2; 2 keeps b 6000; 3 joins c 3; 4999 drops b 4999; 5001 owns c"},
		{"dropped before its last heartbeat expired", "server",
			"2 joins b 2; 2 keeps b 6000; 3 keeps b 7000; 5500 drops b 5500"},
		{"dropped, unknown until when it keeps its ticket", "", "2 joins b 2; 4999 drops b 4999"},
		{"back by its ticket", "", "2 joins b 2; 3 joins c 3; 4 leaves b; 5 joins b 2; 6 owns b; 7 ends b; 7 owns c"},
		{"back, and passed", "server", "2 joins b 2; 3 joins c 3; 4 leaves b; 5 joins b 2; 7 owns c"},
		{"joins with another ticket", "server", "2 joins b 2; 3 joins c 3; 4 joins b 4; 6 owns c"},
		{"comes back with another ticket", "server", "2 joins b 2; 3 joins c 3; 4 leaves b; 5 joins b 1; 6 owns b"},
		{"its ticket was given to a lesser name", "", "2 joins c 2; 3 leaves c; 4 joins b 2; 5 joins c 2; 6 owns b"},
		{"its ticket was given to a greater name", "server", "2 joins b 2; 3 leaves b; 4 joins c 2; 5 joins b 2; 6 owns c"},
		{"joins before others", "server", "3 joins b 3; 4 joins c 2"},
		{"joins with the ticket of another one", "server", "3 joins b 3; 4 joins c 3"},
		{"joins before others, and something was missed", "| server: something was missed",
			"3 misses; 3 joins b 3; 4 joins c 2"},
		{"granted to one that does not wait, and something was missed", "| server: something was missed",
			"3 misses; 3 joins b 3; 4 owns c"},
		{"granted to one behind the head, and something was missed", "server | server: something was missed",
			"2 misses; 3 joins b 3; 4 joins c 4; 5 owns c"},
		{"all data lost", "", "1 owns a; 2 joins b 2; 3 deletes; 4 owns c; 5 joins d 5; 6 joins b 2; 7 ends c; 7 owns b"},
		{"all data lost, and joins before others", "server", "2 joins b 2; 3 deletes; 5 joins d 5; 6 joins b 1"},
		{"its queue was forgotten, and it is not back", "", "2 joins b 2; 3 joins c 3; 4 forgets; 5 joins c 3; 6 owns c"},
		{"its queue was forgotten, and it is back", "server",
			"2 joins b 2; 3 joins c 3; 4 forgets; 5 joins b 2; 6 joins c 3; 7 owns c"},
		{"another queue was forgotten", "server", "2 joins b 2; 3 joins c 3; 4 forgets - 0 y; 5 owns c"},
		{"unknown op", "server", "2 sleeps b"},
	}))
	const text = "0 1 request weight=2; 1 1 granted fence=1000 until=890; 2 2 request weight=3; 3 2 granted fence=2000 until=890"
	const owns = "; server 1 owns 1; server 2 owns 2"
	check(t, []example{
		{"permits", "", text + owns + "; permits 5"},
		{"too few permits", "server exclusion", text + owns + "; permits 4"},
		{"resized to fewer before", "server exclusion", text + "; server 1 resizes - 4" + owns + "; permits 5"},
		{"resized to more meanwhile", "", text + "; server 1 owns 1; server 2 resizes - 5; server 2 owns 2; permits 4"},
		{"resized to fewer afterwards", "", text + owns + "; server 3 resizes - 2; permits 5"},
	})
}

func TestCheck_ServerAgreesWithClients(t *testing.T) {
	const text = `
		0 1 request; 1 1 granted fence=1000 until=890; 10 2 request; 11 2 queued ticket=10000; 500 1 unlock
		502 1 released; 501 2 granted ticket=10000 fence=501000 until=1390`
	check(t, seen(text, []example{
		{"all", "", "1 owns 1; 2 joins 2 10000; 3 ends 1; 3 owns 2"},
		{"a grant more, of which its client did not hear", "",
			"1 owns a; 1 ends a; 1 owns 1; 2 joins 2 10000; 3 ends 1; 3 owns 2"},
		{"one more for nobody, after it had ended", "",
			"1 owns 1; 1 lasts 1 1000 x 1000; 2 joins 2 10000; 3 ends 1; 3 owns 2; 4 ends 2; 5 owns 1; 5 lasts 1 2000 x 5000"},
		{"no grant", "server", "1 owns 1; 2 joins 2 10000"},
		{"no grant, and something was missed", "| server: something was missed",
			"1000 owns 1; 1001 joins 2 10000; 1002 misses"},
		{"another order", "server", "2 joins 2 10000; 3 owns 2; 3 ends 2; 3 owns 1"},
		{"another ticket", "server", "1 owns 1; 2 joins 2 10001; 3 ends 1; 3 owns 2"},
		{"no ticket", "server", "1 owns 1; 3 ends 1; 3 owns 2"},
	}))
	check(t, seen(text+"; loss 600 601", []example{{"granted again after a loss of data", "| server: Redis may have lost",
		"1 owns 1; 2 joins 2 10000; 3 ends 1; 3 owns 2; 4 deletes; 5 owns 1"}}))
}

func TestCheck_SortsEvents(t *testing.T) {
	all, run := parse(t, first+"10 1 unlock \n 11 1 released")
	slices.Reverse(all)
	require.NoError(t, history.Check(all, run).Err())
	assert.Equal(t, history.Released, all[0].Op, "the caller's events were moved")
}

func TestReport(t *testing.T) {
	text := first + "2 2 request \n 50 2 granted fence=20 until=1050 \n loss 48 50"
	events, run := parse(t, text)
	report := history.Check(events, run).String()
	assert.Equal(t, "2 grants\n1 not checked: exclusion: Redis may have lost its data in between", report)
	for i := range 30 {
		text += fmt.Sprintf("\n 10 %d unlock", i+3)
	}
	events, run = parse(t, text)
	err := history.Check(events, run).Err()
	require.ErrorContains(t, err, `form: client 3 worker 0 call 0: "unlock" cannot follow on ""`)
	require.ErrorContains(t, err, "30 violations in all")
	assert.Equal(t, 20, strings.Count(err.Error(), "cannot follow"))
}

func TestStory(t *testing.T) {
	events := []history.Event{
		{At: 2e9, Process: 2, Op: history.Request, Lock: "x", Weight: 3},
		{At: 1e9, Process: 1, Call: 7, Op: history.Granted, Lock: "x", Token: "t", Fence: 10, Ticket: 5, Until: 3e9,
			Err: "none"},
	}
	assert.Equal(t, `
     1.000000s  client 1 worker 0 call 7  granted    x  ticket 5  fence 10  until 3.000000s  token t  error none
     1.500000s  a fault
     2.000000s  client 2 worker 0 call 0  request    x  weight 3
`, "\n"+history.Story(events, []history.Note{{At: 1.5e9, Text: "a fault"}}))
}
