// Package linear checks a history, also by looking for one order of its operations.
package linear

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlock/fairlock-go/internal/history"
)

const (
	limit   = time.Minute // of the search for an order of one part
	partLen = 250         // grants: what porcupine needs grows with the square
)

// Check checks a history against all rules: those of history.Check, and Linear: its operations, each at one moment of
// its interval, have one order that a lock allows. A grant needs the permits and follows on the grant with the next
// lower fence; a lease is renewed and ends while it is held.
func Check(events []history.Event, run history.Run) *history.Report {
	report := history.Check(events, run)
	for _, grants := range history.GrantsInOrder(events, run) {
		following := int64(math.MaxInt64) // the first end of an operation after this part
		for _, part := range slices.Backward(parts(grants)) {
			all, end := operations(part), following
			for i := range all {
				end = min(end, all[i].To)
				all[i].To = min(all[i].To, following)
				if all[i].From > all[i].To {
					report.Violate(history.Linear, part[0].Lock, nil, "%v: not before %s, and by %s", all[i], report.Time(all[i].From),
						report.Time(all[i].To))
					all[i].To = all[i].From
				}
			}
			if wrong := check(part[0].Capacity, all, report.Time); wrong != "" {
				report.Violate(history.Linear, part[0].Lock, nil, "%s", wrong)
			}
			following = end
		}
	}
	return report
}

// parts cuts a list of grants where nobody else can hold the lock.
func parts(grants []history.Grant) (list [][]history.Grant) {
	from := 0
	for i, g := range grants {
		if g.Weight == g.Capacity && i-from >= partLen {
			list = append(list, grants[from:i])
			from = i
		}
	}
	if from < len(grants) {
		list = append(list, grants[from:])
	}
	return list
}

// operation is something that took effect at one moment of its interval.
type operation struct {
	does   string // is granted, renews, frees
	grant  int    // in its part
	weight int
	text   string
	history.Interval
}

func (o operation) String() string { return o.text + " " + o.does + " the lock" }

func operations(grants []history.Grant) (all []operation) {
	for i, g := range grants {
		all = append(all, operation{"is granted", i, g.Weight, g.Text, g.Made}, operation{"frees", i, g.Weight, g.Text, g.Freed})
		if g.Renewed.To != 0 {
			all = append(all, operation{"renews", i, g.Weight, g.Text, g.Renewed})
		}
	}
	return all
}

// state is that of a lock.
type state struct {
	made, used int
	holders    []int // numbers of grants
}

// model is a lock of some capacity, which is free at first.
func model(capacity int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(before, in, _ any) (bool, any) {
			s, o := before.(state), in.(operation)
			i := slices.Index(s.holders, o.grant)
			switch o.does {
			case "renews":
				return i >= 0, s
			case "frees":
				if i < 0 {
					return false, s
				}
				return true, state{s.made, s.used - o.weight, slices.Delete(slices.Clone(s.holders), i, i+1)}
			}
			return s.made == o.grant && s.used+o.weight <= capacity, state{s.made + 1, s.used + o.weight, append(slices.Clip(s.holders), o.grant)}
		},
		Equal: func(a, b any) bool {
			return a.(state).made == b.(state).made && slices.Equal(a.(state).holders, b.(state).holders)
		},
		Hash: func(s any) uint64 { return uint64(s.(state).made)<<32 + uint64(s.(state).used) },
	}
}

// check returns why operations have no order, or "".
func check(capacity int, all []operation, show func(int64) string) string {
	list := make([]porcupine.Operation, len(all))
	for i, o := range all {
		list[i] = porcupine.Operation{Input: o, Call: o.From, Return: o.To}
	}
	switch porcupine.CheckOperationsTimeout(model(capacity), list, limit) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("whether %d operations have an order was not found within %v", len(all), limit)
	}
	_, info := porcupine.CheckOperationsVerbose(model(capacity), list, limit)
	var longest []int
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	text, blocked := "there is no order of all operations", -1
	for i, o := range all {
		if !slices.Contains(longest, i) && (blocked < 0 || o.To < all[blocked].To) {
			blocked = i
		}
	}
	if len(longest) > 0 {
		o := all[longest[len(longest)-1]]
		text += fmt.Sprintf("; the longest ends with: %v, from %s on", o, show(o.From))
	}
	if blocked >= 0 {
		text += fmt.Sprintf("; this does not fit: %v, by %s", all[blocked], show(all[blocked].To))
	}
	return text
}
