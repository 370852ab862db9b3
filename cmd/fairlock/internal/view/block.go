package view

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// All is as many rows as it takes.
const All = math.MaxInt

// Block shows one lock in at most so many rows: what it is, who holds it, who waits. What has no room is counted; if
// there is room for no table at all, a Line has to do.
func (l Lock) Block(p Paint, rows int) []string { return l.block(p).cut(rows) }

// block is what there is to show of a lock, before it is cut.
type block struct {
	paint            Paint
	line, title      string
	holders, waiters section
}

func (l Lock) block(p Paint) block {
	return block{
		paint: p, line: l.Line(), title: p.in(strong, l.String()) + ": " + l.summary(p),
		holders: l.holders(p), waiters: l.waiters(p),
	}
}

func (b block) cut(rows int) []string {
	room := rows - 1
	if room < b.holders.least()+b.waiters.least() {
		return []string{b.line}[:max(min(rows, 1), 0)]
	}
	first := min(b.holders.height(), max(room-b.waiters.height(), room/2, b.holders.least())) // for the holders
	lines := append([]string{b.title}, b.holders.cut(b.paint, first)...)
	return append(lines, b.waiters.cut(b.paint, room-first)...)
}

// section is a table below a lock, and those that are not in it.
type section struct {
	lines []string
	more  func(rows int) string // tells of all who are behind so many rows; empty if nobody is
}

func (s section) rows() int { return max(len(s.lines)-1, 0) }

// height is how many lines it takes to show all.
func (s section) height() int {
	switch {
	case s.rows() == 0:
		return 0
	case s.more(s.rows()) == "":
		return len(s.lines)
	default:
		return len(s.lines) + 1
	}
}

// least is how many lines it takes to show something: the head, a row, and how many there are more.
func (s section) least() int { return min(s.height(), 3) }

// cut shows what it can in so many lines, least at the least.
func (s section) cut(p Paint, height int) []string {
	if s.rows() == 0 {
		return nil
	}
	rows := min(height-1, s.rows())
	more := s.more(rows)
	if more != "" && rows == height-1 {
		rows--
		more = s.more(rows)
	}
	lines := slices.Clone(s.lines[:1+rows])
	if more != "" {
		lines = append(lines, p.in(quiet, more))
	}
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

// summary says how the lock stands.
func (l Lock) summary(p Paint) string {
	waiting := "nobody waits"
	if l.Waiting > 0 {
		waiting = fmt.Sprintf("%d waiting", l.Waiting)
	}
	switch {
	case l.Resting:
		return p.in(bad, "rests for another "+span(l.Rest)) + " because Redis had lost its data, " + waiting
	case !l.InUse() && l.Fence == 0:
		return p.in(good, "free") + ", not used lately"
	case !l.InUse():
		return p.in(good, "free") + l.lastGrant()
	case l.Free():
		return p.in(good, "free") + ", " + waiting + ": the first who is alive gets it when any client of it asks"
	case l.Kind == Semaphore:
		return fmt.Sprintf("%d of %s held, %s", l.Used, count(l.Permits, "permit"), waiting)
	case l.Kind == RW && l.Holders[0].Writer:
		return "held by a writer, " + waiting
	case l.Kind == RW:
		return "held by " + count(l.Used, "reader") + ", " + waiting
	}
	return "held, " + waiting
}

func (l Lock) lastGrant() string {
	since := moment(l.Fence, l.At)
	if since.IsZero() {
		return fmt.Sprintf(", last number %d", l.Fence)
	}
	return fmt.Sprintf(", last used %s ago (last number %d)", l.ago(since), l.Fence)
}

// share heads the column that tells what one holds or wants, if that differs.
func (l Lock) share() []string {
	switch l.Kind {
	case Semaphore:
		return []string{"PERMITS"}
	case RW:
		return []string{"TO"}
	}
	return nil
}

func (l Lock) shareOf(weight int, writer bool) []string {
	switch {
	case l.Kind == Semaphore:
		return []string{strconv.Itoa(weight)}
	case l.Kind == RW && writer:
		return []string{"write"}
	case l.Kind == RW:
		return []string{"read"}
	}
	return nil
}

func (l Lock) holders(p Paint) section {
	t := table{head: slices.Concat([]string{"HOLDER"}, l.share(), []string{"HELD FOR", "LEASE LEFT", "FENCE", "SINCE"})}
	for _, h := range l.Holders {
		fence := unknown
		if h.Fence > 0 {
			fence = strconv.FormatUint(h.Fence, 10)
		}
		t.rows = append(t.rows, slices.Concat([]string{owner(h.Token)}, l.shareOf(h.Weight, h.Writer),
			[]string{l.ago(h.Since), h.left(), fence, on(h.Since)}))
	}
	return section{t.lines(p), func(rows int) string {
		unseen := l.hidden()
		for _, h := range l.Holders[rows:] {
			unseen += h.Weight
		}
		switch {
		case unseen == 0:
			return ""
		case l.Kind == Semaphore:
			return "… and more, with " + count(unseen, "permit")
		}
		return fmt.Sprintf("… and %d more", unseen)
	}}
}

func (l Lock) waiters(p Paint) section {
	t := table{head: slices.Concat([]string{"#", "WAITER"}, l.share(), []string{"WAITS FOR", "STATE"})}
	for i, w := range l.Waiters {
		t.rows = append(t.rows, slices.Concat([]string{strconv.Itoa(i + 1), owner(w.Token)}, l.shareOf(w.Weight, w.Writer),
			[]string{l.ago(w.Since), w.state(p)}))
	}
	return section{t.lines(p), func(rows int) string {
		if n := l.Waiting - rows; n > 0 {
			return fmt.Sprintf("… and %d more", n)
		}
		return ""
	}}
}

// state says whether a waiter is alive.
func (w Waiter) state(p Paint) string {
	switch {
	case w.Alive():
		return "alive, keeps its place for " + span(w.Patience)
	case w.Heard:
		return p.in(bad, "silent") + ", its patience ran out " + span(-w.Patience) + " ago"
	}
	return p.in(bad, "silent")
}
