package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/inspect"
	"github.com/fairlock/fairlock-go/token"
)

// InUse are those of the locks that are in use.
func InUse(all []inspect.Lock) []inspect.Lock {
	return slices.DeleteFunc(slices.Clone(all), func(l inspect.Lock) bool { return !l.InUse() })
}

// Worth are those of the locks that are worth showing: of each name those in use and a resized semaphore, and if there is
// none, the one that was used last. If several kinds were looked at and none was used lately, a Lock without a kind stands for the name.
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

// Table lists locks below a head: of several holders the one whose lease ends first.
func Table(p Paint, all []inspect.Lock) []string {
	t := columns{
		{head: "NAME", least: 18}, {head: "KIND", rank: 5}, {head: "IN USE", rank: 2}, {head: "HOLDER", rank: 1, least: 12},
		{head: "HELD FOR", rank: 6}, {head: "LEASE LEFT", rank: 7}, {head: "RENEWED", rank: 4}, {head: "WAITING", rank: 3},
	}
	for _, l := range all {
		holder := []string{"-", "-", "-", "-"}
		if len(l.Holders) > 0 {
			holder = holding(p, l.Holder())
			holder[0] = cmp.Or(l.Holder().Token.Client(), stranger)
			if more := unlisted(l) + len(l.Holders) - 1; more > 0 {
				holder[0] += fmt.Sprintf(" +%d", more)
			}
		}
		t.add(slices.Concat([]string{inspect.Plain(l.Name), string(l.Kind), use(p, l)}, holder, []string{strconv.Itoa(l.Waiting)})...)
	}
	return t.lines(p)
}

// stranger stands for a holder or a waiter that did not come by fairlock. What stands in Redis then may be a secret.
const stranger = "(not fairlock's)"

func name(t token.Token) string {
	if t.IsZero() {
		return stranger
	}
	return t.String()
}

// holding says who a holder is, since when, for how long, and whether it is alive; or that it has released the lock, and when
// that is free.
func holding(p Paint, h fairlock.Holder) []string {
	if h.Released {
		return []string{name(h.Token), "-", "-", "released, free in " + inspect.Span(h.TTL)}
	}
	left, renewed := inspect.Span(h.TTL), fmt.Sprintf("%s ago, every %s", inspect.Span(h.Renewed), inspect.Span(h.Token.TTL()/3))
	switch {
	case h.TTL < 0:
		left, renewed = "never ends", unknown
	case h.Renewed < 0:
		renewed = unknown
	case h.Missed > 0:
		renewed = p.in(bad, fmt.Sprintf("not for %s, %d missed", inspect.Span(h.Renewed), h.Missed))
	case h.TTL+h.Renewed < h.Token.TTL(): // it was handed over, for less than its TTL, and is not renewed yet
		renewed = "renews at once"
	}
	return []string{name(h.Token), ago(h.Age, h.Fence), left, renewed}
}

const unknown = "?"

// ago is how long ago a number was given, if that is known.
func ago(age time.Duration, number uint64) string {
	if number == 0 {
		return unknown
	}
	return inspect.Span(age)
}

// unlisted is how many holders are not listed; of a semaphore, how many permits they have at most.
func unlisted(l inspect.Lock) int {
	n := l.Used
	for _, h := range l.Holders {
		n -= h.Weight
	}
	return max(n, 0)
}

// use says how much of the lock is held, in a word or two.
func use(p Paint, l inspect.Lock) string {
	switch {
	case l.Err != nil:
		return p.in(bad, "unreadable")
	case inspect.HasPermits(l.Kind) && l.Permits > 0:
		text := fmt.Sprintf("%d/%d", l.Used, l.Permits)
		if n := len(l.Others); n > 0 {
			text += fmt.Sprintf(" (%d)", l.Others[n-1])
		}
		return text
	case !l.Held():
		return p.in(good, "free")
	case l.Kind == fairlock.KindMutex && l.Holder().Released:
		return "released"
	case l.Kind == fairlock.KindRWMutex && l.Holder().Writer:
		return "writer"
	case l.Kind == fairlock.KindRWMutex:
		return inspect.Count(l.Used, "reader")
	}
	return "held"
}

// summary says how a lock stands. It does not change with time.
func summary(p Paint, l inspect.Lock) string {
	text := use(p, l)
	switch {
	case l.Err != nil:
		return text + ": " + inspect.Message(l.Err)
	case l.Held() && inspect.HasPermits(l.Kind):
		text = fmt.Sprintf("%d of %s held", l.Used, inspect.Count(l.Permits, "permit")) + l.OthersBring()
	case l.Held() && l.Kind == fairlock.KindRWMutex:
		text = "held by " + strings.Replace(text, "writer", "a writer", 1)
	case l.Held() && l.Holder().Released:
		text += " by " + l.Holder().Token.Client()
	case l.Held():
	case l.Idle():
		return text + ", set by resize, nobody uses it"
	case l.Waiting > 0:
		text += ", granted at the next request of any waiter"
	case l.Fence > 0:
		return text + fmt.Sprintf(", last number %d", l.Fence)
	default:
		return text + ", not used lately"
	}
	if l.Waiting == 0 {
		return text + ", nobody waits"
	}
	return text + fmt.Sprintf(", %d waiting", l.Waiting)
}

// Line says on one line how a lock stands, and names the first holders and waiters. It does not change with time.
func Line(l inspect.Lock) string {
	text := l.String() + ": " + summary(Paint{}, l)
	if len(l.Holders) > 0 {
		text += "; holders: " + Holders(l)
	}
	names := make([]string, 0, len(l.Waiters))
	for _, w := range l.Waiters {
		names = append(names, name(w.Token)+share(l, w.Weight, w.Writer)+map[bool]string{true: " (expired)"}[w.TTL <= 0])
	}
	if len(names) > 0 {
		text += "; waiters: " + some(names, l.Waiting)
	}
	return text
}

// Holders names the holders of a lock.
func Holders(l inspect.Lock) string {
	names := make([]string, 0, len(l.Holders))
	for _, h := range l.Holders {
		names = append(names, fmt.Sprintf("%s%s (fence %d%s)", cmp.Or(h.Token.Client(), stranger), share(l, h.Weight, h.Writer), h.Fence,
			map[bool]string{true: ", released"}[h.Released]))
	}
	return some(names, len(names)+unlisted(l))
}

// some lists the first few of so many.
func some(names []string, total int) string {
	if few := min(len(names), 4); total > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), total-few)
	}
	return strings.Join(names, ", ")
}

// share is what somebody has or wants, if that does not go without saying.
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

// Block shows one lock: how it stands, and below that at most so many of its holders and so many of its waiters.
func Block(p Paint, l inspect.Lock, most int) []string {
	title := p.in(strong, l.String()) + ": " + summary(p, l)
	if !l.Held() && l.Fence > 0 && l.Waiting == 0 {
		title += ", given " + inspect.Span(max(l.At.Sub(time.UnixMicro(int64(l.Fence))), 0)) + " ago"
	}
	what := map[fairlock.Kind]string{fairlock.KindSemaphore: "PERMITS", fairlock.KindKeyedSemaphore: "PERMITS", fairlock.KindRWMutex: "TO"}[l.Kind]
	keyHead := map[bool]string{true: "KEY"}[l.Kind == fairlock.KindKeyedSemaphore]
	had := func(weight int, writer bool) string {
		return strings.NewReplacer(" ×", "", " to ", "").Replace(share(l, weight, writer))
	}
	holders := columns{
		{head: "HOLDER", least: 12}, {head: keyHead, rank: 2, least: 12}, {head: what, rank: 2}, {head: "HELD FOR", rank: 4}, {head: "LEASE LEFT", rank: 5},
		{head: "RENEWED", rank: 1}, {head: "FENCE", rank: 3}, {head: "SINCE", rank: 6},
	}
	for _, h := range l.Holders[:min(most, len(l.Holders))] {
		since, row := unknown, holding(p, h)
		if h.Fence > 0 {
			since = time.UnixMicro(int64(h.Fence)).Local().Format(time.RFC3339)
		}
		holders.add(row[0], plainKey(h.Key), had(h.Weight, h.Writer), row[1], row[2], row[3], strconv.FormatUint(h.Fence, 10), since)
	}
	waiters := columns{{head: "WAITER", least: 12}, {head: keyHead, rank: 2, least: 12}, {head: what, rank: 2}, {head: "WAITS FOR", rank: 3}, {head: "STATE", rank: 1}}
	for i, w := range l.Waiters[:min(most, len(l.Waiters))] {
		state := "expires in " + inspect.Span(w.TTL)
		if w.TTL <= 0 {
			state = p.in(bad, "expired "+inspect.Span(-w.TTL)+" ago")
		}
		waiters.add(fmt.Sprintf("%d. %s", i+1, name(w.Token)), plainKey(w.Key), had(w.Weight, w.Writer), ago(w.Age, w.Ticket), state)
	}
	lines := append(strings.Split(p.Fold(title, 4), "\n"), below(p, holders, len(l.Holders)+unlisted(l))...)
	lines = append(lines, below(p, keys(p, l.State.Keys[:min(most, len(l.State.Keys))]), len(l.State.Keys))...)
	return append(lines, below(p, waiters, l.Waiting)...)
}

// plainKey is a key in one line; "" of other locks.
func plainKey(key string) string {
	if key == "" {
		return ""
	}
	return inspect.Plain(key)
}

// keys are those of a keyed semaphore that have waiters, in the order in which they are next.
func keys(p Paint, all []fairlock.KeyState) columns {
	t := columns{
		{head: "KEY", least: 12}, {head: "HELD", rank: 2}, {head: "SHARE", rank: 5}, {head: "WAITING", rank: 3}, {head: "FIRST WAITS FOR", rank: 4},
		{head: "STATE", rank: 1},
	}
	for i, k := range all {
		held, state := strconv.Itoa(k.Held), ""
		if k.Limit > 0 {
			held += fmt.Sprintf("/%d", k.Limit)
		}
		switch {
		case k.AtLimit:
			state = p.in(strong, "at its limit")
		case i == 0:
			state = "next"
		}
		if len(k.Others) > 0 {
			state = strings.TrimPrefix(state+", two limits in use", ", ")
		}
		t.add(plainKey(k.Key), held, strconv.Itoa(k.Share), strconv.Itoa(k.Waiting), inspect.Span(k.Age), state)
	}
	return t
}

// below is a table below a lock, of so many in all.
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
