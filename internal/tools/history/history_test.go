package history_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// at is a time of a history, in ms.
func at(ms float64) int64 { return int64((1_000_000 + ms) * 1e6) }

// token is that of a client's only call.
func token(client any) string { return fmt.Sprintf("p:%022v", client) }

// parse reads a history. testdata/histories.txt describes the lines.
func parse(t *testing.T, text string) (events []history.Event, run history.Run) {
	t.Helper()
	run = history.Run{TTL: 5 * time.Second, WaiterTTL: 5 * time.Second, Capacity: map[string]int{}}
	for line := range strings.SplitSeq(text, ";") {
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
		default:
			if _, err := strconv.Atoi(words[1]); err == nil {
				events = append(events, event(t, words))
			} else {
				run.Server = append(run.Server, serverEvent(words, number))
			}
		}
	}
	return events, run
}

// event reads "<ms> <client> <op> [key=value]…".
func event(t *testing.T, words []string) (e history.Event) {
	t.Helper()
	number := func(text string) any {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
		return text
	}
	ms, ok := number(words[0]).(float64)
	require.True(t, ok, words)
	fields := map[string]any{
		"at": at(ms), "process": number(words[1]), "op": strings.ReplaceAll(words[2], "_", " "), "lock": "x",
	}
	if history.Op(words[2]) != history.Request {
		fields["token"] = token(words[1])
	}
	for _, word := range slices.DeleteFunc(words[3:], func(word string) bool { return word == "" }) {
		key, value, _ := strings.Cut(word, "=")
		fields[key] = number(value)
		switch key {
		case "until":
			fields[key] = at(fields[key].(float64))
		case "err":
			fields[key] = map[string]string{
				"taken": "lock is lost: no longer the owner", "expired": "lock is lost: lease expired", "closed": "client is closed",
			}[value]
		}
	}
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&e), words)
	return e
}

// serverEvent reads "<µs> <op> [<token or client> [<ticket or until> [<lock>]]]".
func serverEvent(words []string, number func(int) float64) history.ServerEvent {
	e := history.ServerEvent{
		At: int64(number(0)), Op: history.ServerOp(words[1]), Token: words[2], Lock: cmp.Or(words[4], "x"),
	}
	switch n := number(3); e.Op {
	case history.Lasts:
		e.Until, e.Seen, e.Ticket = at(n), at(number(0)), uint64(cmp.Or(number(5), 10))
	case history.Resizes:
		e.Seen, e.Ticket = at(number(0)), uint64(n)
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
	return e
}

// block matches one of testdata/histories.txt: its name, what it is, its lines.
var block = regexp.MustCompile(`(?m)^(\w.*?) (:=|=>).*\n((?:\t.*\n)*)`)

// Histories that are wrong on purpose are refused, and right ones accepted.
//
//fairlock:promise The checker notices: histories made wrong on purpose: overlapping leases, a waiter that is passed, a repeated or falling fence, a live lease that is reported lost, a grant to one behind the head of the queue
func TestCheck(t *testing.T) {
	const file = "histories.txt"
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	named := map[string]string{}
	expand := func(lines string) (all string) {
		var edits []string
		for item := range strings.SplitSeq(lines, "\n") {
			if edit, ok := strings.CutPrefix(item, "\treplace "); ok {
				from, to, _ := strings.Cut(edit, " ->")
				require.Contains(t, all, from)
				edits = append(edits, from, strings.TrimSpace(to))
				continue
			}
			for event := range strings.SplitSeq(item, ";") {
				event = strings.TrimSpace(event)
				all += cmp.Or(named[event], event) + ";"
			}
		}
		return strings.NewReplacer(edits...).Replace(all)
	}
	golden.Equal(t, file, block.ReplaceAllStringFunc(string(text), func(b string) string {
		parts := block.FindStringSubmatch(b)
		name, lines := parts[1], parts[3]
		if parts[2] == ":=" {
			named[name] = expand(lines)
			return b
		}
		events, run := parse(t, named["begin"]+expand(lines))
		report := history.Check(events, run)
		found := map[string]bool{}
		for _, v := range report.Violations {
			found[string(v.Rule)] = true
		}
		for excuse := range report.Excused {
			found["not checked: "+excuse] = true
		}
		assert.Equal(t, len(report.Violations) > 0, report.Err() != nil, name)
		finding := cmp.Or(strings.Join(slices.Sorted(maps.Keys(found)), "; "), "nothing")
		return fmt.Sprintf("%s => %s\n%s", name, finding, lines)
	}))
}

func TestCheck_SortsEvents(t *testing.T) {
	all, run := parse(t, "0 1 request; 1 1 granted fence=10 until=1000; 10 1 unlock; 11 1 released")
	slices.Reverse(all)
	require.NoError(t, history.Check(all, run).Err())
	assert.Equal(t, history.Released, all[0].Op, "the caller's events were moved")
}

func TestReport(t *testing.T) {
	text := "0 1 request; 1 1 granted fence=10 until=1000; 2 2 request; 50 2 granted fence=20 until=1050; loss 48 50"
	events, run := parse(t, text)
	report := history.Check(events, run).String()
	assert.Equal(t, "2 grants\n1 not checked: exclusion: Redis may have lost its data in between", report)
	for i := range 30 {
		text += fmt.Sprintf("; 10 %d unlock", i+3)
	}
	events, run = parse(t, text)
	err := history.Check(events, run).Err()
	require.ErrorContains(t, err, `form: client 3 worker 0 call 0: "unlock" cannot follow on ""`)
	require.ErrorContains(t, err, "30 violations in all")
	assert.Equal(t, 20, strings.Count(err.Error(), "cannot follow"))
}
