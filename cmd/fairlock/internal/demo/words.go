package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/fairlock"
)

// title is what is contended for.
func (c Contest) title() string {
	switch c.Kind {
	case Semaphore:
		return "semaphore"
	case RW:
		return "read-write lock"
	default:
		return "mutex"
	}
}

// promise is what was checked beside the order.
func (c Contest) promise() string {
	switch c.Kind {
	case Semaphore:
		return "never more than " + plural(c.Permits, "permit") + " in use"
	case RW:
		return "every writer alone"
	default:
		return "one holder at a time"
	}
}

// overlaps is what a breach of it is called.
func (c Contest) overlaps() string {
	switch c.Kind {
	case Semaphore:
		return "over-issues"
	case RW:
		return "writer overlaps"
	default:
		return "overlaps"
	}
}

// peak says how much was held at once, at most.
func (c Contest) peak(v Result) string {
	switch c.Kind {
	case Semaphore:
		return fmt.Sprintf("%d of %s in use at once", v.Peak, plural(c.Permits, "permit"))
	case RW:
		return plural(v.Together, "reader") + " at once"
	default:
		return plural(v.Together, "holder") + " at once"
	}
}

// parts says how many grants were of which weight; nothing of a mutex.
func (c Contest) parts(v Result) string {
	switch c.Kind {
	case Semaphore:
		var all []string
		for _, weight := range slices.Sorted(maps.Keys(v.ByWeight)) {
			all = append(all, fmt.Sprintf("of %s %d", plural(weight, "permit"), v.ByWeight[weight]))
		}
		return strings.Join(all, " · ")
	case RW:
		return fmt.Sprintf("to read %d · to write %d", v.ByWeight[1], v.ByWeight[everything])
	default:
		return ""
	}
}

// holding says what somebody of that weight does.
func (c Contest) holding(weight int) string {
	switch {
	case c.Kind == Semaphore:
		return "holding " + plural(weight, "permit")
	case c.Kind == RW && weight >= everything:
		return "writing"
	case c.Kind == RW:
		return "reading"
	default:
		return "holding the lock"
	}
}

// mark is what a list says about somebody's share; nothing of a mutex.
func (c Contest) mark(weight int, writer bool) string {
	switch {
	case c.Kind == Semaphore:
		return fmt.Sprintf("×%d", weight)
	case writer:
		return "W"
	case c.Kind == RW:
		return "R"
	default:
		return ""
	}
}

// inUse says how much is held of what several can hold.
func (c Contest) inUse(s fairlock.State) string {
	switch {
	case c.Kind == Semaphore:
		return fmt.Sprintf("%d of %s in use", s.Used, plural(c.Permits, "permit"))
	case s.Holder.Writer:
		return "1 writer"
	default:
		return plural(s.Used, "reader")
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
