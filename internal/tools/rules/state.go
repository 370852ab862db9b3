// Package rules says what each script may do to a lock: functions of a few lines on what Redis shows before and after
// it. They are checked by lab/states after each step of every short history, and by the simulation (lab/sim) after each
// script of its clients. The reasons are in docs/protocol.md.
package rules

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlock/fairlock-go/internal/tokens"
)

// All times are µs of the server's clock.
const (
	Millisecond = 1000
	Second      = 1000 * Millisecond
	Minute      = 60 * Second
	// Kept is how long a tombstone lasts, and the keys of a queue outlast its waiters, less a minute at most
	Kept        = 11 * Minute
	soon        = 1500 // ms: a lease that ends within this time is one that the head is told of
	mostDropped = 50   // how many expired waiters a script of any kind drops at least, if it finds that many
)

// Key is what Redis has under a key.
type Key struct {
	Text    string   // of a string
	Members []Member // of a zset or a hash
	Until   int64    // when it expires; 0: it does not
}

// Member is a member of a zset and its score, or a field of a hash and its value: a number, or a few.
type Member struct {
	Name   string
	Number int64  // the first
	Text   string // of a field: its value
}

// State is a lock in Redis, at one moment. A lock without keys is idle.
type State struct {
	Now     int64
	Resized int // the number of permits that a resize has set; 0: as many as each token says
	// by their fences; of permits also those whose leases have ended, until a script removes them
	Holders    []Holder
	Waiters    []Waiter         // by their tickets
	Heartbeats map[string]int64 // by token: when each waiter expires, by Clock
	Tombstones map[string]int64 // by token: until when it is refused
	Last       uint64           // the last number that is recorded; 0: none is
	Clock      int64            // of the queue, and when it was recorded
	ClockAt    int64
	Lost       bool             // one key of the holders was lost: nobody holds anything
	Until      map[string]int64 // of each key that is there

	// Of a keyed semaphore, by key.
	Lines  map[string][]Waiter // those that wait, in order
	Turns  map[string]Turn     // of those with waiters
	Levels map[string]int64    // of those with waiters
	Held   map[string]Held     // of those with holders

	used    int64    // the sum that is recorded with the holders; -1: none is
	highest uint64   // the fence that is
	strange []string // records that nobody knows
}

// Holder is a lease, which has ended from Expires on.
type Holder struct {
	Token   string
	Fence   uint64
	Expires int64
}

// Waiter is a waiter in the queue.
type Waiter struct {
	Token  string
	Ticket uint64
}

// Turn is the turn of a key: the number by which keys take turns, and the permits that were granted in it.
type Turn struct {
	Since  uint64
	Served int
}

// Held is what is recorded of the holders of a key: their permits, and the fence of the latest grant.
type Held struct {
	Permits int
	Fence   uint64
}

// Read reads the keys of a lock, by the ends of their names. now is the server's time.
func Read(now int64, keys map[string]Key) *State {
	s := &State{Now: now, Heartbeats: map[string]int64{}, Tombstones: map[string]int64{},
		Until: make(map[string]int64, len(keys)), used: -1}
	for name, key := range keys {
		s.Until[name] = key.Until
		switch name {
		case "number":
			n := Numbers(key.Text)
			s.Last, s.Clock, s.ClockAt = uint64(n[1]), n[2], n[3]
			s.Resized = cmp.Or(s.Resized, int(n[4]))
		case "lock":
			token, fence, _ := strings.Cut(key.Text, " ")
			s.highest = uint64(Numbers(fence)[0])
			s.Holders = []Holder{{token, s.highest, key.Until}}
		case "resized":
			s.Resized = cmp.Or(int(Numbers(key.Text)[0]), s.Resized)
		case "queue":
			for _, m := range key.Members {
				s.Waiters = append(s.Waiters, Waiter{m.Name, uint64(m.Number)})
			}
		case "heartbeats", "tombstones":
			for _, m := range key.Members {
				map[string]map[string]int64{"heartbeats": s.Heartbeats, "tombstones": s.Tombstones}[name][m.Name] = m.Number
			}
		}
	}
	s.readPermits(keys["permits"].Members, keys["holders"].Members)
	s.readLines(keys["lines"].Members, keys["turns"].Members)
	slices.SortFunc(s.Holders, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence),
			cmp.Compare(a.Token, b.Token))
	})
	slices.SortFunc(s.Waiters, inOrder)
	return s
}

func (s *State) readPermits(permits, holders []Member) {
	fences := map[string]int64{}
	for _, m := range holders {
		switch key, isKey := strings.CutPrefix(m.Name, "="); {
		case isKey:
			if s.Held == nil {
				s.Held = map[string]Held{}
			}
			n := Numbers(m.Text)
			s.Held[decoded(key)] = Held{int(n[0]), uint64(n[1])}
		case strings.Contains(m.Name, ":"):
			fences[m.Name] = m.Number
		case m.Name == "used":
			s.used = m.Number
		case m.Name == "fence":
			s.highest = max(s.highest, uint64(m.Number))
		default:
			s.strange = append(s.strange, m.Name)
		}
	}
	if s.Lost = len(permits) != len(fences); !s.Lost {
		for _, m := range permits {
			s.Holders = append(s.Holders, Holder{m.Name, uint64(fences[m.Name]), m.Number})
		}
	}
}

// readLines reads the records of lines and turns, as lua/scripts/keyed/line.lua describes them.
func (s *State) readLines(lines, turns []Member) {
	if len(lines)+len(turns) == 0 {
		return
	}
	s.Lines, s.Turns, s.Levels = map[string][]Waiter{}, map[string]Turn{}, map[string]int64{}
	for _, m := range lines {
		key, rest, _ := strings.Cut(m.Name, " ")
		number, text, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
		n, _ := strconv.ParseUint(number, 10, 64)
		if key = decoded(key); strings.HasPrefix(rest, " ") {
			s.Turns[key] = Turn{n, int(Numbers(text)[0])}
		} else {
			s.Lines[key] = append(s.Lines[key], Waiter{text, n})
		}
	}
	for _, line := range s.Lines {
		slices.SortFunc(line, inOrder)
	}
	for _, m := range turns {
		number, key, _ := strings.Cut(m.Name, " ")
		key = decoded(key)
		if n, _ := strconv.ParseUint(number, 10, 64); n != s.Turns[key].Since {
			s.strange = append(s.strange, m.Name)
		}
		s.Levels[key] = m.Number
	}
}

// decoded is a key as callers have it, by its text in a token.
func decoded(text string) string {
	key, _ := url.PathUnescape(text)
	return key
}

func inOrder(a, b Waiter) int {
	return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Token, b.Token))
}

// Numbers are those in a text, as far as they are some; there are at least five.
func Numbers(text string) (n []int64) {
	for field := range strings.FieldsSeq(text + " 0 0 0 0 0") {
		i, _ := strconv.ParseInt(field, 10, 64)
		n = append(n, i)
	}
	return n
}

// Terms are those of a token; none of a text that is no token.
func Terms(text string) tokens.Terms {
	terms, _, _ := tokens.Parse(text)
	return terms
}

// Holder returns the token's lease, even if it has ended, or nil.
func (s *State) Holder(token string) *Holder {
	return find(s.Holders, func(h Holder) bool { return h.Token == token })
}

// Waiter returns what the queue has of a token; nil: it is not queued.
func (s *State) Waiter(token string) *Waiter {
	return find(s.Waiters, func(w Waiter) bool { return w.Token == token })
}

func find[T any](all []T, is func(T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return &all[i]
	}
	return nil
}

// Live are the leases that have not ended.
func (s *State) Live() (all []Holder) {
	for _, h := range s.Holders {
		if h.Expires > s.Now {
			all = append(all, h)
		}
	}
	return all
}

// lease returns the token's lease if it has not ended.
func (s *State) lease(token string) *Holder {
	if h := s.Holder(token); h != nil && h.Expires > s.Now {
		return h
	}
	return nil
}

// Used is the number of permits that are held.
func (s *State) Used() (sum int) {
	for _, h := range s.Live() {
		sum += Terms(h.Token).Weight
	}
	return sum
}

// usedBy is how many permits a key holds.
func (s *State) usedBy(key string) (sum int) {
	for _, h := range s.Live() {
		if terms := Terms(h.Token); terms.Key == key {
			sum += terms.Weight
		}
	}
	return sum
}

// permits is how many there are for a token.
func (s *State) permits(token string) int { return cmp.Or(s.Resized, Terms(token).Permits, 1) }

// Fits reports whether as many permits are free as the token requests.
func (s *State) Fits(token string) bool { return s.Used()+Terms(token).Weight <= s.permits(token) }

// tooLarge reports whether the token requests more permits than a resize has set.
func (s *State) tooLarge(token string) bool { return s.Resized > 0 && Terms(token).Weight > s.Resized }

// QueueClock is the queue's clock as a script sees it: it advances by a second at most.
func (s *State) QueueClock() int64 {
	if s.Last == 0 {
		return 0
	}
	return s.Clock + min(max(s.Now-s.ClockAt, 0), Second)
}

// known is the last number that a script knows.
func (s *State) known() uint64 {
	if s.Last > 0 || len(s.Waiters) == 0 {
		return cmp.Or(s.Last, s.highest)
	}
	return max(s.highest, s.Waiters[len(s.Waiters)-1].Ticket)
}

// Whole reports whether all keys of the queue exist; for a keyed semaphore, those of its lines and holders as well.
func (s *State) Whole() bool {
	return len(s.Heartbeats) == len(s.Waiters) && (s.Last > 0 || len(s.Waiters) == 0) && (!s.keyed() || s.linesWhole())
}

// keyed reports whether somebody waits for a keyed semaphore, or one of its lines or turns is there.
func (s *State) keyed() bool { return s.Lines != nil || s.head() != "" && Terms(s.head()).Key != "" }

func (s *State) linesWhole() bool {
	waiting := 0
	for _, line := range s.Lines {
		waiting += len(line)
	}
	return !s.Lost && waiting == len(s.Waiters) && len(s.Turns) == len(s.Lines) && len(s.Levels) == len(s.Turns) &&
		(waiting == 0 || s.used >= 0)
}

// nextEnd is after how many ms the next lease has ended; -1: none will.
func (s *State) nextEnd() int64 {
	end := int64(math.MaxInt64)
	for _, h := range s.Holders {
		end = min(end, h.Expires)
	}
	if len(s.Holders) == 0 {
		return -1
	}
	return max(end-s.Now, 0)/Millisecond + 1
}

// freeAfter returns after how many ms enough rests of minimum holds have ended for the token, and the last of these
// rests. It considers the 200 holders whose leases end first. It returns -1 and "" if that is not enough.
func (s *State) freeAfter(token string) (ms int64, by string) {
	wants, used, ofKey := Terms(token), s.Used(), 0
	for _, h := range s.Holders {
		if Terms(h.Token).Key == wants.Key {
			ofKey += Terms(h.Token).Weight
		}
	}
	inOrder := slices.SortedFunc(slices.Values(s.Holders),
		func(a, b Holder) int { return cmp.Compare(a.Expires, b.Expires) })
	for _, h := range inOrder[:min(len(inOrder), 200)] {
		terms := Terms(h.Token)
		if terms.Flags&tokens.Released == 0 {
			continue
		}
		used -= terms.Weight
		if terms.Key == wants.Key {
			ofKey -= terms.Weight
		}
		if used+wants.Weight <= s.permits(token) && (wants.KeyLimit == 0 || ofKey+wants.Weight <= wants.KeyLimit) {
			return (h.Expires-s.Now)/Millisecond + 1, h.Token
		}
	}
	return -1, ""
}

// head is the token of the first waiter; "" if there is none.
func (s *State) head() string {
	if len(s.Waiters) == 0 {
		return ""
	}
	return s.Waiters[0].Token
}
