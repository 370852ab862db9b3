package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/token"
)

// send sends a request and reads its reply. The request is ambiguous if a copy of it may still reach Redis or has done
// so, whatever the error.
func send[T any](
	ctx context.Context, l Lock, r dispatch.Request, read func(*reader) T,
) (v T, ambiguous bool, err error) {
	reply, err := l.rdb.Send(ctx, r)
	ambiguous = r.Args[0].(*dispatch.Counted).Ambiguous(err)
	if err != nil && err != redis.Nil { //nolint:errorlint // a nil is a reply; a wrapped one is not from a script
		return v, ambiguous, l.explain(call.WithOrigin(err))
	}
	switch reply := reply.(type) {
	case string:
		v, err = decode(fieldsOf(reply), read)
	case []any:
		v, err = decode(reply, read)
	default:
		err = fmt.Errorf("%w: %w", ErrReply, cmp.Or(err, fmt.Errorf("a %T", reply)))
	}
	return v, ambiguous || err != nil, err
}

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

// fieldsOf are the fields of a reply that is one text, which costs Redis less than a list.
func fieldsOf(text string) []any {
	words := strings.Fields(text)
	fields := make([]any, len(words))
	for i, word := range words {
		fields[i] = word
		if word[0] > '9' { // not a number; ParseInt would allocate an error
			continue
		}
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			fields[i] = n
		}
	}
	return fields
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

// optional reads a text at the end of a reply, or "" if there is none.
func (r *reader) optional() string {
	if r.err == nil && len(r.rest) == 0 {
		return ""
	}
	return r.text()
}

// count reads a number that is at least least.
func (r *reader) count(least int) int {
	n := next[int64](r)
	if r.err == nil && (n < int64(least) || int64(int(n)) != n) {
		r.err = fmt.Errorf("want a count from %d, have %d", least, n)
	}
	return int(n)
}

// why reads a Why.
func (r *reader) why() Why {
	why := Why(r.text())
	if why != WhyLock && why != WhyKey && why != WhyTurn {
		r.unknown(string(why))
	}
	return why
}

// key reads a key as it is encoded in a token.
func (r *reader) key() string {
	key, err := url.PathUnescape(r.text())
	if r.err == nil {
		r.err = err
	}
	return key
}

// more reads whether the script has stopped at a bound.
func (r *reader) more() bool { return r.text() == "more" }

// number reads a fence, a ticket or a time. Lua's numbers are exact below 2^53.
func (r *reader) number() uint64 {
	n := next[int64](r)
	if r.err == nil && (n < 0 || n >= 1<<53) {
		r.err = fmt.Errorf("want a number below 2^53, have %d", n)
	}
	return uint64(n)
}

// positive reads a number that is not 0: a fence or a ticket.
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

func (r *reader) unknown(word string) {
	if r.err == nil {
		r.err = fmt.Errorf("unknown word %q", word)
	}
}

func readReply(r *reader) (reply Reply) {
	switch outcome := r.text(); outcome {
	case "granted":
		reply.Outcome, reply.Fence, reply.More = Granted, r.positive(), r.more()
	case "queued":
		reply.Outcome, reply.Ticket, reply.Position = Queued, Ticket(r.positive()), r.count(1)
		reply.Last, reply.RetryAfter, reply.Holder = r.positive(), r.duration(), r.optional()
	case "busy":
		reply.Outcome, reply.More, reply.RetryAfter, reply.Why, reply.Holder = Busy, r.more(), r.duration(), r.why(),
			r.optional()
	case "full":
		reply.Outcome, reply.Position, reply.Why = Full, r.count(1), r.why()
	case "resized":
		reply.Outcome, reply.Permits = Resized, r.count(1)
	default:
		r.unknown(outcome)
	}
	return reply
}

func readHandoff(r *reader) (h Handoff) {
	h.Released = r.count(0) == 1
	h.More = r.more()
	for r.err == nil && len(r.rest) > 0 {
		h.Grants = append(h.Grants, readGrant(r))
	}
	return h
}

func readForced(r *reader) Handoff {
	next := r.number()
	h := readHandoff(r)
	h.Next = next
	return h
}

func readGrant(r *reader) Grant {
	return Grant{Token: r.token(), Fence: r.positive(), Given: r.given()}
}

// done reads whether the reply is that word, and not "lost".
func (r *reader) done(word string) bool {
	outcome := r.text()
	if outcome != word && outcome != "lost" {
		r.unknown(outcome)
	}
	return outcome == word
}

func readRenewed(r *reader) bool { return r.done("renewed") }

func readResumed(r *reader) (fence uint64) {
	if r.done("resumed") {
		fence = r.positive()
	}
	return fence
}

var waiterStates = map[rune]WaiterState{'n': NotQueued, 'q': StillQueued, 'h': Holding}

// readHeartbeat reads the reply to a heartbeat of n tokens.
func readHeartbeat(n int) func(*reader) HeartbeatReply {
	return func(r *reader) HeartbeatReply {
		reply := HeartbeatReply{Last: r.number(), RetryAfter: r.duration()}
		for _, letter := range r.optional() {
			state, ok := waiterStates[letter]
			if !ok {
				r.unknown(string(letter))
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
		Now:     r.moment(),
		Fence:   r.number(),
		Used:    r.count(0),
		Resized: r.count(0),
		Holders: each(r, func(r *reader) Holder { return Holder{r.text(), r.number(), r.duration()} }),
		Waiting: r.count(0),
		Alive:   r.count(0),
		Waiters: each(r, func(r *reader) Waiter {
			return Waiter{r.text(), Ticket(r.number()), r.moment()}
		}),
		Keys: each(r, func(r *reader) Key {
			return Key{r.key(), r.count(0), r.count(1), r.count(0), r.count(1), Ticket(r.number()), r.count(0) == 1}
		}),
	}
}

// ParseNotification reads a message on a notification channel: token, fence and milliseconds, separated by spaces. If
// the fence is 0, nothing was granted: the token is the head of the queue, and after Given another request can help.
func ParseNotification(message string) (Grant, error) {
	text, rest, _ := strings.Cut(message, " ")
	fence, given, _ := strings.Cut(rest, " ")
	number, err := strconv.ParseInt(fence, 10, 64)
	ms, err2 := strconv.ParseInt(given, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrReply, err)
	}
	return decode([]any{text, number, ms}, func(r *reader) Grant {
		return Grant{Token: r.token(), Fence: r.number(), Given: r.given()}
	})
}

// ErrReply is wrapped by the error for a reply that is not one of our scripts'.
var ErrReply = errors.New("unexpected reply")

// Aborted reports whether err was raised in the middle of a script that requests a lock. What it has written stays, so
// the lock may be granted or the waiter queued. An error that passes was raised by the first write. A foreign key and a
// bad number are found before that.
func Aborted(err error) bool {
	meaning, inScript := call.MeaningOf(err)
	return inScript && meaning != call.Temporary && meaning != call.ForeignKey && meaning != call.BadNumber
}

// explain adds the lock's keys to a server's error about them.
func (l Lock) explain(err error) error {
	keys := strings.TrimSuffix(l.keys[0], l.kind.keys[0].name) + "*"
	switch meaning, _ := call.MeaningOf(err); meaning {
	case call.ForeignKey:
		return fmt.Errorf("one of the keys %q is not ours: %w", keys, err)
	case call.BadNumber:
		if layout := otherLayout.FindStringSubmatch(err.Error()); layout != nil {
			return &token.LayoutError{What: fmt.Sprintf("key %q", l.keys[0]), Layout: layout[1]}
		}
		return fmt.Errorf("%w (another program has written key %q; delete it if the lock is not in use)", err, l.keys[0])
	case call.Forbidden:
		return fmt.Errorf("keys %q: %w", keys, err)
	}
	return err
}

// otherLayout finds the layout in a script's error about an unknown layout.
var otherLayout = regexp.MustCompile(`the number has layout (\d+)`)
