//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/monitor"
)

// check checks the history. A run in which too little has happened has shown nothing, which is a failure.
func (t *trial) check(scale float64) {
	t.t.Helper()
	var record monitor.Record // of several servers there is none
	if t.monitor != nil {
		record = t.monitor.Close()
	}
	assert.Empty(t.t, record.Faults, "seen in Redis")
	events, err := readEvents(t.dir)
	require.NoError(t.t, err)
	if t.monitor != nil && !t.scenario.skewed {
		t.checkTrust(record, events)
	}
	if t.scenario.net == nil {
		t.checkLeft(record.Seen, events)
	} else {
		t.run.Unreachable = append(t.run.Unreachable, unreachable(record.Seen, events)...)
	}
	for _, s := range t.slots {
		for _, number := range s.numbers {
			for _, span := range s.unreachable {
				t.run.Unreachable = append(t.run.Unreachable, history.Span{Process: number, From: span.From, To: span.To})
			}
		}
	}
	for _, s := range record.Seen {
		t.run.Server = append(t.run.Server, s.ServerEvent)
	}
	t.save(events, record.Seen, t.run)
	report := history.Check(events, t.run)
	t.t.Logf("%v", report)
	if err := report.Err(); err != nil {
		t.t.Error(err)
	}
	t.counts = t.counted(events)
	if t.scenario.notified {
		assert.LessOrEqual(t.t, t.counts["notifications lost"], t.counts["handoffs used without a request"])
	}
	for _, name := range slices.Sorted(maps.Keys(t.counts)) {
		t.t.Logf("%7d %s", t.counts[name], name)
	}
	assert.Empty(t.t, t.lacking(t.counts, scale), "too little has happened")
}

// save writes what the history was checked with, and the history with all faults for people, beside the logs.
func (t *trial) save(events []history.Event, seen []monitor.Sighting, run history.Run) {
	t.t.Helper()
	text, err := json.MarshalIndent(run, "", " ")
	require.NoError(t.t, err)
	notes := slices.Clone(t.log)
	for _, s := range seen {
		notes = append(notes, history.Note{At: s.Told, Text: fmt.Sprintf("server  %+v", s.ServerEvent)})
	}
	for name, content := range map[string]string{
		"run.json": string(text), "story.txt": history.Story(events, notes),
	} {
		assert.NoError(t.t, os.WriteFile(filepath.Join(t.dir, name), []byte(content), 0o600))
	}
}

// checkTrust checks that no client trusts its lease for longer than it lasts in Redis. It leaves out leases whose
// changes the monitor may have missed.
func (t *trial) checkTrust(record monitor.Record, events []history.Event) {
	t.t.Helper()
	byToken := map[string][]history.Span{}
	for i, lease := range leases(record.Leases) {
		token := record.Leases[i].Token
		byToken[token] = append(byToken[token], lease)
	}
	var missed []int64
	for _, s := range record.Seen {
		if s.Op == history.Misses {
			missed = append(missed, s.Told)
		}
	}
	checked := 0
	for _, e := range events {
		if e.Until == 0 || e.Op == history.Request {
			continue
		}
		var last history.Span
		for _, l := range byToken[e.Token] {
			if l.From <= e.At+int64(ttl/20) { // far less than between two renewals
				last = history.Span{From: l.From, To: max(last.To, l.To)}
			}
		}
		if last.To == 0 { // it hung when the lease began; the holders are checked without it
			t.counts["trusted times of leases that the monitor has not seen"]++
			continue
		}
		// The monitor may notice a little later that it missed something.
		if slices.ContainsFunc(missed, func(at int64) bool { return at >= last.From-int64(ttl) && at <= e.At+int64(ttl/4) }) {
			continue
		}
		if checked++; e.Until > last.To+int64(ms) {
			t.t.Errorf("trust: lock %q: process %d call %d trusts its lease for %v longer than it lasts in Redis: %+v",
				e.Lock, e.Process, e.Call, time.Duration(e.Until-last.To), e)
		}
	}
	t.counts["trusted times compared with leases in Redis"] = checked
}

// leases converts when leases began and end from Redis's time into that of events. Both clocks run alike, and a lease
// was told after it began; so the difference is the least that was seen within a second.
func leases(list []monitor.Lease) []history.Span {
	converted := make([]history.Span, len(list))
	first, after := 0, 0
	for i, l := range list {
		for list[first].Told < l.Told-int64(sec) {
			first++
		}
		for after < len(list) && list[after].Told < l.Told+int64(sec) {
			after++
		}
		ahead := l.Told - l.At*1000
		for _, near := range list[first:after] {
			ahead = min(ahead, near.Told-near.At*1000)
		}
		converted[i].From = l.At*1000 + ahead
		converted[i].To = converted[i].From + int64(l.Lasts)
	}
	return converted
}

// checkLeft checks that those that gave up have left the queue a second later, unless something happened to their
// process or to Redis.
func (t *trial) checkLeft(seen []monitor.Sighting, events []history.Event) {
	t.t.Helper()
	const soon = int64(sec)
	gone := map[string]history.Event{}
	for _, e := range events {
		if e.Op == history.Failed && e.Token != "" {
			gone[e.Token] = e
		}
	}
	disturbed := func(e history.Event) bool {
		spans := slices.Concat(t.run.Kills, t.run.Pauses, t.run.Unreachable)
		if !t.scenario.skewed { // a step of the clock loses no such thing
			for _, l := range t.run.Losses {
				spans = append(spans, history.Span{Process: history.All, From: l.From, To: l.To})
			}
		}
		return slices.ContainsFunc(spans, func(s history.Span) bool {
			return (s.Process == e.Process || s.Process == history.All) && s.From < e.At+soon && s.To > e.At-soon
		})
	}
	for _, s := range seen {
		e, ok := gone[s.Token]
		if ok && s.Told > e.At+soon && (s.Op == history.Owns || s.Op == history.Drops) && !disturbed(e) {
			t.t.Errorf("it gave up, and %v later Redis says that it %s: %+v", time.Duration(s.Told-e.At), s.Op, e)
		}
	}
	t.counts["gave up while queued"] = len(gone)
}

// unreachable returns the times in which processes cannot have reached Redis in a network that loses messages. They
// begin with the last heartbeat of a waiter that was dropped or did not use its grant, and end when it came back. (That
// Redis did so rightly is checked by the rule Server.) Where the monitor missed something nobody knows.
func unreachable(seen []monitor.Sighting, events []history.Event) (list []history.Span) {
	clients, took := map[string]int{}, map[string]bool{}
	for _, e := range events {
		if e.Token != "" {
			clients[e.Token] = e.Process
			took[e.Token] = took[e.Token] || e.Op == history.Granted
		}
	}
	kept, since := map[string]int64{}, map[string]history.Span{}
	for _, s := range seen {
		client, known := clients[s.Token]
		switch {
		case s.Op == history.Misses:
			list = append(list, history.Span{Process: history.All, From: s.Told - int64(waiterTTL),
				To: s.Told + int64(waiterTTL)})
		case s.Op == history.Keeps:
			kept[s.Token] = s.Told
		case !known:
		case s.Op == history.Owns || s.Op == history.Drops:
			from, ok := kept[s.Token]
			if !ok { // it was granted the lock at once
				from = s.Told
			}
			since[s.Token] = history.Span{Process: client, From: from, To: s.Told + int64(max(ttl, waiterTTL))}
		case s.Op == history.Joins:
			if span, ok := since[s.Token]; ok {
				span.To = s.Told
				list = append(list, span)
				delete(since, s.Token)
			}
		}
	}
	for _, token := range slices.Sorted(maps.Keys(since)) {
		if !took[token] {
			list = append(list, since[token])
		}
	}
	return list
}
