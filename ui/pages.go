package ui

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/doctor"
	"github.com/fairlock/fairlock-go/internal/inspect"
)

// search is what a search for locks has found.
type search struct {
	locks []inspect.Lock // those that cannot be read first, then by the oldest wait
	err   error          // why some may be missing
}

func byWait(found []inspect.Lock, err error) search {
	slices.SortStableFunc(found, func(a, b inspect.Lock) int {
		unreadable := func(l inspect.Lock) int {
			if l.Err != nil {
				return 0
			}
			return 1
		}
		return cmp.Or(unreadable(a)-unreadable(b), cmp.Compare(longest(b), longest(a)))
	})
	return search{found, err}
}

// longest is how long the first waiter of a lock has waited; negative if nobody waits.
func longest(l inspect.Lock) time.Duration {
	if len(l.Waiters) == 0 {
		return -1
	}
	return l.Waiters[0].Age
}

// freshness says how old is what a page shows, and what is missing.
type freshness struct {
	At      time.Time     // zero: nothing was read yet
	Age     time.Duration // now
	Pending time.Duration // for how long Redis has not replied; 0: it has
	Err     string        // why it could not be read again, or not all of it
	Search  bool          // it is from a search, which takes its time
}

// Ago is how old it is, in words.
func (f freshness) Ago() string {
	if f.Age < time.Second {
		return "just now"
	}
	return inspect.Span(f.Age) + " ago"
}

// Level is how bad that is: good, warn or bad.
func (f freshness) Level() string {
	switch {
	case f.Err != "" || f.Pending > 0 && !f.Search:
		return "bad"
	case f.Pending > 3*time.Second:
		return "warn"
	}
	return "good"
}

func freshnessOf[V any](g cached[V]) freshness {
	f := freshness{At: g.at, Pending: g.pending}
	if !g.at.IsZero() {
		f.Age = time.Since(g.at)
	}
	if g.err != nil {
		f.Err = inspect.Message(g.err)
	}
	return f
}

// shownAtOnce is how many locks one page lists.
const shownAtOnce = 200

// filter is what the list is to show. It stands in the page's address.
type filter struct {
	Text    string
	Kind    fairlock.Kind
	Waiting bool
	From    int
}

func filterOf(q url.Values) filter {
	f := filter{Text: q.Get("q"), Waiting: q.Get("waiting") != ""}
	if kind, err := inspect.ParseKind(q.Get("kind")); err == nil {
		f.Kind = kind
	}
	if from, err := strconv.Atoi(q.Get("from")); err == nil {
		f.From = max(from, 0)
	}
	return f
}

// Any reports whether it leaves something out.
func (f filter) Any() bool { return f.Text != "" || f.Kind != "" || f.Waiting }

// At is the same filter, from another lock on.
func (f filter) At(from int) filter {
	f.From = from
	return f
}

func (f filter) shows(l inspect.Lock) bool {
	return has(l, f.Text) && (f.Kind == "" || f.Kind == l.Kind) && (!f.Waiting || l.Waiting > 0)
}

// listPage is the list of locks.
type listPage struct {
	Filter   filter
	Kinds    []fairlock.Kind
	Fresh    freshness
	Rows     []row
	All      int // locks in use
	Shown    int // that the filter shows, on all pages
	Waited   int // for which somebody waits
	Late     int // whose first holder has missed renewals
	Longest  time.Duration
	Next     int  // where the next page begins; 0: this is the last
	Checked  bool // the server was
	Problems int
	Warnings int
}

// row is a lock in the list.
type row struct {
	inspect.Lock

	More int           // further holders
	Wait time.Duration // of the first waiter
}

func (h *Handler) serveLocks(w http.ResponseWriter, r *http.Request) {
	g := h.search.get(r.Context(), struct{}{})
	p := listPage{Filter: filterOf(r.URL.Query()), Kinds: inspect.Kinds, Fresh: freshnessOf(g), All: len(g.value.locks)}
	p.Fresh.Search = true
	if g.value.err != nil {
		p.Fresh.Err = inspect.Message(g.value.err)
	}
	for _, l := range g.value.locks {
		p.Longest = max(p.Longest, longest(l))
		if l.Waiting > 0 {
			p.Waited++
		}
		if l.Holder().Missed > 0 {
			p.Late++
		}
		if !p.Filter.shows(l) {
			continue
		}
		if p.Shown++; p.Shown > p.Filter.From && len(p.Rows) < shownAtOnce {
			p.Rows = append(p.Rows, row{l, max(len(l.Holders)+unlisted(l)-1, 0), max(longest(l), 0)})
		}
	}
	if end := p.Filter.From + len(p.Rows); end < p.Shown && len(p.Rows) > 0 {
		p.Next = end
	}
	checked := h.checks.peek(struct{}{})
	report := checked.value
	p.Checked, p.Problems, p.Warnings = !checked.at.IsZero(), report.Count(doctor.Problem), report.Count(doctor.Warning)
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
	Verdict verdict
	Fresh   freshness
}

// Hidden is how many waiters are not listed.
func (p lockPage) Hidden() int { return max(p.Lock.Waiting-len(p.Lock.Waiters), 0) }

func (h *Handler) serveLock(w http.ResponseWriter, r *http.Request) {
	id, err := idOf(r)
	if err != nil {
		h.fail(w, http.StatusBadRequest, "Which lock is meant? "+err.Error()+".")
		return
	}
	g := h.locks.get(r.Context(), id)
	p := lockPage{ID: id, Known: !g.at.IsZero(), Lock: g.value, Fresh: freshnessOf(g)}
	if p.Known {
		p.Verdict = verdictOf(p.Lock)
		if p.Fresh.Level() == "bad" { // the lease may be over by now
			p.Verdict.Text = "As it was " + p.Fresh.Ago() + ": " + p.Verdict.Text
		}
	}
	h.render(w, http.StatusOK, "lock", page{Title: id.String(), Heading: inspect.Plain(id.Name), Refresh: 500, Body: p})
}

// serverPage is what the doctor has found.
type serverPage struct {
	Report             doctor.Report
	Fresh              freshness
	Problems, Warnings int
	Unchecked          int
	Several            bool // servers
	Rights             []doctor.Rights
}

func (h *Handler) serveServer(w http.ResponseWriter, r *http.Request) {
	g := h.checks.get(r.Context(), struct{}{})
	p := serverPage{Report: g.value, Fresh: freshnessOf(g), Problems: g.value.Count(doctor.Problem),
		Warnings: g.value.Count(doctor.Warning), Unchecked: g.value.Count(doctor.Unchecked), Rights: g.value.Rights}
	p.Fresh.Search = true
	for _, f := range p.Report.Checks {
		p.Several = p.Several || f.Server != p.Report.Checks[0].Server
	}
	if g.at.IsZero() {
		w.Header().Set("Refresh", "1")
	}
	h.render(w, http.StatusOK, "server", page{Title: "Server", Heading: "Checks of the server", Tab: "server", Refresh: 5000, Body: p})
}
