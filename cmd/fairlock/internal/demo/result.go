package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// conclude checks the recorded events, and writes a summary. failed is the error that has ended the demo, or nil.
func (d *demo) conclude(failed error) error {
	events := slices.SortedStableFunc(slices.Values(d.events),
		func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	run := history.Run{TTL: d.TTL, WaiterTTL: d.WaiterTTL, Capacity: map[string]int{d.lock: d.Capacity()}}
	for _, c := range d.crashes {
		run.Kills = append(run.Kills, c.Span)
	}
	report := history.Check(events, run)
	waits, handoffs := d.measure(events)
	var b strings.Builder
	row := func(label, text string) { fmt.Fprintf(&b, "  %-10s%s\n", label, text) }
	fmt.Fprintf(&b, "\n%s\n\n", d.title())
	row("grants", d.stats())
	row("wait", percentiles(waits)+"   until Lock returns")
	row("handoff", percentiles(handoffs)+"   from Unlock until the Lock of a waiter returns")
	for _, c := range d.crashes {
		stalled := brief(stall(events, c.From, c.From+int64(d.crashCosts())))
		row(clientName(c.Process), fmt.Sprintf("killed %s; no grant for %v then", c.how, stalled))
	}
	row("TTL", fmt.Sprintf("%v; WaiterTTL %v", d.TTL, d.WaiterTTL))
	for _, excuse := range strings.Split(report.String(), "\n")[1:] {
		row("", excuse)
	}
	colour, word, text := lipgloss.Green, "ok", "strict FIFO, and never held by more than its kind allows"
	if broken := report.Err(); broken != nil && (failed == nil || report.Grants > 0) {
		colour, word, text = lipgloss.Red, "FAILED", broken.Error()
		failed = fmt.Errorf("the lock broke its promises: %d violations", len(report.Violations))
	} else if failed != nil {
		colour, word, text = lipgloss.Red, "UNFINISHED", "until then "+text
	}
	_, _ = lipgloss.Fprintf(d.out, "%s\n%s  %s\n", &b, lipgloss.NewStyle().Foreground(colour).Render(word), text)
	return failed
}

// measure returns how long each Lock and each handoff took. While a killed client delays the others, there are no
// handoffs.
func (d *demo) measure(events []history.Event) (waits, handoffs []time.Duration) {
	type call struct{ process, number int }
	requested, queued, released := map[call]int64{}, map[call]int64{}, int64(0)
	for _, e := range events {
		c := call{e.Process, e.Call}
		switch e.Op {
		case history.Request:
			requested[c] = e.At
		case history.Queued:
			queued[c] = cmp.Or(queued[c], e.At)
		case history.Granted:
			waits = append(waits, time.Duration(e.At-requested[c]))
			delayed := slices.ContainsFunc(d.crashes, func(k crash) bool {
				return k.From < e.At &&
					e.At < k.From+int64(d.crashCosts())
			})
			if queued[c] > 0 && queued[c] < released && !delayed {
				handoffs = append(handoffs, time.Duration(e.At-released))
			}
		case history.Unlock:
			released = e.At
		}
	}
	return waits, handoffs
}

// stall is the longest time without a grant that began between two times.
func stall(events []history.Event, from, to int64) time.Duration {
	longest, last := int64(0), from
	for _, e := range events {
		if e.Op == history.Granted && from < e.At && last < to {
			longest, last = max(longest, e.At-last), e.At
		}
	}
	return time.Duration(longest)
}

// percentiles returns some percentiles as text, by nearest rank.
func percentiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	rank := func(percent int) time.Duration { return brief(all[(len(all)*percent+99)/100-1]) }
	return fmt.Sprintf("p50 %v  p99 %v", rank(50), rank(99))
}

// brief rounds a duration to three digits.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
