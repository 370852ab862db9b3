package lua

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/token"
)

// ErrReply is wrapped by the error for a reply that no script of ours gives.
var ErrReply = errors.New("unexpected reply")

// reader takes a reply apart, and remembers the first thing that did not fit.
type reader struct {
	rest []any
	err  error
}

func decode[T any](reply []any, read func(*reader) T) (T, error) {
	r := reader{rest: reply}
	v := read(&r)
	if r.err != nil {
		var none T
		return none, fmt.Errorf("%w: %w", ErrReply, r.err)
	}
	return v, nil
}

func next[T any](r *reader) (v T) {
	if r.err != nil {
		return v
	}
	if len(r.rest) == 0 {
		r.err = fmt.Errorf("want a %T, have nothing", v)
		return v
	}
	v, ok := r.rest[0].(T)
	if !ok {
		r.err = fmt.Errorf("want a %T, have a %T", v, r.rest[0])
	}
	r.rest = r.rest[1:]
	return v
}

func (r *reader) text() string { return next[string](r) }
func (r *reader) list() []any  { return next[[]any](r) }

// count reads how many there are, which is no fewer than least.
func (r *reader) count(least int) int {
	n := next[int64](r)
	if r.err == nil && (n < int64(least) || int64(int(n)) != n) {
		r.err = fmt.Errorf("want a count from %d, have %d", least, n)
	}
	return int(n)
}

// more reads the state of a queue.
func (r *reader) more() bool { return r.text() == "more" }

// number reads what is sent as text to stay exact. The scripts count up to 2^53, and so does everybody.
func (r *reader) number() uint64 {
	s := r.text()
	if r.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil {
		r.err = err
	}
	return n
}

// positive reads a number that is not 0: a fence, a ticket, a capacity.
func (r *reader) positive() uint64 {
	n := r.number()
	if r.err == nil && n == 0 {
		r.err = errors.New("want a number that is not 0")
	}
	return n
}

func (r *reader) token() token.Token {
	s := r.text()
	if r.err != nil {
		return token.Token{}
	}
	t, err := token.Parse(s)
	if err != nil {
		r.err = err
	}
	return t
}

func (r *reader) duration() time.Duration {
	ms := next[int64](r)
	if r.err == nil && (ms > longest || ms < -longest) {
		r.err = fmt.Errorf("%d ms", ms)
	}
	return time.Duration(ms) * time.Millisecond
}

// longest is the most milliseconds that a time.Duration can hold.
const longest = math.MaxInt64 / int64(time.Millisecond)

// given reads how long a grant lasts.
func (r *reader) given() time.Duration {
	d := r.duration()
	if r.err == nil && d <= 0 {
		r.err = fmt.Errorf("given for %v", d)
	}
	return d
}

func (r *reader) moment() time.Time { return time.UnixMicro(int64(r.number())) }

// each reads a list of lists.
func each[T any](r *reader, read func(*reader) T) []T {
	list := r.list()
	if r.err != nil || len(list) == 0 {
		return nil
	}
	all := make([]T, 0, len(list))
	for _, item := range list {
		fields, ok := item.([]any)
		if !ok {
			r.err = fmt.Errorf("want a list, have a %T", item)
			return nil
		}
		inner := reader{rest: fields}
		all = append(all, read(&inner))
		if inner.err != nil {
			r.err = inner.err
			return nil
		}
	}
	return all
}

func readAnswer(r *reader) (a Answer) {
	switch kind := r.text(); kind {
	case "granted":
		a.Outcome, a.Fence, a.More = Granted, r.positive(), r.more()
	case "queued":
		a.Outcome = Queued
		a.Ticket, a.Position, a.Fence, a.Helps = Ticket(r.positive()), r.count(1), r.number(), r.duration()
	case "busy":
		a.Outcome, a.More = Busy, r.more()
	case "full":
		a.Outcome, a.Position = Full, r.count(1)
	case "capacity":
		a.Outcome, a.Capacity = Capacity, int(r.positive())
	default:
		r.unknown(kind)
	}
	return a
}

func (r *reader) unknown(kind string) {
	if r.err == nil {
		r.err = fmt.Errorf("unknown outcome %q", kind)
	}
}

func readHandover(r *reader) (h Handover) {
	h.Released = r.count(0) == 1
	h.More = r.more()
	h.Grants = each(r, readGrant)
	return h
}

func readGrant(r *reader) Grant {
	return Grant{Token: r.token(), Fence: r.positive(), Given: r.given()}
}

// ParseGrant reads the message on a wake channel: token, fence and milliseconds, separated by spaces.
func ParseGrant(message string) (Grant, error) {
	text, rest, _ := strings.Cut(message, " ")
	fence, given, _ := strings.Cut(rest, " ")
	ms, err := strconv.ParseInt(given, 10, 64)
	if err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrReply, err)
	}
	return decode([]any{text, fence, ms}, readGrant)
}

func readRenewal(r *reader) uint64 {
	switch kind := r.text(); kind {
	case "renewed":
		return r.positive()
	case "lost":
	default:
		r.unknown(kind)
	}
	return 0
}

var states = map[string]State{"gone": Gone, "queued": Waiting, "granted": Holding, "admitted": Admitted}

// readPulse reads the reply to a beat of n tokens.
func readPulse(n int) func(*reader) Pulse {
	return func(r *reader) Pulse {
		p := Pulse{Fence: r.number(), Best: r.count(0) - 1, Helps: r.duration()}
		for _, item := range r.list() {
			text, _ := item.(string)
			state, ok := states[text]
			if !ok {
				r.unknown(fmt.Sprint(item))
			}
			p.States = append(p.States, state)
		}
		if r.err == nil && (len(p.States) != n || p.Best < -1 || p.Best >= n) {
			r.err = fmt.Errorf("%d states, the best %d, for %d tokens", len(p.States), p.Best, n)
		}
		return p
	}
}

func readSnapshot(r *reader) Snapshot {
	return Snapshot{
		Now:      r.moment(),
		Fence:    r.number(),
		Used:     r.count(0),
		Capacity: r.count(0),
		Holders:  each(r, func(r *reader) Holder { return Holder{r.text(), r.number(), r.duration(), r.count(0)} }),
		Waiting:  r.count(0),
		Waiters: each(r, func(r *reader) Waiter {
			return Waiter{r.text(), Ticket(r.number()), r.moment(), r.count(1)}
		}),
	}
}
