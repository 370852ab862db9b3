// Package words has all words for the state of a lock. The command and the page share them, so both say the same, and
// each word has one condition that makes it true.
package words

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// Level says how good that is.
type Level string

// The levels. The zero Level has no colour.
const (
	Good Level = "good"
	Busy Level = "busy"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// Phrase is what is said of something, and how good that is.
type Phrase struct {
	Level Level
	Text  string
}

// The words. Each has one condition, below. A test looks for a state that makes it true.
const (
	Unknown  = "?"
	None     = "–"
	Stranger = "(not fairlock's)" // what Redis has then may be a secret

	unreadable = "unreadable"
	free       = "free"
	held       = "held"
	leads      = "leads"
	released   = "released"
	writer     = "writer"
	reader     = "reader"

	granted    = "granted"
	renewed    = "renewed"
	alive      = "alive"
	candidate  = "candidate"
	silent     = "silent"
	expired    = "expired"
	dropped    = "dropped by the next requests"
	missed     = "missed"
	noneMissed = "none missed"
	atLeast    = "≥"
	neverEnds  = "never ends"

	next        = "next"
	atLimit     = "at its limit"
	atLimits    = "at their limits"
	full        = "at limit" // a key is, where little fits
	limitsInUse = "limits in use"

	notUsed     = "not used lately"
	LastNumber  = "last fencing number"
	setByResize = "set by resize"
	notInUse    = "not in use"
	noWaiters   = "no waiters"
	grantedNext = "granted at the next request of any waiter"

	DidYouMean = "did you mean"
)

// Meant is the question whether one of these locks is meant; "" if there are none.
func Meant(locks []inspect.ID) string {
	if len(locks) == 0 {
		return ""
	}
	names := make([]string, len(locks))
	for i, id := range locks {
		names[i] = id.String()
	}
	return DidYouMean + " " + strings.Join(names, ", ") + "?"
}

// Elsewhere says in which other namespaces a lock of a name is in use that is not in this one; "" if in none.
func Elsewhere(namespaces []string) string {
	if len(namespaces) == 0 {
		return ""
	}
	names := make([]string, len(namespaces))
	for i, name := range namespaces {
		names[i] = inspect.Plain(name)
	}
	return "a lock of that name is in use in namespace " + list(names)
}

// NothingAlike is the hint for an unused name if no lock in use has a similar name.
func NothingAlike() string { return "no lock in use has a similar name" }

// Crossing says that a lock and another one are held and waited for crosswise.
func Crossing(l inspect.Lock, c inspect.Crossing) string {
	return fmt.Sprintf("%s holds it and waits for %s; %s holds that and waits for %s. If one task of each does both, "+
		"that is a deadlock.", c.Holder, c.ID, c.Other, l.ID)
}

// Who returns the name of a holder or a waiter: the client of its token.
func Who(client string) string { return cmp.Or(client, Stranger) }

// Ago is how long ago a number was given, if that is known.
func Ago(age time.Duration, number uint64) string {
	if number == 0 {
		return Unknown
	}
	return inspect.Span(age)
}

// HeldFor is how long a holder has held a lock.
func HeldFor(h admin.Holder) string {
	if h.Released { // its fence is that of the release
		return None
	}
	return Ago(h.Age, h.Fence)
}

// LongestHeld is how long the lock has been held by the holder that has held it longest.
func LongestHeld(l inspect.Lock) string {
	switch text := HeldFor(l.Holder()); {
	case l.Err != nil:
		return Unknown
	case !l.Held():
		return None
	case l.Unlisted() == 0:
		return text
	case l.HeldFor() >= 0:
		return atLeast + text
	}
	return Unknown
}

// Left is the remaining time of a lease or of a minimum hold.
func Left(h admin.Holder) string {
	if h.TTL < 0 {
		return neverEnds
	}
	return inspect.Span(h.TTL)
}

// settled is the least time from a grant to a renewal. A live holder renews at least half a second after a handoff. Two
// readings of one moment differ by less.
const settled = 100 * time.Millisecond

// unrenewed reports whether a lease was granted and not renewed since, so it is unknown whether its holder lives.
func unrenewed(h admin.Holder) bool {
	return h.Fence > 0 && h.Renewed >= 0 && h.Renewed > h.Age-settled
}

// Renewed says when a lease was renewed or granted. Whether its holder lives shows at its next renewal, and with a long
// TTL that is minutes later: nothing more is said before.
func Renewed(h admin.Holder) Phrase {
	p := renewedBriefly(h)
	switch {
	case h.Released:
		p.Text += ", " + free + " in " + inspect.Span(h.TTL)
	case h.TTL < 0, h.Renewed < 0:
	case h.Missed > 0:
		p.Text = "not for " + inspect.Span(h.Renewed) + ", " + p.Text
	default:
		p.Text += ", every " + inspect.Span(h.Token.TTL()/3)
	}
	return p
}

// renewedBriefly says the same in a word or two.
func renewedBriefly(h admin.Holder) Phrase {
	switch {
	case h.Released:
		return Phrase{Text: released}
	case h.TTL < 0, h.Renewed < 0:
		return Phrase{Text: Unknown}
	case h.Missed > 0:
		return Phrase{Bad, fmt.Sprintf("%d %s", h.Missed, missed)}
	case unrenewed(h):
		return Phrase{Text: granted + " " + inspect.Span(h.Age) + " ago"}
	}
	return Phrase{Text: inspect.Span(h.Renewed) + " ago"}
}

// RenewedOfAll says in a word or two whether holders have missed renewals, and for a single holder when its lease was
// renewed.
func RenewedOfAll(l inspect.Lock) Phrase { return ofAll(l, Renewed) }

// RenewedInTable is RenewedOfAll where little fits: without how often a lease is renewed.
func RenewedInTable(l inspect.Lock) Phrase { return ofAll(l, renewedBriefly) }

func ofAll(l inspect.Lock, ofOne func(admin.Holder) Phrase) Phrase {
	n, all := l.Late()
	switch {
	case l.Err != nil:
		return Phrase{Text: Unknown}
	case !l.Held():
		return Phrase{Text: None}
	case len(l.Holders) == 1 && l.Unlisted() == 0:
		return ofOne(l.Holder())
	case n > 0 && all:
		return Phrase{Bad, fmt.Sprintf("%s by %d of %d", missed, n, len(l.Holders))}
	case n > 0:
		return Phrase{Bad, fmt.Sprintf("%s by %s%d", missed, atLeast, n)}
	case !all:
		return Phrase{Text: Unknown}
	case l.Holder().Released: // all have
		return Phrase{Text: released}
	}
	return Phrase{Text: noneMissed}
}

// late is less than the remaining time of a live waiter. It sends a heartbeat each third of its WaiterTTL, which is 3 s
// or more.
const late = 1800 * time.Millisecond

// Waiter says whether a waiter is alive. Only its client knows its WaiterTTL, so a crashed waiter is not silent at
// once.
func Waiter(w admin.Waiter) Phrase {
	switch {
	case w.TTL <= 0 && w.Ticket == 0:
		return Phrase{Bad, expired}
	case w.TTL <= 0:
		return Phrase{Bad, expired + " " + inspect.Span(-w.TTL) + " ago"}
	case w.TTL < late:
		return Phrase{Warn, silent + ", dropped in " + inspect.Span(w.TTL)}
	case w.Candidate:
		return Phrase{Text: candidate + ", " + alive}
	}
	return Phrase{Text: alive}
}

// Wants is what a holder has of a lock, or a waiter wants; "" for a mutex.
func Wants(kind fairlock.Kind, weight int, toWrite bool) string {
	switch {
	case inspect.HasPermits(kind):
		return inspect.Count(weight, "permit")
	case kind == fairlock.KindRWMutex && toWrite:
		return "write"
	case kind == fairlock.KindRWMutex:
		return "read"
	}
	return ""
}

// Use says how much of a lock is held, in a word or two.
func Use(l inspect.Lock) Phrase {
	switch {
	case l.Err != nil:
		return Phrase{Bad, unreadable}
	case inspect.HasPermits(l.Kind) && l.Permits > 0:
		text := fmt.Sprintf("%d of %d", l.Used, l.Permits)
		if others := l.OtherLimits(); others != "" {
			text += " (others: " + others + ")"
		}
		return Phrase{Text: text}
	case !l.Held() && l.Fence == 0: // perhaps a name that nobody uses
		return Phrase{Text: free}
	case !l.Held():
		return Phrase{Good, free}
	case l.Kind == fairlock.KindRWMutex && l.Holder().Writer:
		return Phrase{Text: writer}
	case l.Kind == fairlock.KindRWMutex:
		return Phrase{Text: inspect.Count(l.Used, reader)}
	case l.Holder().Released:
		return Phrase{Text: released}
	case l.Leads():
		return Phrase{Text: leads}
	}
	return Phrase{Text: held}
}

// Waiting is the number of live waiters, with the number of candidates among them.
func Waiting(l inspect.Lock) string {
	switch {
	case l.Err != nil:
		return Unknown
	case l.Candidates > 0 && l.Candidates == l.Waiting:
		return inspect.Count(l.Candidates, candidate)
	case l.Candidates > 0:
		return fmt.Sprintf("%d, and %s", l.Waiting-l.Candidates, inspect.Count(l.Candidates, candidate))
	}
	return fmt.Sprint(l.Waiting)
}

// WaitingAlone is Waiting as a number that stands in a column of numbers: candidates are beside it.
func WaitingAlone(l inspect.Lock) string {
	if l.Err != nil {
		return Unknown
	}
	return fmt.Sprint(l.Waiting - l.Candidates)
}

// BesideAlone is what stands beside that number: "2 candidates", "2 expired, a key at its limit"; "" if there is
// nothing to say.
func BesideAlone(l inspect.Lock) string {
	if l.Candidates == 0 {
		return Beside(l)
	}
	return join(inspect.Count(l.Candidates, candidate), Beside(l))
}

// Expired is how many waiters have expired; "" if none has.
func Expired(l inspect.Lock) string {
	if l.Expired == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", l.Expired, expired)
}

// OldestWait is how long the first live waiter has waited, candidates excepted.
func OldestWait(l inspect.Lock) string {
	switch {
	case l.Err != nil, l.OldestWait < 0:
		return Unknown
	case l.Waiting == l.Candidates:
		return None
	}
	return inspect.Span(l.OldestWait)
}

// OfKey describes the state of the i-th key of a keyed semaphore.
func OfKey(i int, k admin.KeyState) Phrase {
	p := Phrase{}
	switch {
	case k.AtLimit:
		p = Phrase{Warn, atLimit}
	case i == 0:
		p.Text = next
	}
	if len(k.Others) > 0 {
		var limits []string
		for _, n := range append([]int{k.Limit}, k.Others...) {
			limits = append(limits, map[bool]string{true: "none", false: fmt.Sprint(n)}[n == 0])
		}
		p.Text = join(p.Text, limitsInUse+": "+list(limits))
	}
	return p
}

// list is "a, b and c"; of many names, the first ones.
func list(names []string) string {
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("%d more", more))
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// atLimitNow are the keys of a keyed semaphore whose first waiters wait for holders of their own keys.
func atLimitNow(l inspect.Lock) (keys []string) {
	for _, k := range l.State.Keys {
		if k.AtLimit {
			keys = append(keys, inspect.Plain(k.Key))
		}
	}
	slices.Sort(keys) // the order in which they were found to be says nothing
	return keys
}

// Beside is shown beside the number of waiters: "2 expired, a key at its limit"; "" if there is nothing to say.
func Beside(l inspect.Lock) string {
	switch n := len(atLimitNow(l)); n {
	case 0:
		return Expired(l)
	case 1:
		return join(Expired(l), "a key "+atLimit)
	}
	return join(Expired(l), "keys "+atLimits)
}

// BesideInTable is Beside where little fits: "2 expired, 1 key at limit".
func BesideInTable(l inspect.Lock) string {
	text := ""
	if n := len(atLimitNow(l)); n > 0 {
		text = inspect.Count(n, "key") + " " + full
	}
	return join(Expired(l), text)
}

// most is how many groups are named.
const most = 8

// Groups counts waiters by client, the largest group first: "50 web-3, 50 web-4".
func Groups(waiters []admin.Waiter) string {
	n := map[string]int{}
	var names []string
	for _, w := range waiters {
		who := Who(w.Token.Client())
		if n[who]++; n[who] == 1 {
			names = append(names, who)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(n[b], n[a]) })
	parts := make([]string, 0, most+1)
	for i, name := range names {
		if i == most {
			parts = append(parts, fmt.Sprintf("… of %s in all", inspect.Count(len(names), "client")))
			break
		}
		parts = append(parts, fmt.Sprintf("%d %s", n[name], name))
	}
	return strings.Join(parts, ", ")
}

// Rest counts the live waiters behind the first shown ones by client: "280 more: 50 web-3, 50 web-4"; "" if there are
// none.
func Rest(l inspect.Lock, shown int) string {
	living := l.Living()
	more := l.Waiting - shown
	if more <= 0 || l.Waiters == nil {
		return ""
	}
	rest := living[min(shown, len(living)):]
	if len(rest) == 0 {
		return fmt.Sprintf("%d more that are not listed", more)
	}
	text := fmt.Sprintf("%d more: %s", more, Groups(rest))
	if hidden := l.Waiting - len(living); hidden > 0 {
		text += fmt.Sprintf(", and %d that are not listed", hidden)
	}
	return text
}

// HasLeft describes expired waiters: "299 expired, dropped by the next requests: 299 web-3"; "" if there are none.
func HasLeft(l inspect.Lock) string {
	text := Expired(l)
	if text == "" {
		return ""
	}
	text += ", " + dropped
	gone := slices.DeleteFunc(slices.Clone(l.Waiters), func(w admin.Waiter) bool { return w.TTL > 0 })
	if len(gone) > 0 {
		text += ": " + Groups(gone)
	}
	if hidden := l.Expired - len(gone); hidden > 0 && len(gone) > 0 {
		text += fmt.Sprintf(", and %d that are not listed", hidden)
	}
	return text
}

// IsReleased is "released" for a holder whose minimum hold is not over after its release; "" for others.
func IsReleased(h admin.Holder) string {
	if h.Released {
		return released
	}
	return ""
}

// Heir names the next holder if the lock is taken from this one.
func Heir(l inspect.Lock, h admin.Holder) string {
	living := l.Living()
	if l.Waiting == 0 {
		return "It is " + free + " at once."
	}
	if l.Kind == fairlock.KindKeyedSemaphore || len(living) == 0 {
		return "The next waiter that fits gets it at once."
	}
	first := living[0]
	name := Who(first.Token.Client())
	others := len(l.Holders)+l.Unlisted() > 1
	switch {
	case l.Kind == fairlock.KindRWMutex && first.Writer && others:
		return name + " gets it when the other readers have finished."
	case l.Kind == fairlock.KindSemaphore && first.Weight > l.Permits-l.Used+h.Weight:
		return fmt.Sprintf("%s is %s, and gets its %s when more of them are %s.", name, next,
			inspect.Count(first.Weight, "permit"), free)
	}
	return name + " gets it at once."
}

// Summary describes the state of a lock. It does not change with time.
func Summary(l inspect.Lock) string {
	text := Use(l).Text
	h := l.Holder()
	switch {
	case l.Err != nil:
		return text + ": " + inspect.Cause(l.Err)
	case l.Held() && inspect.HasPermits(l.Kind):
		text = permitsHeld(l)
	case l.Held() && l.Kind == fairlock.KindRWMutex:
		text = "held by " + strings.Replace(text, writer, "a "+writer, 1)
	case l.Held() && h.Released:
		text += " by " + Who(h.Token.Client())
	case l.Leads():
		text = Who(h.Token.Client()) + " " + leads
	case l.Held():
	case l.Idle():
		text = fmt.Sprintf("0 of %s held, %s, %s", inspect.Count(l.Permits, "permit"), setByResize, notInUse)
		return join(text, Expired(l))
	case l.Waiting > 0:
		text += ", " + grantedNext
	case l.Fence > 0:
		return join(text+fmt.Sprintf(", "+LastNumber+" %d", l.Fence), Expired(l))
	default:
		return join(text+", "+notUsed, Expired(l))
	}
	switch {
	case l.Waiting == 0:
		text += ", " + noWaiters
	case l.Candidates == l.Waiting:
		text += ", " + Waiting(l)
	default:
		text += ", " + Waiting(l) + " waiting"
	}
	return join(text, Beside(l))
}

// permitsHeld is "2 of 5 permits held, other clients use a limit of 8".
func permitsHeld(l inspect.Lock) string {
	text := fmt.Sprintf("%d of %s held", l.Used, inspect.Count(l.Permits, "permit"))
	switch others := l.OtherLimits(); len(l.Others) {
	case 0:
		return text
	case 1:
		return text + ", other clients use a limit of " + others
	default:
		return text + ", other clients use limits of " + others
	}
}

func join(text, more string) string {
	if text == "" || more == "" {
		return text + more
	}
	return text + ", " + more
}

// Verdict describes in a sentence or two the state of a lock, and what to expect of it.
func Verdict(l inspect.Lock) Phrase {
	v := ofHolders(l)
	if l.Err != nil {
		return v
	}
	if l.Waiting > 0 {
		queue, level := ofQueue(l)
		v.Text += " " + queue
		v.Level = cmp.Or(level, v.Level)
	}
	if gone := Expired(l); gone != "" {
		v.Text += " " + gone + ", " + dropped + "."
	}
	return v
}

// ofQueue describes the waiters, and what they wait for.
func ofQueue(l inspect.Lock) (text string, level Level) {
	switch {
	case l.Candidates == l.Waiting && l.Held():
		return Waiting(l) + ": waiting for as long as the leader lives.", ""
	case l.Candidates > 0:
		text = Waiting(l) + " wait."
	case l.Waiting == 1:
		text = fmt.Sprintf("One waits, for %s.", OldestWait(l))
	default:
		text = fmt.Sprintf("%d wait, the first for %s.", l.Waiting, OldestWait(l))
	}
	if !l.Held() {
		return text + " The first is granted the lock at the next request of any waiter, within seconds.", Warn
	}
	if why := Why(l); why != "" {
		text += " " + why
	}
	return text, ""
}

// Why says what the waiters of a held lock wait for, if not just for their turn; else "".
func Why(l inspect.Lock) string {
	if !l.Held() || l.Waiting == 0 {
		return ""
	}
	var texts []string
	if keys := atLimitNow(l); len(keys) == 1 {
		texts = append(texts, "Key "+keys[0]+" is "+atLimit+": its first waiter waits for holders of the key.")
	} else if len(keys) > 1 {
		texts = append(texts, "Keys "+list(keys)+" are "+atLimits+": their first waiters wait for holders of their own keys.")
	}
	name, behind, living := "The first waiter", "those behind it wait", l.Living()
	more := l.Waiting > 1
	if l.Kind == fairlock.KindKeyedSemaphore {
		keys := slices.DeleteFunc(slices.Clone(l.State.Keys), func(k admin.KeyState) bool { return k.AtLimit })
		if len(keys) == 0 {
			return strings.Join(texts, " ")
		}
		name, behind = "The first waiter of key "+inspect.Plain(keys[0].Key)+", which is "+next+",", "the keys behind it wait"
		living = slices.DeleteFunc(living, func(w admin.Waiter) bool { return w.Key != keys[0].Key })
		more = len(keys) > 1
	}
	if !more {
		behind = ""
	}
	if len(living) > 0 {
		if what := wants(l, living[0], behind); what != "" {
			texts = append(texts, name+" "+what+".")
		}
	}
	return strings.Join(texts, " ")
}

// wants says why the lock is not granted to the next waiter yet, unless it just needs a permit to be free. The waiters
// behind that one are behind, or "" if there are none.
func wants(l inspect.Lock, first admin.Waiter, behind string) (text string) {
	also := func(before, after string) string {
		if behind == "" {
			return ""
		}
		return before + behind + after
	}
	brings := l.Permits
	if n := first.Token.Terms().Permits; n > 0 && !l.Resized {
		brings = n
	}
	switch left := brings - l.Used; {
	case l.Kind == fairlock.KindRWMutex && !l.Holder().Writer && first.Writer:
		return "is a " + writer + " and waits for the " + reader + "s to finish" + also(": ", " for their turn")
	case !inspect.HasPermits(l.Kind), first.Weight <= left:
		return ""
	case brings < slices.Max(append(slices.Clone(l.Others), l.Permits)):
		return fmt.Sprintf("wants %s and uses a limit of %d, and %d are held",
			inspect.Count(first.Weight, "permit"), brings, l.Used) + also(": ", " for their turn")
	case left > 1:
		text = fmt.Sprintf("%d are %s", left, free)
	case left == 1:
		text = "1 is " + free
	case first.Weight > 1:
		text = "none is " + free
	default:
		return ""
	}
	return fmt.Sprintf("wants %s, and %s", inspect.Count(first.Weight, "permit"), text) + also(": ", " for their turn")
}

func ofHolders(l inspect.Lock) Phrase {
	gone, known := l.Late()
	back := 0
	for _, h := range l.Holders {
		if h.Released {
			back++
		}
	}
	h := l.Holder()
	name := Who(h.Token.Client())
	n := len(l.Holders) + l.Unlisted()
	switch {
	case l.Err != nil:
		return Phrase{Bad, "This lock cannot be read: " + inspect.Cause(l.Err) + "."}
	case l.Idle():
		return Phrase{Good, fmt.Sprintf("Not in use. It has %s, %s.", inspect.Count(l.Permits, "permit"), setByResize)}
	case !l.Held() && l.Waiting > 0: // the last number is a ticket
		return Phrase{Good, "Free."}
	case !l.Held() && l.Fence == 0:
		return Phrase{Text: "Free, and " + notUsed + "."}
	case !l.Held():
		age := max(l.At.Sub(time.UnixMicro(int64(l.Fence))), 0)
		return Phrase{Good, "Free. Its " + LastNumber + " was assigned " + inspect.Span(age) + " ago."}
	case h.TTL < 0:
		return Phrase{Bad, "Held forever by " + name +
			": another program has removed the expiry of its key. Only a forced release frees it."}
	case h.Token.IsZero():
		return Phrase{Warn, "Held by a key of another program, for another " + inspect.Span(h.TTL) + "."}
	case n == 1 && h.Released:
		return Phrase{Busy, "Released by " + name + ", free in " + inspect.Span(h.TTL) +
			": its minimum hold lasts until then."}
	case n == 1:
		return ofHolder(l, h, name)
	}
	text, level := fmt.Sprintf("Held by %s.", inspect.Count(l.Used, reader)), Busy
	if inspect.HasPermits(l.Kind) {
		text = permitsHeld(l) + "."
	}
	if back > 0 {
		text += fmt.Sprintf(" %s released before the minimum hold was over.", amount(back, n, l))
	}
	switch {
	case gone > 0:
		level, text = Bad, text+fmt.Sprintf(" %s missed renewals: crashed, hanging, or cut off from Redis.",
			amount(gone, n, l))
	case !known:
		text += " It is unknown whether all are " + alive + "."
	}
	return Phrase{level, text}
}

// ofHolder tells of the only holder.
func ofHolder(l inspect.Lock, h admin.Holder, name string) Phrase {
	has := "Held by " + name
	if l.Leads() {
		has = name + " " + leads
	}
	switch {
	case h.Renewed < 0:
		return Phrase{Busy, has + ". It is unknown whether it is " + alive +
			", because its lease does not show when it was renewed."}
	case h.Missed == 0 && unrenewed(h):
		return Phrase{Busy, has + ". Its lease was " + Renewed(h).Text + "."}
	case h.Missed == 0:
		return Phrase{Busy, has + ". Its lease was " + renewed + " " + Renewed(h).Text + "."}
	}
	return Phrase{Bad, fmt.Sprintf(
		"%s has missed %s: it has crashed, hangs, or cannot reach Redis. Its lease ends in %s; "+
			"then the lock is free for the next waiter.", name, inspect.Count(h.Missed, "renewal"), inspect.Span(h.TTL))}
}

// amount is a part of the holders.
func amount(n, of int, l inspect.Lock) string {
	switch {
	case n == of:
		return "All have"
	case l.Unlisted() > 0:
		return fmt.Sprintf("%d or more have", n)
	case n == 1:
		return "One has"
	}
	return fmt.Sprintf("%d have", n)
}
