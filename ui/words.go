package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/inspect"
	"github.com/fairlock/fairlock-go/internal/tokens"
)

// words are what the templates call.
var words = template.FuncMap{
	"plain": inspect.Plain, "span": inspect.Span, "count": inspect.Count, "who": who, "use": use, "wants": wants, "renewed": renewed,
	"left": left, "clock": clockTime, "moment": moment, "ms": time.Duration.Milliseconds, "unlisted": unlisted, "mayTake": mayTake,
	"ago": ago, "held": held, "add": func(a, b int) int { return a + b }, "neg": func(d time.Duration) time.Duration { return -d },
	"third": func(d time.Duration) time.Duration { return d / 3 },
}

// stranger stands for a holder or a waiter that did not come by fairlock. What stands in Redis then may be a secret.
const stranger = "(not fairlock's)"

// who is the name of a holder or a waiter: the client of its token.
func who(client string) string { return cmp.Or(client, stranger) }

// clockTime is a time of day, by the same clock for everybody who looks.
func clockTime(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// moment is when a fence or a ticket was given; zero if that is not known.
func moment(number uint64) (t time.Time) {
	if number > 0 {
		t = time.UnixMicro(int64(number)).UTC()
	}
	return t
}

// ago is how long ago a number was given, if that is known.
func ago(age time.Duration, number uint64) string {
	if number == 0 {
		return "not known"
	}
	return inspect.Span(age)
}

// held is for how long somebody has held a lock.
func held(h fairlock.Holder) string {
	if h.Released { // its fence is that of the release
		return "–"
	}
	return ago(h.Age, h.Fence)
}

// left is what is left of a lease.
func left(h fairlock.Holder) string {
	if h.TTL < 0 {
		return "never ends"
	}
	return inspect.Span(h.TTL)
}

// renewed says whether a holder is alive.
func renewed(h fairlock.Holder) string {
	switch {
	case h.Released:
		return "released, free in " + inspect.Span(h.TTL)
	case h.TTL < 0, h.Renewed < 0:
		return "not known"
	case h.Missed > 0:
		return fmt.Sprintf("not for %s, %d missed", inspect.Span(h.Renewed), h.Missed)
	case h.TTL+h.Renewed < h.Token.TTL(): // it was handed over, for less than its TTL, and is not renewed yet
		return "renews at once"
	}
	return fmt.Sprintf("%s ago, every %s", inspect.Span(h.Renewed), inspect.Span(h.Token.TTL()/3))
}

// wants is what somebody has or wants of a lock, if that does not go without saying.
func wants(kind fairlock.Kind, weight int, writer bool) string {
	switch {
	case inspect.HasPermits(kind):
		return inspect.Count(weight, "permit")
	case kind == fairlock.KindRWMutex && writer:
		return "write"
	case kind == fairlock.KindRWMutex:
		return "read"
	}
	return ""
}

// use says how much of a lock is held, in a word or two.
func use(l inspect.Lock) string {
	switch {
	case l.Err != nil:
		return "unreadable"
	case inspect.HasPermits(l.Kind) && l.Permits > 0:
		return fmt.Sprintf("%d of %d", l.Used, l.Permits) + l.OthersBring()
	case !l.Held():
		return "free"
	case l.Kind == fairlock.KindRWMutex && l.Holder().Writer:
		return "writer"
	case l.Kind == fairlock.KindRWMutex:
		return inspect.Count(l.Used, "reader")
	case l.Holder().Released:
		return "released"
	}
	return "held"
}

// unlisted is how many holders are not listed; of a semaphore, how many permits they have at most.
func unlisted(l inspect.Lock) int {
	n := l.Used
	for _, h := range l.Holders {
		n -= h.Weight
	}
	return max(n, 0)
}

// mayTake reports whether a lock can be taken from one holder: by its token, or because a mutex has no other.
func mayTake(l inspect.Lock, h fairlock.Holder) bool {
	return !h.Token.IsZero() || l.Kind == fairlock.KindMutex
}

// verdict says in a sentence or two how a lock stands, and what is to be expected of it.
type verdict struct {
	Level string // good, busy, warn or bad
	Text  string
}

func verdictOf(l inspect.Lock) verdict {
	v := ofHolders(l)
	if l.Err != nil || l.Waiting == 0 {
		return v
	}
	first := fairlock.Waiter{}
	if len(l.Waiters) > 0 {
		first = l.Waiters[0]
	}
	queue := fmt.Sprintf("%d wait, the first for %s.", l.Waiting, ago(first.Age, first.Ticket))
	if l.Waiting == 1 {
		queue = fmt.Sprintf("One waits, for %s.", ago(first.Age, first.Ticket))
	}
	switch free := l.Permits - l.Used; {
	case first.TTL < 0:
		queue += " The first has expired; it is dropped at the next request for this lock."
	case !l.Held():
		v.Level, queue = "warn", queue+" The first is granted the lock at the next request of any waiter, within seconds."
	case l.Kind == fairlock.KindKeyedSemaphore: // who is next is seen in the table of keys
	case l.Kind == fairlock.KindSemaphore && first.Weight > free && bringsLess(first, l):
		queue += fmt.Sprintf(" The first brings %s: it waits until no more than that are held, and those behind it wait, too.",
			inspect.Count(l.Permits, "permit"))
	case l.Kind == fairlock.KindSemaphore && free > 0 && first.Weight > free:
		queue += fmt.Sprintf(" The first wants %s, and %d is free: those behind it wait for their turn.",
			inspect.Count(first.Weight, "permit"), free)
	case l.Kind == fairlock.KindRWMutex && !l.Holder().Writer && first.Writer:
		queue += " The first is a writer, for whom the readers have to finish; readers behind it wait for their turn."
	}
	v.Text += " " + queue
	return v
}

// bringsLess reports whether the first waiter has brought the number of permits that counts, and others bring a larger one.
func bringsLess(first fairlock.Waiter, l inspect.Lock) bool {
	n := len(l.Others)
	return n > 0 && l.Permits < l.Others[n-1] && tokens.Permits(first.Token.Text()) == l.Permits
}

func ofHolders(l inspect.Lock) verdict {
	late, released := 0, 0
	for _, h := range l.Holders {
		if h.Missed > 0 {
			late++
		}
		if h.Released {
			released++
		}
	}
	h := l.Holder()
	name := who(h.Token.Client())
	switch n := len(l.Holders) + unlisted(l); {
	case l.Err != nil:
		return verdict{"bad", "This lock cannot be read: " + inspect.Message(l.Err) + "."}
	case !l.Held() && l.Fence == 0:
		return verdict{"good", "Free, and not used lately."}
	case !l.Held():
		age := max(l.At.Sub(moment(l.Fence)), 0)
		return verdict{"good", "Free. Its last number was given " + inspect.Span(age) + " ago."}
	case h.TTL < 0:
		return verdict{"bad", "Held for ever by " + name + ": another program has removed the expiry of its key. Only a forced release frees it."}
	case h.Token.IsZero():
		return verdict{"warn", "Held by a key that fairlock has not written, for another " + inspect.Span(h.TTL) + "."}
	case n == 1 && h.Released:
		return verdict{"busy", "Released by " + name + ", free in " + inspect.Span(h.TTL) + ": its minimum hold lasts until then."}
	case n == 1 && late == 1:
		return verdict{"bad", fmt.Sprintf("%s has missed %s: it has crashed, hangs, or cannot reach Redis. Its lease ends in %s; "+
			"then the lock passes on.", name, inspect.Count(h.Missed, "renewal"), inspect.Span(h.TTL))}
	case n == 1:
		return verdict{"busy", "Held by " + name + ", whose process lives: it renews its lease."}
	}
	text, level := fmt.Sprintf("Held by %s.", inspect.Count(l.Used, "reader")), "busy"
	if inspect.HasPermits(l.Kind) {
		text = fmt.Sprintf("%d of %s held%s.", l.Used, inspect.Count(l.Permits, "permit"), l.OthersBring())
	}
	if released > 0 {
		text += fmt.Sprintf(" %s released before the minimum hold was over.", amount(released, len(l.Holders)))
	}
	if late > 0 {
		level, text = "bad", text+fmt.Sprintf(" %s missed renewals: crashed, hanging, or cut off from Redis.", amount(late, len(l.Holders)))
	}
	return verdict{level, text}
}

// amount is a part of the holders.
func amount(n, of int) string {
	if n == of {
		return "All have"
	}
	if n == 1 {
		return "One has"
	}
	return fmt.Sprintf("%d have", n)
}

// has reports whether a text stands in the name of a lock, as it is or as it is shown, or in that of its first holder.
func has(l inspect.Lock, text string) bool {
	for _, s := range []string{l.Name, inspect.Plain(l.Name), l.Holder().Token.Client()} {
		if strings.Contains(strings.ToLower(s), strings.ToLower(text)) {
			return true
		}
	}
	return false
}
