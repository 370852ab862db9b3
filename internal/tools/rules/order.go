package rules

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// AtLimit is the level of a key that was found with a first waiter without room below the key limit.
const AtLimit = 1 << 32

// Next returns the token of the waiter that is next, or "" if there is none or a part of the lock was lost.
func (s *State) Next() string {
	o := NewOrder(s)
	for _, h := range s.Live() {
		o.holds(h)
	}
	o.queue(s)
	return o.Next()
}

// Order has the waiters of a lock, and what is held of it, at a moment within a script. The waiters of a lock without
// keys are one line.
type Order struct {
	used   int
	held   map[string]int    // by key
	latest map[string]uint64 // by key: the fence of its latest grant
	lines  map[string][]Waiter
	turns  map[string]Turn
	state  *State // for the number of permits
}

// NewOrder returns the Order of an idle lock with the number of permits of s.
func NewOrder(s *State) *Order {
	return &Order{held: map[string]int{}, latest: map[string]uint64{}, lines: map[string][]Waiter{},
		turns: map[string]Turn{}, state: s}
}

// keyText is the key as the token has it.
func keyText(token string) string {
	begin := strings.LastIndexByte(token, ':') + len(":2.")
	return token[begin:max(len(token)-50, begin)]
}

func share(token string) int { return max(Terms(token).Share, 1) }

func (o *Order) level(token string) int { return o.held[Terms(token).Key] / share(token) }

func (o *Order) hasRoom(token string) bool {
	terms := Terms(token)
	return terms.KeyLimit == 0 || o.held[terms.Key]+terms.Weight <= terms.KeyLimit
}

func (o *Order) fits(token string) bool { return o.used+Terms(token).Weight <= o.state.permits(token) }

func (o *Order) waits(token string) bool {
	return slices.ContainsFunc(o.lines[Terms(token).Key], func(w Waiter) bool { return w.Token == token })
}

// Next is the first waiter of the runnable key with the smallest level, then the smallest turn; "" if there is none. If
// data were lost while the clock stood still, two turns can be the same: then the texts of keys decide.
func (o *Order) Next() (next string) {
	level, since := math.MaxInt, uint64(0)
	for key, line := range o.lines {
		head := line[0].Token
		if l, t := o.level(head), o.turns[key].Since; o.hasRoom(head) &&
			(l < level || l == level && (t < since || t == since && keyText(head) < keyText(next))) {
			next, level, since = head, l, t
		}
	}
	return next
}

// Joins adds a waiter to its line, which perhaps begins.
func (o *Order) Joins(w Waiter) {
	key := Terms(w.Token).Key
	turn, had := o.turns[key]
	if o.leaves(w.Token); !had {
		if turn.Since = w.Ticket; o.held[key] > 0 {
			turn.Since = max(turn.Since, o.latest[key])
		}
	}
	o.turns[key] = turn
	o.lines[key] = append(o.lines[key], w)
	slices.SortFunc(o.lines[key], inOrder)
}

// leaves removes a waiter. The turn of its key ends with the line.
func (o *Order) leaves(token string) {
	key := Terms(token).Key
	line := slices.DeleteFunc(slices.Clone(o.lines[key]), func(w Waiter) bool { return w.Token == token })
	if o.lines[key] = line; len(line) == 0 {
		delete(o.lines, key)
		delete(o.turns, key)
	}
}

func (o *Order) holds(h Holder) {
	terms := Terms(h.Token)
	o.used += terms.Weight
	o.held[terms.Key] += terms.Weight
	o.latest[terms.Key] = max(o.latest[terms.Key], h.Fence)
}

// Ends ends a lease.
func (o *Order) Ends(h Holder) {
	terms := Terms(h.Token)
	o.used -= terms.Weight
	o.held[terms.Key] -= terms.Weight
}

// Grants gives a waiter or a newcomer its lease.
func (o *Order) Grants(h Holder) {
	terms := Terms(h.Token)
	if o.holds(h); !o.waits(h.Token) {
		return
	}
	turn := o.turns[terms.Key]
	if turn.Served += terms.Weight; turn.Served >= terms.Share {
		turn = Turn{Since: h.Fence}
	}
	o.turns[terms.Key] = turn
	o.leaves(h.Token)
}

// queue adds those that wait, unless a part was lost.
func (o *Order) queue(s *State) {
	switch {
	case !s.Whole():
	case s.keyed():
		o.lines, o.turns = maps.Clone(s.Lines), maps.Clone(s.Turns)
	case s.head() != "":
		o.lines[""], o.turns[""] = s.Waiters, Turn{}
	}
}

// begin returns the Order at the beginning of admission. It removes leases that have ended, even by the step itself,
// and waiters that leave. The waiter that sends the request has joined.
func (s *Step) begin() *Order {
	o := NewOrder(s.After)
	by, _ := s.by()
	for _, h := range s.After.Holders {
		if had := s.Before.lease(h.Token); had != nil && had.Fence == h.Fence || h.Token == by {
			o.holds(h)
		}
	}
	for key, record := range s.Before.Held {
		o.latest[key] = max(o.latest[key], record.Fence)
	}
	whole := s.Before.Whole()
	o.queue(s.Before)
	if token := s.requester(); token != "" && s.number(2) > 0 {
		if w := s.Before.Waiter(token); w != nil && whole || s.number(4) > 0 {
			if ticket := uint64(s.number(4)); !whole || w == nil || ticket > 0 && ticket < w.Ticket {
				w = &Waiter{token, ticket}
			}
			o.Joins(*w)
		}
	}
	granted := s.handed()
	for _, w := range s.Before.Waiters {
		isGranted := slices.ContainsFunc(granted, func(h Holder) bool { return h.Token == w.Token })
		if o.waits(w.Token) && s.After.Waiter(w.Token) == nil && (!isGranted || s.expired(w.Token)) {
			o.leaves(w.Token)
		}
	}
	if token := s.requester(); token != "" && s.Before.Waiter(token) == nil && s.After.Waiter(token) == nil &&
		s.After.lease(token) == nil && o.waits(token) {
		o.leaves(token) // it has joined, and was dropped
	}
	return o
}

// Each grant is to the waiter that is next at that moment, or to a newcomer that comes before all waiters that fit.
// Afterwards no waiter that is next fits. A reply to a refused or queued request has the reason. Lines and turns are
// correct.
func next(s *Step) string {
	if s.reads() {
		return ""
	}
	o := s.begin()
	granted := s.handed()
	for i, h := range granted {
		next := o.Next()
		newcomer := h.Token == s.requester() && !o.waits(h.Token)
		switch {
		case !newcomer && h.Token != next:
			return fmt.Sprintf("%s was granted the lock, and next was %q", h.Token, next)
		case newcomer && (i < len(granted)-1 || len(o.lines[Terms(h.Token).Key]) > 0 || next != "" &&
			o.level(next) <= o.level(h.Token)):
			return fmt.Sprintf("the newcomer %s has passed %q", h.Token, next)
		case !o.hasRoom(h.Token):
			return h.Token + " was granted the lock above the limit of its key"
		}
		o.Grants(h)
	}
	if s.Refused {
		return ""
	}
	next := o.Next()
	if s.admits() && next != "" && o.fits(next) {
		return next + " is next, fits, and waits"
	}
	if token := s.requester(); s.admits() && token != "" && s.word(0) != "granted" && !s.Before.tooLarge(token) {
		if why := o.why(token); why == "" || s.word(0) == "busy" && s.word(3) != why {
			return fmt.Sprintf("it was refused, and the reason is %q", why)
		}
	}
	if w := s.After.Waiter(s.requester()); w != nil && !o.waits(w.Token) {
		o.Joins(*w)
	}
	equal := !s.keyed() || maps.EqualFunc(o.lines, s.After.Lines, slices.Equal[[]Waiter]) &&
		maps.Equal(o.turns, s.After.Turns)
	if !equal {
		return fmt.Sprintf("lines and turns are\n%v %v, want\n%v %v", s.After.Lines, s.After.Turns, o.lines, o.turns)
	}
	return ""
}

// why says why a token that does not wait is not granted the lock. It is lock (too few permits), turn (others come
// first), key (its key is at its limit), or "" if it is next.
func (o *Order) why(token string) string {
	next := o.Next()
	switch {
	case !o.fits(token):
		return "lock"
	case len(o.lines[Terms(token).Key]) > 0:
		return "turn"
	case !o.hasRoom(token):
		return "key"
	case next != "" && o.level(next) <= o.level(token):
		return "turn"
	}
	return ""
}

// lines says what is wrong with what is recorded of keys. Nothing is kept for a key without holder and waiter.
func (s *State) wrongLines() string {
	if len(s.strange) > 0 {
		return fmt.Sprintf("nobody knows %q", s.strange)
	}
	held := map[string]int{}
	for _, h := range s.Holders {
		if terms := Terms(h.Token); terms.Key != "" {
			held[terms.Key] += terms.Weight
		}
	}
	for key, record := range s.Held {
		if record.Permits != held[key] || record.Permits == 0 {
			return fmt.Sprintf("%q is said to hold %d, and holds %d", key, record.Permits, held[key])
		}
	}
	if len(held) != len(s.Held) {
		return fmt.Sprintf("of %v only %v are recorded", held, s.Held)
	}
	for key, line := range s.Lines {
		for _, w := range line {
			if queued := s.Waiter(w.Token); queued == nil || *queued != w || Terms(w.Token).Key != key {
				return fmt.Sprintf("%+v is in the line of %q, and in the queue as %+v", w, key, queued)
			}
		}
		head := Terms(line[0].Token)
		full := head.KeyLimit > 0 && held[key]+head.Weight > head.KeyLimit
		if is, level := s.Levels[key], int64(held[key]/share(line[0].Token)); is != level && (is != AtLimit || !full) {
			return fmt.Sprintf("%q has level %d, want %d", key, is, level)
		}
	}
	return ""
}
