package chaos_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
	"github.com/fairlock/fairlock-go/chaos/internal/monitor"
)

// judge holds the run to what was promised. One in which too little has happened is void: it has shown nothing.
func (w *world) judge(scale float64) {
	w.t.Helper()
	record := w.witness.Close()
	seen := record.Seen
	for _, fault := range record.Faults {
		w.t.Errorf("seen in Redis: %s", fault)
	}
	events, err := history.Read(w.dir)
	require.NoError(w.t, err)
	if !w.kind.skewed {
		w.judgeBeliefs(record, events)
	}
	if w.kind.net == nil {
		w.judgeLeavers(seen, events)
	}
	for _, s := range w.slots {
		w.weigh(s)
	}
	if w.kind.net != nil {
		w.run.Silences = append(w.run.Silences, unheard(seen, events)...)
	}
	save(w.t, w.dir, "faults.json", w.log)
	save(w.t, w.dir, "run.json", w.run)
	save(w.t, w.dir, "witness.json", seen)
	for _, s := range seen {
		w.run.Witness = append(w.run.Witness, s.Witness)
	}
	w.run.Pictures = w.dir

	run := w.run
	run.Losses = slices.Concat(w.run.Losses, w.quiet)
	assertHistory(w.t, events, run, func(v history.Violation) bool { return !excused(v, run, w.kind.skewed) })
	if len(w.quiet) > 0 {
		w.t.Log("… and to exclusion and order where Redis has lost its data and nobody asked who did not wait:")
		assertHistory(w.t, events, w.run, func(v history.Violation) bool {
			return slices.Contains([]history.Rule{history.Exclusion, history.Use, history.Order, history.Fences}, v.Rule)
		})
	}
	w.counts = w.counted(events)
	if handed, lost := w.counts["hand-overs used without asking"], w.counts["wake-ups lost"]; w.kind.wakes && lost > handed {
		w.t.Errorf("%d wake-ups were lost, more than the %d hand-overs that were used without asking", lost, handed)
	}
	for _, name := range slices.Sorted(maps.Keys(w.counts)) {
		w.t.Logf("%7d %s", w.counts[name], name)
	}
	assert.Empty(w.t, w.lacking(w.counts, scale), "the run is void")
}

// lacking tells what has not happened as often as it must have at least.
func (w *world) lacking(counts map[string]int, scale float64) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(w.kind.least)) {
		if least := max(1, int(float64(w.kind.least[name])*scale)); counts[name] < least {
			list = append(list, fmt.Sprintf("%s: %d, less than %d", name, counts[name], least))
		}
	}
	return list
}

// judgeBeliefs holds what clients believe to what Redis has granted: no belief outlasts the lease in Redis. A lease is
// not judged of which the witness may have missed something.
func (w *world) judgeBeliefs(record monitor.Record, events []history.Event) {
	w.t.Helper()
	ends := leaseEnds(record.Leases)
	byToken := map[string][]leaseEnd{}
	for i, l := range record.Leases {
		byToken[l.Token] = append(byToken[l.Token], ends[i])
	}
	var blind []int64
	for _, s := range record.Seen {
		if s.Op == history.Blind {
			blind = append(blind, s.Told)
		}
	}
	judged := 0
	for _, e := range events {
		if e.Until == 0 || e.Op == history.Ask {
			continue
		}
		var last leaseEnd
		for _, l := range byToken[e.Token] {
			if l.from <= e.At+int64(ttl/20) { // far less than between two renewals
				last.from, last.to = l.from, max(last.to, l.to)
			}
		}
		// That it went blind the witness notes perhaps a little later.
		if slices.ContainsFunc(blind, func(t int64) bool { return t >= last.from-int64(ttl) && t <= e.At+int64(ttl/4) }) {
			continue
		}
		if judged++; e.Until > last.to+int64(time.Millisecond) {
			w.t.Errorf("belief: lock %q: process %d call %d believes in its lease for %v longer than it lasts in Redis: %+v",
				e.Lock, e.Process, e.Call, time.Duration(e.Until-last.to), e)
		}
	}
	w.counts["beliefs held to Redis's lease"] = judged
}

// judgeLeavers holds those who gave up to be out of the queue a second later, unless something happened to their process
// or to Redis.
func (w *world) judgeLeavers(seen []monitor.Sighting, events []history.Event) {
	w.t.Helper()
	const soon = int64(time.Second)
	gone := map[string]history.Event{}
	for _, e := range events {
		if e.Op == history.Failed && e.Token != "" {
			gone[e.Token] = e
		}
	}
	disturbed := func(e history.Event) bool {
		during := func(s history.Span) bool {
			return (s.Process == e.Process || s.Process == history.Everybody) && s.From < e.At+soon && s.To > e.At-soon
		}
		if slices.ContainsFunc(slices.Concat(w.run.Kills, w.run.Stops, w.run.Silences), during) {
			return true
		}
		// Redis may have lost that it left, up to a second before it was killed. A step of the clock loses no such thing.
		return !w.kind.skewed && slices.ContainsFunc(w.run.Losses, func(l history.Loss) bool {
			return during(history.Span{Process: history.Everybody, From: l.From, To: l.To})
		})
	}
	for _, s := range seen {
		e, ok := gone[s.Token]
		if ok && s.Told > e.At+soon && (s.Op == history.Given || s.Op == history.Dropped) && !disturbed(e) {
			w.t.Errorf("it gave up, and %v later it is %s: %+v", time.Duration(s.Told-e.At), s.Op, e)
		}
	}
	w.counts["gave up while queued"] = len(gone)
}

// leaseEnd is when a lease was granted or renewed in Redis, and until when, in ns as in an Event.
type leaseEnd struct{ from, to int64 }

// leaseEnds turns Redis's time into the events'. Both go on alike, and what was told of a command was told after it; so
// the difference is the least that was seen, a second before or after.
func leaseEnds(leases []monitor.Lease) []leaseEnd {
	ends := make([]leaseEnd, len(leases))
	first, after := 0, 0
	for i, l := range leases {
		for leases[first].Told < l.Told-int64(time.Second) {
			first++
		}
		for after < len(leases) && leases[after].Told < l.Told+int64(time.Second) {
			after++
		}
		ahead := l.Told - l.At*1000
		for _, near := range leases[first:after] {
			ahead = min(ahead, near.Told-near.At*1000)
		}
		ends[i].from = l.At*1000 + ahead
		ends[i].to = ends[i].from + int64(l.Lasts)
	}
	return ends
}

// weigh adds what the network of a slot did to its processes.
func (w *world) weigh(s *slot) {
	if s.proxy == nil {
		return
	}
	for _, number := range s.numbers {
		for _, deaf := range s.deaf {
			w.run.Silences = append(w.run.Silences, history.Span{Process: number, From: deaf.From, To: deaf.To})
		}
	}
}

// unheard is when processes cannot have been heard, or have heard, in a network that loses messages: from when one of
// their waiters was last heard of before Redis dropped it or granted it the lock, until it came back, if it did not
// take what it was granted. That Redis may do so is judged by the witness. Where that has missed something nobody knows.
func unheard(seen []monitor.Sighting, events []history.Event) (list []history.Span) {
	processes, took := map[string]int{}, map[string]bool{}
	for _, e := range events {
		if e.Token != "" {
			processes[e.Token] = e.Process
			took[e.Token] = took[e.Token] || e.Op == history.Granted
		}
	}
	short := func(token string) string { return token[max(0, len(token)-14):] } // as it is told to be heard of
	heard, since := map[string]int64{}, map[string]history.Span{}
	for _, s := range seen {
		switch {
		case s.Op == history.Blind:
			list = append(list, history.Span{
				Process: history.Everybody, From: s.Told - int64(patience), To: s.Told + int64(patience),
			})
			continue
		case s.Op == history.Heard && s.Until > 0:
			heard[short(s.Token)] = s.Told
			continue
		}
		number, ok := processes[s.Token]
		if !ok {
			continue
		}
		switch s.Op {
		case history.Given, history.Dropped:
			from, ok := heard[short(s.Token)]
			if !ok { // it got in without waiting
				from = s.Told
			}
			since[s.Token] = history.Span{Process: number, From: from, To: s.Told + int64(max(ttl, patience))}
		case history.Joins:
			if span, ok := since[s.Token]; ok {
				span.To = s.Told
				list = append(list, span)
				delete(since, s.Token)
			}
		}
	}
	for token, span := range since {
		if !took[token] {
			list = append(list, span)
		}
	}
	return list
}

// excused reports whether a violation is none, for reasons that the checker does not know.
func excused(v history.Violation, run history.Run, skewed bool) bool {
	switch {
	case v.Rule == history.Tickets && skewed:
		// When the server's clock has stepped back, the tickets of those who have left are given again. Each keeps its own.
		first, last := v.Events[0], v.Events[len(v.Events)-1]
		return first.Process != last.Process || first.Call != last.Call
	case v.Rule == history.Order && skewed:
		// … and who comes then can have a lower ticket than somebody who has been granted the lock before; but none that is
		// lower than the fence of that grant.
		var passed uint64
		for _, e := range v.Events {
			switch e.Op {
			case history.Queued:
				passed = e.Ticket
			case history.Granted:
				return passed > e.Fence
			}
		}
	case skewed && slices.Contains([]history.Rule{history.Fences, history.Server, history.Linear}, v.Rule) &&
		len(v.Events) == 2 && lostBetween(run, v.Events):
		// Redis had lost the last fence, and its clock had stepped behind the one that gave it.
		return true
	case v.Rule == history.Server && len(v.Events) == 2:
		// What Redis has lost may have been that somebody has left the queue. So he is granted the lock again, unheard.
		return slices.ContainsFunc(run.Losses, func(l history.Loss) bool { return l.To > v.Events[0].At })
	}
	return false
}

// lostBetween reports whether Redis lost something between two events, whichever was the first.
func lostBetween(run history.Run, events []history.Event) bool {
	first, last := min(events[0].At, events[1].At), max(events[0].At, events[1].At)
	return slices.ContainsFunc(run.Losses, func(l history.Loss) bool { return l.From < last && l.To > first })
}

// assertHistory checks a history. A violation counts if it does so by count.
func assertHistory(t *testing.T, events []history.Event, run history.Run, count func(history.Violation) bool) {
	t.Helper()
	report := history.Check(events, run)
	t.Logf("%v", report)
	for rule, n := range report.Broken {
		assert.LessOrEqual(t, n, history.MostListed, "%s: not all of its violations are listed, so none is excused", rule)
	}
	for _, v := range report.Violations {
		if !count(v) {
			continue
		}
		var text strings.Builder
		for _, e := range v.Events {
			line, err := json.Marshal(e)
			require.NoError(t, err)
			text.WriteString("\n    " + string(line))
		}
		t.Errorf("%v%s", v, &text)
	}
}

func save(t *testing.T, dir, name string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	require.NoError(t, err)
	assert.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
}

// counted is what has happened, with what the networks did and what has become of the acquisitions.
func (w *world) counted(events []history.Event) map[string]int {
	w.mu.Lock()
	counts := maps.Clone(w.counts)
	w.mu.Unlock()
	for _, s := range w.slots {
		if s.proxy == nil {
			continue
		}
		c := s.proxy.Counts()
		counts["requests lost"] += c.Requests
		counts["replies lost"] += c.Replies
		counts["requests late"] += c.Late
		counts["messages to the deaf"] += c.Unheard
		counts["connections reset"] += c.Reset
		counts["connections silent"] += c.Silent
	}
	for _, e := range events {
		counts["events: "+string(e.Op)]++
	}
	return counts
}

func TestAWaitersOwnTicketIsKeptAlsoWhenTheClockSteps(t *testing.T) {
	had := history.Event{Process: 1, Call: 7, Op: history.Queued, Ticket: 5}
	has, other := had, had
	has.Ticket, other.Call = 4, 8
	tickets := func(events ...history.Event) history.Violation {
		return history.Violation{Rule: history.Tickets, Events: events}
	}
	assert.False(t, excused(tickets(had, has), history.Run{}, true))
	assert.True(t, excused(tickets(had, other), history.Run{}, true))
	assert.False(t, excused(tickets(had, other), history.Run{}, false))
}
