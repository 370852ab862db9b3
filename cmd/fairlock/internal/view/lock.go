package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/words"
	"github.com/fairlock/fairlock-go/token"
)

// InUse returns the locks that are in use.
func InUse(all []inspect.Lock) []inspect.Lock {
	return slices.DeleteFunc(slices.Clone(all), func(l inspect.Lock) bool { return !l.InUse() })
}

// Worth returns the locks worth showing. Those are, for each name, the locks in use and resized semaphores, or else the
// one that was used last. If several kinds were read and none was used recently, a Lock without a kind stands for the
// name.
func Worth(all []inspect.Lock) (worth []inspect.Lock) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Name == all[0].Name {
			n++
		}
		used := slices.DeleteFunc(slices.Clone(all[:n]), func(l inspect.Lock) bool { return !l.InUse() && !l.Idle() })
		if len(used) == 0 {
			used = []inspect.Lock{slices.MaxFunc(all[:n], func(a, b inspect.Lock) int { return cmp.Compare(a.Fence, b.Fence) })}
			if used[0].Fence == 0 && n > 1 {
				used[0].Kind = ""
			}
		}
		worth, all = append(worth, used...), all[n:]
	}
	return worth
}

// Table lists locks below a head. Of several holders it shows the one that has held the lock longest, and whether any
// has missed renewals. Locks of all namespaces have a column for that. Names are cut, so that each lock has one line.
// The columns about trouble are left out last.
func Table(p Paint, all []inspect.Lock) []string {
	namespaces := slices.ContainsFunc(all, func(l inspect.Lock) bool { return l.Namespace != "" })
	t := columns{
		{head: "NAME", least: 18, cut: true},
		{head: map[bool]string{true: "NAMESPACE"}[namespaces], rank: 2, least: 10, cut: true},
		{head: "KIND", rank: 7}, {head: "IN USE", rank: 3},
		{head: "HOLDER", rank: 5, least: 10, cut: true}, {head: "HELD FOR", rank: 6}, {head: "LEASE LEFT", rank: 8},
		{head: "RENEWED", rank: 1}, {head: "WAITING", rank: 4}, {head: "OLDEST WAIT", rank: 2},
	}
	for _, l := range all {
		waiting := words.Waiting(l)
		if beside := words.BesideInTable(l); beside != "" {
			waiting += " (" + beside + ")"
		}
		t.add(inspect.Plain(l.Name), inspect.Plain(l.Namespace), string(l.Kind), use(p, l), holder(l),
			words.LongestHeld(l), left(l), p.say(words.RenewedInTable(l)), waiting, words.OldestWait(l))
	}
	return t.lines(p)
}

// holder returns the name of the holder that has held a lock longest, and the number of others.
func holder(l inspect.Lock) string {
	switch text, more := words.Who(l.Holder().Token.Client()), len(l.Holders)-1; {
	case l.Err != nil:
		return words.Unknown
	case !l.Held():
		return words.None
	case l.Unlisted() > 0 && inspect.HasPermits(l.Kind): // a number of permits
		return text + fmt.Sprintf(" +≥%d", more+1)
	case more+l.Unlisted() > 0:
		return text + fmt.Sprintf(" +%d", more+l.Unlisted())
	default:
		return text
	}
}

// left returns the remaining time of that holder's lease.
func left(l inspect.Lock) string {
	switch {
	case l.Err != nil:
		return words.Unknown
	case !l.Held():
		return words.None
	}
	return words.Left(l.Holder())
}

func name(t token.Token) string {
	if t.IsZero() {
		return words.Stranger
	}
	return t.String()
}

// use returns how much of the lock is held, in few characters.
func use(p Paint, l inspect.Lock) string {
	if l.Err == nil && inspect.HasPermits(l.Kind) && l.Permits > 0 {
		text := fmt.Sprintf("%d/%d", l.Used, l.Permits)
		if others := l.OtherLimits(); others != "" {
			text += " (" + others + ")"
		}
		return text
	}
	return p.say(words.Use(l))
}

// Line returns a lock's state on one line, with the first holders and waiters. It does not change with time alone.
func Line(l inspect.Lock) string {
	text := l.String() + ": " + words.Summary(l)
	if len(l.Holders) > 0 {
		text += "; holders: " + Holders(l)
	}
	names := make([]string, 0, l.Waiting)
	for _, w := range l.Living() {
		names = append(names, name(w.Token)+share(l, w.Weight, w.Writer))
	}
	if len(names) > 0 {
		text += "; waiters: " + some(names, l.Waiting)
	}
	return text
}

// Holders returns the names of a lock's holders.
func Holders(l inspect.Lock) string {
	names := make([]string, 0, len(l.Holders))
	for _, h := range l.Holders {
		names = append(names, fmt.Sprintf("%s%s (fence %d%s)", words.Who(h.Token.Client()), share(l, h.Weight, h.Writer),
			h.Fence,
			map[bool]string{true: ", released"}[h.Released]))
	}
	return some(names, len(names)+l.Unlisted())
}

// some lists the first few of total names.
func some(names []string, total int) string {
	if few := min(len(names), 4); total > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), total-few)
	}
	return strings.Join(names, ", ")
}

// share returns what a holder has or a waiter wants, unless that is the default.
func share(l inspect.Lock, weight int, writer bool) string {
	switch {
	case inspect.HasPermits(l.Kind):
		return fmt.Sprintf(" ×%d", weight)
	case l.Kind == fairlock.KindRWMutex && writer:
		return " to write"
	case l.Kind == fairlock.KindRWMutex:
		return " to read"
	}
	return ""
}

// Block shows one lock: its state, and below that at most most of its holders and most of its live waiters. The others
// are counted by client.
func Block(p Paint, l inspect.Lock, most int) []string {
	title := p.in(strong, l.String()) + ": " + p.mark(words.Use(l), words.Summary(l))
	if !l.Held() && l.Fence > 0 && l.Waiting+l.Expired == 0 && !l.Idle() {
		title += ", given " + inspect.Span(max(l.At.Sub(time.UnixMicro(int64(l.Fence))), 0)) + " ago"
	}
	what := map[fairlock.Kind]string{fairlock.KindSemaphore: "PERMITS", fairlock.KindKeyedSemaphore: "PERMITS",
		fairlock.KindRWMutex: "TO"}[l.Kind]
	keyHead := map[bool]string{true: "KEY"}[l.Kind == fairlock.KindKeyedSemaphore]
	had := func(weight int, writer bool) string {
		return strings.NewReplacer(" ×", "", " to ", "").Replace(share(l, weight, writer))
	}
	holders := columns{
		{head: "HOLDER", least: 12}, {head: keyHead, rank: 2, least: 12}, {head: what, rank: 2}, {head: "HELD FOR",
			rank: 3}, {head: "LEASE LEFT", rank: 5},
		{head: "RENEWED", rank: 1}, {head: "FENCE", rank: 4}, {head: "SINCE", rank: 6},
	}
	for _, h := range l.LateFirst()[:min(most, len(l.Holders))] {
		since := words.Unknown
		if h.Fence > 0 {
			since = time.UnixMicro(int64(h.Fence)).Local().Format(time.RFC3339)
		}
		holders.add(name(h.Token), plainKey(h.Key), had(h.Weight, h.Writer), words.HeldFor(h), words.Left(h),
			p.say(words.Renewed(h)),
			strconv.FormatUint(h.Fence, 10), since)
	}
	waiters := columns{{head: "WAITER", least: 12}, {head: keyHead, rank: 2, least: 12}, {head: what, rank: 2},
		{head: "WAITS FOR", rank: 3}, {head: "STATE", rank: 1}}
	living := l.Living()
	shown := min(most, len(living))
	for i, w := range living[:shown] {
		waiters.add(fmt.Sprintf("%d. %s", i+1, name(w.Token)), plainKey(w.Key), had(w.Weight, w.Writer),
			words.Ago(w.Age, w.Ticket), p.say(words.Waiter(w)))
	}
	lines := strings.Split(p.Fold(title, 4), "\n")
	lines = append(lines, Indented(p, words.Why(l))...)
	lines = append(lines, below(p, holders, len(l.Holders)+l.Unlisted())...)
	lines = append(lines, below(p, keys(p, l.State.Keys[:min(most, len(l.State.Keys))]), len(l.State.Keys))...)
	lines = append(lines, below(p, waiters, shown)...)
	note := func(text string) {
		lines = append(lines, strings.Split("  "+p.in(quiet, Paint{Width: max(p.Width-2, 0)}.Fold(text, 2)), "\n")...)
	}
	if rest := words.Rest(l, shown); rest != "" {
		note(rest)
	}
	if gone := words.HasLeft(l); gone != "" {
		note(gone)
	}
	return lines
}

// plainKey returns a key on one line, or "" for other locks.
func plainKey(key string) string {
	if key == "" {
		return ""
	}
	return inspect.Plain(key)
}

// keys returns a table of the keys that have waiters, in the order of their turns.
func keys(p Paint, all []admin.KeyState) columns {
	t := columns{
		{head: "KEY", least: 12}, {head: "HELD", rank: 2}, {head: "SHARE", rank: 5}, {head: "WAITING",
			rank: 3}, {head: "FIRST WAITS FOR", rank: 4},
		{head: "STATE", rank: 1},
	}
	for i, k := range all {
		held := strconv.Itoa(k.Held)
		if k.Limit > 0 {
			held += fmt.Sprintf("/%d", k.Limit)
		}
		t.add(plainKey(k.Key), held, strconv.Itoa(k.Share), strconv.Itoa(k.Waiting), inspect.Span(k.Age),
			p.say(words.OfKey(i, k)))
	}
	return t
}

// below returns a table below a lock. total is the number of rows if none is left out.
func below(p Paint, t columns, total int) []string {
	n := len(t[0].cells)
	if n == 0 {
		return nil
	}
	lines := t.lines(Paint{p.Colours, max(p.Width-2, 0)})
	if total > n {
		lines = append(lines, p.in(quiet, fmt.Sprintf("… and %d more", total-n)))
	}
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}
