package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/words"
)

// search is the result of a search for locks.
type search struct {
	locks   []inspect.Lock // by trouble
	err     error          // why some may be missing
	noLocks string         // says that the namespace has none, and which others have some; "" if it has some
}

// used are the locks in use.
func (s search) used() (ids []inspect.ID) {
	for _, l := range s.locks {
		if l.Err == nil && l.InUse() {
			ids = append(ids, l.ID)
		}
	}
	return ids
}

func use(l inspect.Lock) int {
	if l.InUse() {
		return 1
	}
	return 0
}

// orders are the other orders by which the list can be sorted.
var orders = map[string]func(a, b inspect.Lock) int{
	"name":    func(a, b inspect.Lock) int { return a.Compare(b.ID) },
	"holder":  func(a, b inspect.Lock) int { return cmp.Compare(a.Holder().Token.Client(), b.Holder().Token.Client()) },
	"held":    inspect.ByHeld,
	"waiting": func(a, b inspect.Lock) int { return cmp.Compare(b.Waiting, a.Waiting) },
	"wait":    inspect.ByWait,
}

// freshness says how old the data of a page are, and what is missing.
type freshness struct {
	At     time.Time     // zero: nothing was read yet
	Age    time.Duration // now
	Silent string        // says that Redis does not answer, and since when; "": it does
	Err    string        // why the last read failed, or missed a part
	Part   bool          // Err is about a part of what was read
	Gaps   bool          // the data say themselves what is missing

	Takes string        // what is read, if that can take long: "search" or "checks"
	Taken time.Duration // how long a new one has been under way; 0: none is, or not for long
	Next  time.Duration // when the next one comes, if that is not soon
}

// Old reports whether the data may be out of date.
func (f freshness) Old() bool { return f.Err != "" && !f.Part || f.Silent != "" }

// Complete reports whether all that was in Redis was read, as far as is known.
func (f freshness) Complete() bool { return f.Err == "" && f.Silent == "" && !f.Gaps }

// Ago returns the age of the data in words.
func (f freshness) Ago() string {
	if f.Age < time.Second {
		return "just now"
	}
	return inspect.Span(f.Age) + " ago"
}

// Level returns how bad that is: good, warn or bad.
func (f freshness) Level() string {
	switch {
	case !f.Complete():
		return "bad"
	case f.Taken > 3*time.Second:
		return "warn"
	}
	return "good"
}

// freshnessOf returns the freshness of a cached value. part is why a part of it could not be read.
func freshnessOf[V any](h *Handler, g cached[V], part error, takes string) freshness {
	f := freshness{At: g.at, Takes: takes}
	if !g.at.IsZero() {
		f.Age = time.Since(g.at)
	}
	err := told(cmp.Or(g.err, part))
	silent, replied := h.server.Silent(), h.server.Replied()
	switch {
	case takes == "" && silent < maxWait: // one request: on a cluster, other servers may have answered
		silent, replied = g.pending, g.at
	case takes == "":
	case g.pending > 0:
		f.Taken = g.pending
	case time.Until(g.next) > soon:
		f.Next = time.Until(g.next)
	}
	if silent >= maxWait {
		f.Silent, f.Taken = silence(silent, replied), 0
	}
	if err != nil && (f.Silent == "" || !errors.Is(err, errSilent)) {
		f.Err = inspect.Cause(err)
	}
	return f
}

// silence says that Redis does not answer, and since when. Its last answer may have come long before the request that
// waits.
func silence(waits time.Duration, replied time.Time) string {
	if replied.IsZero() {
		return "Redis has not answered for " + inspect.Span(waits) + "."
	}
	return "Redis does not answer. Its last answer came " + inspect.Span(time.Since(replied)) + " ago."
}

// errSilent replaces errors that say only that no reply came.
var errSilent = errors.New("Redis does not answer") //nolint:staticcheck // a name

// told replaces Go's errors for a missing reply or a closed connection by errSilent.
func told(err error) error {
	var late interface{ Timeout() bool }
	if !inspect.Refused(err) && (errors.As(err, &late) && late.Timeout() || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF)) {
		return errSilent
	}
	return err
}

// shownAtOnce is how many locks one page lists.
const shownAtOnce = 50

// filter says which locks the list shows. It is part of the page's address.
type filter struct {
	Text    string
	Kind    fairlock.Kind
	Waiting bool
	Sort    string // one of orders; "": by trouble
	From    int
}

func filterOf(q url.Values) filter {
	f := filter{Text: q.Get("q"), Waiting: q.Get("waiting") != ""}
	if kind, err := inspect.ParseKind(q.Get("kind")); err == nil {
		f.Kind = kind
	}
	if by := q.Get("sort"); orders[by] != nil {
		f.Sort = by
	}
	if from, err := strconv.Atoi(q.Get("from")); err == nil {
		f.From = max(from, 0)
	}
	return f
}

// Any reports whether the filter leaves locks out.
func (f filter) Any() bool { return f.Text != "" || f.Kind != "" || f.Waiting }

// At returns the same filter, from another lock on.
func (f filter) At(from int) filter {
	f.From = from
	return f
}

// By returns the same filter in another order.
func (f filter) By(order string) filter {
	f.Sort, f.From = order, 0
	return f
}

// Heads returns the heads of the columns that can sort the list. The head of the present order leads back to the order
// by trouble.
func (f filter) Heads() (all []head) {
	for _, h := range []head{
		{Text: "Lock", Sort: "name"}, {Text: "In use"}, {}, {Text: "Holder", Sort: "holder"}, {Text: "Held for",
			Sort: "held"}, {Text: "Renewed"},
		{Text: "Waiting", Sort: "waiting", Number: true}, {}, {Text: "Oldest wait", Sort: "wait"},
	} {
		if h.Sort != "" {
			h.Sorted = h.Sort == f.Sort
			to := f.By(h.Sort)
			if h.Sorted {
				to = f.By("")
			}
			h.To = &to
		}
		all = append(all, h)
	}
	return all
}

// head is the head of a column.
type head struct {
	Text           string
	To             *filter // where it leads; nil: no link
	Sort           string  // one of orders; "": it does not sort
	Sorted, Number bool
}

// fits reports whether the lock is of the wanted kind, and has waiters if that is wanted.
func (f filter) fits(l inspect.Lock) bool {
	return (f.Kind == "" || f.Kind == l.Kind) && (!f.Waiting || l.Waiting > 0)
}

// finds reports whether the lock's name, raw or as shown, or the name of a holder contains the text.
func (f filter) finds(l inspect.Lock) bool {
	return f.named(l) || f.holder(l) != ""
}

// named reports whether the lock's name contains the text.
func (f filter) named(l inspect.Lock) bool {
	return has(l.Name, f.Text) || has(inspect.Plain(l.Name), f.Text)
}

// holder returns the name of the first holder that contains the text, or "".
func (f filter) holder(l inspect.Lock) string {
	for _, h := range l.Holders {
		if name := h.Token.Client(); has(name, f.Text) {
			return name
		}
	}
	return ""
}

// listPage is the list of locks.
type listPage struct {
	Filter  filter
	Kinds   []fairlock.Kind
	Fresh   freshness
	Rows    []row
	Found   int // all locks
	Shown   int // that the filter shows, on all pages
	Partly  int // that the filter does not show, although one of their unlisted holders may match
	Tiles   tiles
	Next    int // where the next page begins; 0: this is the last
	Health  health
	NoLocks string // why there is none; "" if there is
}

// row is a lock in the list.
type row struct {
	inspect.Lock

	More  int    // further holders
	Found string // the further holder by which the filter has found the lock; "" if it was found otherwise
}

func (f filter) row(l inspect.Lock) row {
	r := row{Lock: l, More: max(len(l.Holders)+l.Unlisted()-1, 0)}
	if name := f.holder(l); !f.named(l) && name != l.Holder().Token.Client() {
		r.Found = name
	}
	return r
}

// tiles sum up all locks that could be read.
type tiles struct {
	Used, Waited, Oldest string
	Late                 words.Phrase
}

func tilesOf(locks []inspect.Lock) (t tiles) {
	used, waited, late, unknown, unread := 0, 0, 0, 0, 0
	longest := time.Duration(-1)
	for _, l := range locks {
		if l.Unknown() {
			unread++
			continue
		}
		used += use(l)
		longest = max(longest, l.OldestWait)
		if l.Waiting > l.Candidates {
			waited++
		}
		switch n, all := l.Late(); {
		case n > 0:
			late++
		case !all && l.Err == nil:
			unknown++
		}
	}
	number := func(n int) string {
		switch {
		case unread == 0:
			return strconv.Itoa(n)
		case n == 0:
			return words.Unknown
		}
		return fmt.Sprintf("%d or more", n)
	}
	t = tiles{number(used), number(waited), words.None, words.Phrase{Text: number(late)}}
	if unread == 0 && unknown > 0 {
		t.Late.Text += fmt.Sprintf(", %d unknown", unknown)
	}
	if late > 0 {
		t.Late.Level = words.Bad
	}
	switch {
	case waited > 0 && longest >= 0 && unread > 0:
		t.Oldest = inspect.Span(longest) + " or more"
	case waited > 0 && longest >= 0:
		t.Oldest = inspect.Span(longest)
	case waited > 0 || unread > 0:
		t.Oldest = words.Unknown
	}
	return t
}

// health sums up the findings of the checks. Those about the page's own user are not faults of the server.
type health struct {
	Checked            bool
	Away               bool   // no server answers the checks: in an outage, this is new
	Problems, Warnings int    // of the server
	Own                string // what is wrong with the user
}

func healthOf(checked cached[doctor.Report]) health {
	h := health{Checked: !checked.at.IsZero(), Away: checked.value.Away()}
	for _, f := range checked.value.Checks {
		switch {
		case f.Own && (f.Result == doctor.Problem || f.Result == doctor.Warning):
			if h.Own == "" {
				h.Own = f.Found
			}
		case f.Result == doctor.Problem:
			h.Problems++
		case f.Result == doctor.Warning:
			h.Warnings++
		}
	}
	return h
}

// Words returns the text of the tile.
func (h health) Words() string {
	switch {
	case h.Problems > 0:
		return inspect.Count(h.Problems, "problem")
	case h.Own != "":
		return "rights"
	case h.Warnings > 0:
		return inspect.Count(h.Warnings, "warning")
	case h.Checked:
		return "ok"
	}
	return "…"
}

// Level returns how bad that is.
func (h health) Level() words.Level {
	switch {
	case h.Problems > 0, h.Own != "":
		return words.Bad
	case h.Warnings > 0:
		return words.Warn
	}
	return ""
}

func (h *Handler) serveLocks(w http.ResponseWriter, r *http.Request) {
	g := h.search.get(r.Context(), struct{}{})
	p := listPage{Filter: filterOf(r.URL.Query()), Kinds: inspect.Kinds, Found: len(g.value.locks)}
	p.Fresh = freshnessOf(h, g, g.value.err, "search")
	p.Health, p.NoLocks = healthOf(h.checks.peek(struct{}{})), g.value.noLocks
	unread := inspect.Unread(slices.DeleteFunc(slices.Clone(g.value.locks),
		func(l inspect.Lock) bool { return l.Err != nil && !l.Unknown() }))
	if unread != nil && p.Fresh.Err == "" {
		p.Fresh.Err, p.Fresh.Part = unread.Error(), true
	}
	p.Tiles = tilesOf(g.value.locks)
	shown := slices.DeleteFunc(slices.Clone(g.value.locks), func(l inspect.Lock) bool {
		fits, found := p.Filter.fits(l), p.Filter.finds(l)
		if fits && !found && l.Unlisted() > 0 {
			p.Partly++
		}
		return !fits || !found
	})
	if order := orders[p.Filter.Sort]; order != nil {
		slices.SortStableFunc(shown, order)
	}
	p.Shown = len(shown)
	for _, l := range shown[min(p.Filter.From, len(shown)):min(p.Filter.From+shownAtOnce, len(shown))] {
		p.Rows = append(p.Rows, p.Filter.row(l))
	}
	if end := p.Filter.From + len(p.Rows); end < p.Shown && len(p.Rows) > 0 {
		p.Next = end
	}
	if g.at.IsZero() {
		w.Header().Set("Refresh", "1") // also without JavaScript
	}
	h.render(w, http.StatusOK, "list", page{Title: "Locks", Heading: "Locks in use", Tab: "locks", Refresh: 2000, Body: p})
}

// lockPage is one lock.
type lockPage struct {
	ID      inspect.ID
	Known   bool // it was read
	Lock    inspect.Lock
	Verdict words.Phrase
	Fresh   freshness
	Every   bool // all listed waiters are shown one by one

	Crossing string       // says that this lock and another are held and waited for crosswise; "" if they are not
	Meant    []inspect.ID // locks that the user may mean instead of this unused one
	Hint     string       // why Meant is empty; "" if there is nothing to say
}

// few is how many waiters the page of a lock shows one by one by default.
const few = 20

// Waiters returns the live waiters that are shown one by one.
func (p lockPage) Waiters() []admin.Waiter {
	living := p.Lock.Living()
	if p.Every {
		return living
	}
	return living[:min(few, len(living))]
}

// Holders returns the holders that are shown, those that have missed renewals first.
func (p lockPage) Holders() []admin.Holder {
	return p.Lock.LateFirst()[:min(listed, len(p.Lock.Holders))]
}

// MoreHolders returns how many holders are not shown.
func (p lockPage) MoreHolders() int {
	return len(p.Lock.Holders) - len(p.Holders()) + p.Lock.Unlisted()
}

// Rest counts the other waiters by client; "" if there are none.
func (p lockPage) Rest() string { return words.Rest(p.Lock, len(p.Waiters())) }

// CanShowMore reports whether more waiters are listed than shown.
func (p lockPage) CanShowMore() bool { return !p.Every && len(p.Lock.Living()) > few }

func (h *Handler) serveLock(w http.ResponseWriter, r *http.Request) {
	id, err := idOf(r)
	if err != nil {
		h.fail(w, http.StatusBadRequest, "Which lock is meant? "+err.Error()+".")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWait) // for both reads
	defer cancel()
	g := h.locks.get(ctx, id)
	p := lockPage{ID: id, Known: !g.at.IsZero(), Lock: g.value, Fresh: freshnessOf(h, g, nil, ""),
		Every: r.URL.Query().Get("all") != ""}
	if p.Known {
		p.Fresh.Gaps = p.Lock.Err != nil
		p.Verdict = words.Verdict(p.Lock)
		if p.Fresh.Old() { // the lease may be over by now
			p.Verdict.Text = "As it was " + p.Fresh.Ago() + ": " + p.Verdict.Text
		}
	}
	if p.Known && p.Lock.Held() && p.Lock.Waiting > 0 {
		var others []inspect.Lock
		for _, id := range p.Lock.MayCross(h.search.peek(struct{}{}).value.locks) {
			others = append(others, h.locks.get(ctx, id).value)
		}
		if c, crosses := p.Lock.Crossing(others); crosses {
			p.Crossing = words.Crossing(p.Lock, c)
		}
	}
	if p.Known && !p.Lock.InUse() {
		found := h.search.get(ctx, struct{}{})
		p.Meant, p.Hint = p.Lock.Meant(found.value.used()), found.value.noLocks
		if err := cmp.Or(found.err, found.value.err); err != nil && len(p.Meant) == 0 && p.Lock.Fence == 0 {
			p.Hint = inspect.NotSearched(told(err))
		} else if !found.at.IsZero() && len(p.Meant) == 0 && p.Hint == "" && p.Lock.Fence == 0 {
			p.Hint = words.NothingAlike()
		}
	}
	h.render(w, http.StatusOK, "lock", page{Title: id.String(), Heading: inspect.Plain(id.Name), Refresh: 500, Body: p})
}

// serverPage has the findings of the doctor.
type serverPage struct {
	Report             doctor.Report
	Fresh              freshness
	Problems, Warnings int
	Bad, Well          []doctor.Finding // those that are not ok, the worst first; and the others
	Several            bool             // there is more than one server
	Rights             []doctor.Rights
}

func (h *Handler) serveServer(w http.ResponseWriter, r *http.Request) {
	g := h.checks.get(r.Context(), struct{}{})
	p := serverPage{Report: g.value, Fresh: freshnessOf(h, g, nil, "checks"), Problems: g.value.Count(doctor.Problem),
		Warnings: g.value.Count(doctor.Warning), Rights: g.value.Rights}
	p.Bad, p.Well = g.value.Sorted()
	for _, f := range p.Report.Checks {
		p.Several = p.Several || f.Server != p.Report.Checks[0].Server
	}
	if g.at.IsZero() {
		w.Header().Set("Refresh", "1")
	}
	h.render(w, http.StatusOK, "server", page{Title: "Server", Heading: "Checks of the server", Tab: "server",
		Refresh: 5000, Body: p})
}
