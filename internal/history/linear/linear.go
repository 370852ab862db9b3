// Package linear checks a history, also by looking for one order of its operations.
package linear

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlock/fairlock-go/internal/history"
)

const (
	limit   = time.Minute // of the search for an order of one part
	partLen = 250         // grants: what porcupine needs grows with the square
)

// Check checks a history against all rules: those of history.Check, and Linear: its operations, each at one moment of
// its interval, have one order that a lock allows. A grant needs its permits and follows on the one with the next lower
// fence; a lease is renewed, and ends, while it is held.
func Check(events []history.Event, run history.Run) *history.Report {
	report := history.Check(events, run)
	for _, grants := range history.GrantsInOrder(events, run) {
		following := int64(math.MaxInt64) // by when the first operation after this part was done
		for _, part := range slices.Backward(parts(grants)) {
			all, end := operations(part), following
			for i := range all {
				o := &all[i]
				end = min(end, o.To)
				if o.To = min(o.To, following); o.From > o.To {
					report.Violate(history.Linear, part[0].Lock, nil, "%v not before %s and by %s", o, report.Time(o.From), report.Time(o.To))
					o.To = o.From
				}
			}
			if wrong := check(part, all, report.Time); wrong != "" {
				report.Violate(history.Linear, part[0].Lock, nil, "%s", wrong)
			}
			following = end
		}
	}
	return report
}

// parts cuts a list of grants where all permits must be free.
func parts(grants []history.Grant) (list [][]history.Grant) {
	for from, i := 0, 1; i <= len(grants); i++ {
		if i == len(grants) || grants[i].Weight == grants[i].Capacity && i-from >= partLen {
			list = append(list, grants[from:i])
			from = i
		}
	}
	return list
}

// operation is something that took effect at one moment of its interval.
type operation struct {
	does   string
	grant  int // in its part
	weight int
	text   string
	history.Interval
}

const (
	granted = "is granted it"
	renews  = "renews it"
	frees   = "frees it"
)

func (o operation) String() string { return o.text + " " + o.does }

func operations(grants []history.Grant) (all []operation) {
	for i, g := range grants {
		all = append(all, operation{granted, i, g.Weight, g.Text, g.Made}, operation{frees, i, g.Weight, g.Text, g.Freed})
		if g.Renewed.To != 0 {
			all = append(all, operation{renews, i, g.Weight, g.Text, g.Renewed})
		}
	}
	return all
}

// state is that of a lock.
type state struct {
	made, used int
	holders    []int // numbers of grants, rising
}

// step returns whether an operation is possible in a state, and the next state.
func (s state) step(o operation, capacity int) (bool, state) {
	switch i := slices.Index(s.holders, o.grant); {
	case o.does == granted:
		return s.made == o.grant && s.used+o.weight <= capacity,
			state{s.made + 1, s.used + o.weight, append(slices.Clip(s.holders), o.grant)}
	case o.does == renews || i < 0:
		return i >= 0, s
	default:
		return true, state{s.made, s.used - o.weight, slices.Delete(slices.Clone(s.holders), i, i+1)}
	}
}

// check returns why the operations of a part have no order, or "".
func check(part []history.Grant, all []operation, show func(int64) string) string {
	model := porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, in, _ any) (bool, any) { return s.(state).step(in.(operation), part[0].Capacity) },
		Equal: func(a, b any) bool {
			return a.(state).made == b.(state).made && slices.Equal(a.(state).holders, b.(state).holders)
		},
	}
	list := make([]porcupine.Operation, len(all))
	for i, o := range all {
		list[i] = porcupine.Operation{Input: o, Call: o.From, Return: o.To}
	}
	switch porcupine.CheckOperationsTimeout(model, list, limit) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("whether %d operations have an order was not found within %v", len(all), limit)
	}
	_, info := porcupine.CheckOperationsVerbose(model, list, limit)
	longest := slices.MaxFunc(append(info.PartialLinearizations()[0], nil), func(a, b []int) int { return len(a) - len(b) })
	s, next := state{}, operation{Interval: history.Interval{To: math.MaxInt64}}
	for _, i := range longest {
		_, s = s.step(all[i], part[0].Capacity)
	}
	for i, o := range all {
		if o.To <= next.To && !slices.Contains(longest, i) {
			next = o
		}
	}
	text := []string{fmt.Sprintf("there is no order: %v by %s, after %d of %d operations", next, show(next.To), len(longest), len(all))}
	for _, i := range s.holders {
		text = append(text, fmt.Sprintf("%s holds it from %s to %s", part[i].Text, show(part[i].Made.To), show(part[i].Freed.From)))
	}
	return strings.Join(text, "; ")
}
