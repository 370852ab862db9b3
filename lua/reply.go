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

// reader reads a reply field by field, and keeps the first error.
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

// count reads a number of things, which is no less than least.
func (r *reader) count(least int) int {
	n := next[int64](r)
	if r.err == nil && (n < int64(least) || int64(int(n)) != n) {
		r.err = fmt.Errorf("want a count from %d, have %d", least, n)
	}
	return int(n)
}

// more reads the state of a queue.
func (r *reader) more() bool { return r.text() == "more" }

// number reads a fence, a ticket or a time. Lua's numbers are exact below 2^53.
func (r *reader) number() uint64 {
	n := next[int64](r)
	if r.err == nil && (n < 0 || n >= 1<<53) {
		r.err = fmt.Errorf("want a number below 2^53, have %d", n)
	}
	return uint64(n)
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

// given reads the length of a lease.
func (r *reader) given() time.Duration {
	d := r.duration()
	if r.err == nil && d <= 0 {
		r.err = fmt.Errorf("a lease of %v", d)
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

func readReply(r *reader) (reply Reply) {
	switch outcome := r.text(); outcome {
	case "granted":
		reply.Outcome, reply.Fence, reply.More = Granted, r.positive(), r.more()
	case "queued":
		reply.Outcome, reply.Ticket, reply.Position = Queued, Ticket(r.positive()), r.count(1)
		reply.Fence, reply.RetryAfter, reply.Holder = r.number(), r.duration(), r.text()
	case "busy":
		reply.Outcome, reply.More, reply.Holder = Busy, r.more(), r.text()
	case "full":
		reply.Outcome, reply.Position = Full, r.count(1)
	case "capacity":
		reply.Outcome, reply.Capacity = CapacityDiffers, int(r.positive())
	default:
		r.unknown(outcome)
	}
	return reply
}

func (r *reader) unknown(word string) {
	if r.err == nil {
		r.err = fmt.Errorf("unknown word %q", word)
	}
}

func readHandoff(r *reader) (h Handoff) {
	h.Released = r.count(0) == 1
	h.More = r.more()
	for r.err == nil && len(r.rest) > 0 {
		h.Grants = append(h.Grants, readGrant(r))
	}
	return h
}

func readGrant(r *reader) Grant {
	return Grant{Token: r.token(), Fence: r.positive(), Given: r.given()}
}

// ParseNotification reads a message on a notification channel: token, fence and milliseconds, separated by spaces.
func ParseNotification(message string) (Grant, error) {
	text, rest, _ := strings.Cut(message, " ")
	fence, given, _ := strings.Cut(rest, " ")
	number, err := strconv.ParseInt(fence, 10, 64)
	ms, err2 := strconv.ParseInt(given, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrReply, err)
	}
	return decode([]any{text, number, ms}, readGrant)
}

func readRenewal(r *reader) Renewal {
	switch outcome := r.text(); outcome {
	case "renewed":
		return Renewal{true, r.positive()}
	case "lost":
		return Renewal{false, r.number()}
	default:
		r.unknown(outcome)
		return Renewal{}
	}
}

var waiterStates = map[string]WaiterState{
	"not_queued": NotQueued, "queued": StillQueued, "holding": Holding, "granted": NowGranted,
}

// readHeartbeat reads the reply to a heartbeat of n tokens.
func readHeartbeat(n int) func(*reader) HeartbeatReply {
	return func(r *reader) HeartbeatReply {
		reply := HeartbeatReply{Fence: r.number(), RetryAfter: r.duration()}
		for _, item := range r.list() {
			word, _ := item.(string)
			state, ok := waiterStates[word]
			if !ok {
				r.unknown(fmt.Sprint(item))
			}
			reply.States = append(reply.States, state)
		}
		if r.err == nil && len(reply.States) != n {
			r.err = fmt.Errorf("%d states for %d tokens", len(reply.States), n)
		}
		return reply
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
		Quarantine: r.duration(),
	}
}
