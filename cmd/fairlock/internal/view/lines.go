package view

import (
	"fmt"
	"strings"
)

// named is how many waiters a line names.
const named = 4

// Line says how a lock stands. It changes when who holds it or who waits changes, and not with time.
func (l Lock) Line() string {
	text := l.String() + ": " + l.who()
	if l.Waiting == 0 {
		return text
	}
	text += fmt.Sprintf(", %d waiting", l.Waiting)
	var names []string
	for _, w := range l.Waiters[:min(len(l.Waiters), named)] {
		names = append(names, owner(w.Token)+l.mark(w.Weight, w.Writer))
		if !w.Alive() {
			names[len(names)-1] += " (silent)"
		}
	}
	if len(names) > 0 && l.Waiting > len(names) {
		names = append(names, "…")
	}
	if len(names) > 0 {
		text += ": " + strings.Join(names, ", ")
	}
	return text
}

func (l Lock) who() string {
	switch {
	case l.Resting:
		return "rests, for Redis had lost its data"
	case !l.Held() && l.Fence == 0:
		return "free"
	case !l.Held():
		return fmt.Sprintf("free, last number %d", l.Fence)
	}
	h := l.Holders[0]
	text := fmt.Sprintf("held by %s%s, fence %d", owner(h.Token), l.mark(h.Weight, h.Writer), h.Fence)
	if l.Kind != Mutex && l.hidden()+len(l.Holders) > 1 {
		text = fmt.Sprintf("held by %s, last number %d", count(l.Used, "reader"), l.Fence)
		if l.Kind == Semaphore {
			text = fmt.Sprintf("%d of %s held, last number %d", l.Used, count(l.Permits, "permit"), l.Fence)
		}
	}
	return text
}

// mark is what somebody has or wants, if that goes without saying for a mutex only.
func (l Lock) mark(weight int, writer bool) string {
	switch {
	case l.Kind == Semaphore:
		return fmt.Sprintf(" ×%d", weight)
	case l.Kind == RW && writer:
		return " to write"
	case l.Kind == RW:
		return " to read"
	}
	return ""
}

// Changes tells what has changed from one glance to the next. The zero Changes has seen nothing.
type Changes struct {
	Full bool // also what a Line has no room for

	seen  map[ID]string
	fault string
}

// told is what changes when a lock changes for it.
func (c *Changes) told(l Lock) string {
	all := []string{l.Line()}
	if c.Full {
		for _, h := range l.Holders {
			all = append(all, fmt.Sprint(h.Token.Text(), " ", h.Fence, h.Weight))
		}
		for _, w := range l.Waiters {
			all = append(all, fmt.Sprint(w.Token.Text(), " ", w.Weight, w.Alive()))
		}
	}
	return strings.Join(all, "\n")
}

// Of are the locks that have changed: at first all that are worth showing.
func (c *Changes) Of(g Glance) []Lock {
	seen := make(map[ID]string, len(g.Locks))
	var changed []Lock
	for _, l := range g.Locks {
		told := c.told(l)
		seen[l.ID] = told
		if was, known := c.seen[l.ID]; told != was && (known || l.InUse()) {
			changed = append(changed, l)
		}
	}
	if c.seen == nil {
		changed = Worth(g.Locks)
		if g.Err != nil {
			changed = InUse(g.Locks) // that one of its kinds is free may mislead
		}
	}
	if g.Err != nil { // what could not be read now may be as it was
		for id, told := range c.seen {
			if _, read := seen[id]; !read {
				seen[id] = told
			}
		}
	}
	c.seen = seen
	return changed
}

// Fault is what is wrong, when that has changed; empty otherwise.
func (c *Changes) Fault(g Glance) string {
	fault := ""
	if g.Err != nil {
		fault = unseen(g.Err.Error())
	}
	if fault == c.fault {
		return ""
	}
	c.fault = fault
	return fault
}
