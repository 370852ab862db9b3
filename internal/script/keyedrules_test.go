package script_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/internal/tokens"
)

// atLimit is the level of a key whose first waiter has no room below the key limit.
const atLimit = 1 << 32

// keyedState is what a keyed semaphore has in Redis.
type keyedState struct {
	now        int64                 // the server's time, in µs
	clock      int64                 // of the queue, as a script would see it
	last       uint64                // 0: none is recorded
	resized    int                   // 0: it was not
	holders    map[string]lease      // by token, also of leases that have ended
	queue      map[string]uint64     // tickets by token
	heartbeats map[string]int64      // by token: when it expires, by the queue's clock
	tombstones map[string]int64      // by token: until when
	lines      map[string][]waiting  // by key, in order
	turns      map[string]turn       // by key
	levels     map[string]float64    // by key
	held       map[string]recordHeld // by key
	used       int                   // as recorded; -1: there is no record
	permits    int                   // how many tokens are in permits
	strange    []string              // what should not be there
}

type (
	lease struct {
		fence uint64
		ends  int64
	}
	waiting struct {
		token  string
		ticket uint64
	}
	turn struct {
		since  uint64 // the number by which keys take turns
		served int
	}
	recordHeld struct {
		held  int
		fence uint64
	}
)

// keyedStep is a script that ran.
type keyedStep struct {
	verb          string
	token         string   // of acquire, release and resume
	by            string   // who takes a lease over
	named         []string // the tokens of a heartbeat, and those that leave
	fence         uint64   // of release and resume; of force release: the last that is ended
	ticket        uint64   // that the request brings
	queues        bool     // an acquire that is no try
	fails, more   bool
	busy          string // why a try was refused
	declined      bool   // it does not queue because the queue is full, or asks for too much
	before, after *keyedState
}

// keyedRules hold for each step. Each returns what is wrong, or "".
var keyedRules = map[string]func(*keyedStep) string{
	"records": keyedRecords, "leases": keyedLeases, "waiters": keyedWaiters, "limits": keyedLimits, "next": keyedNext, "numbers": keyedNumbers,
	"tombstones": keyedTombstones,
}

func termsOfText(text string) tokens.Terms { return tokens.Of(text) }

// live are the leases that have not ended.
func (s *keyedState) live() map[string]lease {
	all := map[string]lease{}
	for token, l := range s.holders {
		if l.ends > s.now {
			all[token] = l
		}
	}
	return all
}

// usedBy is how many permits the leases of a key have, of all keys if key is "".
func usedBy(key string, leases map[string]lease) (sum int) {
	for token := range leases {
		if terms := termsOfText(token); key == "" || terms.Key == key {
			sum += terms.Weight
		}
	}
	return sum
}

func (s *keyedState) leasesWhole() bool { return s.used > 0 == (s.permits > 0) }

// whole reports whether no part is missing that scripts look for.
func (s *keyedState) whole() bool {
	lines := 0
	for _, line := range s.lines {
		lines += len(line)
	}
	return len(s.heartbeats) == len(s.queue) && lines == len(s.queue) && len(s.turns) == len(s.lines) && s.leasesWhole() &&
		(len(s.queue) == 0 || s.last > 0 && s.used >= 0) && len(s.levels) == len(s.turns)
}

// granted are the tokens that hold leases which the step has given, by their fences. Those that take a lease over are not granted it.
func (s *keyedStep) granted() (all []string) {
	for token, l := range s.after.holders {
		if had, ok := s.before.holders[token]; (!ok || had.fence != l.fence) && token != s.by {
			all = append(all, token)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(s.after.holders[a].fence, s.after.holders[b].fence) })
	return all
}

// reads reports whether the script changes no more than a lease's end.
func (s *keyedStep) reads() bool {
	_, holds := s.before.live()[s.token]
	return s.fails || s.verb == "renew" || s.verb == "inspect" || s.verb == "waiting" || s.verb == "acquire" &&
		(holds || s.before.tombstones[s.token] > s.before.now)
}

// Everything that is recorded agrees, unless a part was lost before and the script does not repair it; nothing is kept for a key
// without holder and waiter.
func keyedRecords(s *keyedStep) string {
	a := s.after
	if s.reads() {
		return ""
	}
	if !a.whole() {
		return "a part is missing"
	}
	if len(a.strange) > 0 {
		return fmt.Sprintf("nobody knows %q", a.strange)
	}
	if a.used != usedBy("", a.holders) && a.used+len(a.holders) >= 0 {
		return fmt.Sprintf("%d are said to be used, and %d are", a.used, usedBy("", a.holders))
	}
	held := map[string]int{}
	for token := range a.holders {
		held[termsOfText(token).Key] += termsOfText(token).Weight
	}
	for key, record := range a.held {
		if record.held != held[key] || record.held == 0 {
			return fmt.Sprintf("%s is said to hold %d, and holds %d", key, record.held, held[key])
		}
		delete(held, key)
	}
	if len(held) > 0 {
		return fmt.Sprintf("no record of %v", held)
	}
	for key, line := range a.lines {
		for _, w := range line {
			if a.queue[w.token] != w.ticket || termsOfText(w.token).Key != key {
				return fmt.Sprintf("%+v is in the line of %s, and has ticket %d", w, key, a.queue[w.token])
			}
			if _, alive := a.heartbeats[w.token]; !alive {
				return w.token + " has no heartbeat"
			}
		}
		if _, ok := a.turns[key]; !ok {
			return key + " has no turn"
		}
		head := termsOfText(line[0].token)
		level := float64(a.held[key].held / head.Share)
		full := head.KeyLimit > 0 && a.held[key].held+head.Weight > head.KeyLimit
		if a.levels[key] != level && (a.levels[key] != atLimit || !full) {
			return fmt.Sprintf("%s has level %v, want %v", key, a.levels[key], level)
		}
	}
	return ""
}

// A lease ends by itself, or by a request that names it, or if a part of the records was lost.
func keyedLeases(s *keyedStep) string {
	for token, l := range s.before.live() {
		is, ok := s.after.holders[token]
		if ok && is.fence == l.fence || !s.before.leasesWhole() {
			continue
		}
		named := (s.verb == "release" || s.verb == "resume") && s.token == token && s.fence == l.fence ||
			s.verb == "leave" && slices.Contains(s.named, token) || s.verb == "force" && l.fence <= s.fence
		if !named {
			return token + " has lost its lease"
		}
	}
	return ""
}

// A waiter stays in the queue with its ticket until it is granted permits, leaves, has expired, asks for more than a resize has set, or
// a part was lost.
func keyedWaiters(s *keyedStep) string {
	if !s.before.whole() {
		return ""
	}
	for token, ticket := range s.before.queue {
		is, queued := s.after.queue[token]
		_, holds := s.after.holders[token]
		switch {
		case queued && is != ticket && (s.token != token || is != s.ticket || is > ticket):
			return token + " has another ticket"
		case !queued && !holds && !s.mayGo(token):
			return token + " was dropped"
		case queued && s.verb == "leave" && slices.Contains(s.named, token):
			return token + " has left, and waits"
		}
	}
	for token := range s.after.queue {
		if _, had := s.before.queue[token]; !had && (s.verb != "acquire" || token != s.token || !s.queues) {
			return token + " waits, and did not ask"
		}
	}
	return ""
}

// mayGo reports whether a waiter may be out of the queue although it was granted nothing.
func (s *keyedStep) mayGo(token string) bool {
	beats := s.verb == "heartbeat" && slices.Contains(s.named, token) || s.verb == "acquire" && s.token == token && s.queues
	expired := s.before.heartbeats[token] < s.before.clock+1000 && !beats
	return expired || s.verb == "leave" && slices.Contains(s.named, token) ||
		s.after.resized > 0 && termsOfText(token).Weight > s.after.resized
}

// No more is held than there is for whoever is granted something, and than its key may have.
func keyedLimits(s *keyedStep) string {
	leases := s.after.live()
	granted := s.granted()
	for _, token := range slices.Backward(granted) {
		terms := termsOfText(token)
		if used, most := usedBy("", leases), cmp.Or(s.after.resized, terms.Permits); used > most {
			return fmt.Sprintf("%d are held of %d", used, most)
		}
		if held := usedBy(terms.Key, leases); terms.KeyLimit > 0 && held > terms.KeyLimit {
			return fmt.Sprintf("%s holds %d of %d", terms.Key, held, terms.KeyLimit)
		}
		delete(leases, token)
	}
	return ""
}

// Numbers rise.
func keyedNumbers(s *keyedStep) string {
	for _, token := range append(s.granted(), s.by) {
		had, held := s.before.holders[token]
		if l, ok := s.after.holders[token]; ok && (!held || had.fence != l.fence) && l.fence <= s.before.last {
			return fmt.Sprintf("%s has fence %d, after %d", token, l.fence, s.before.last)
		}
	}
	if s.after.last < s.before.last {
		return "the last number falls"
	}
	return ""
}

// A token that has left gets nothing.
func keyedTombstones(s *keyedStep) string {
	for token, until := range s.before.tombstones {
		had, held := s.before.holders[token]
		is, holds := s.after.holders[token]
		_, waited := s.before.queue[token]
		if _, waits := s.after.queue[token]; until > s.before.now && (holds && (!held || had.fence != is.fence) || waits && !waited) {
			return token + " has left, and is there"
		}
	}
	return ""
}

// order is who waits and who holds while a script runs.
type order struct {
	leases  map[string]lease
	lines   map[string][]waiting
	turns   map[string]turn
	latest  map[string]uint64 // by key: the fence of its latest grant
	permits func(token string) int
}

func (o *order) held(key string) int { return usedBy(key, o.leases) }

func (o *order) level(token string) int {
	return o.held(termsOfText(token).Key) / termsOfText(token).Share
}

func (o *order) hasRoom(token string) bool {
	terms := termsOfText(token)
	return terms.KeyLimit == 0 || o.held(terms.Key)+terms.Weight <= terms.KeyLimit
}

func (o *order) fits(token string) bool {
	return usedBy("", o.leases)+termsOfText(token).Weight <= o.permits(token)
}

// next is the first waiter of the runnable key with the smallest level, then the smallest turn; "" if there is none.
func (o *order) next() (next string) {
	level, since := math.MaxInt, uint64(0)
	for key, line := range o.lines {
		head := line[0].token
		if l, t := o.level(head), o.turns[key].since; o.hasRoom(head) && (l < level || l == level && t < since) {
			next, level, since = head, l, t
		}
	}
	return next
}

// joins adds a waiter to its line, which perhaps begins.
func (o *order) joins(token string, ticket uint64) {
	key := termsOfText(token).Key
	o.leaves(token, true)
	if _, waits := o.turns[key]; !waits {
		since := ticket
		if o.held(key) > 0 {
			since = max(since, o.latest[key])
		}
		o.turns[key] = turn{since: since}
	}
	o.lines[key] = append(o.lines[key], waiting{token, ticket})
	slices.SortFunc(o.lines[key], func(a, b waiting) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.token, b.token))
	})
}

// leaves removes a waiter. Its key's turn ends with its line, unless the waiter comes back at once.
func (o *order) leaves(token string, back bool) {
	key := termsOfText(token).Key
	o.lines[key] = slices.DeleteFunc(slices.Clone(o.lines[key]), func(w waiting) bool { return w.token == token })
	if len(o.lines[key]) == 0 {
		delete(o.lines, key)
		if !back {
			delete(o.turns, key)
		}
	}
}

// grants gives a waiter or a newcomer its lease.
func (o *order) grants(token string, l lease, waited bool) {
	terms := termsOfText(token)
	o.leases[token], o.latest[terms.Key] = l, l.fence
	if !waited {
		return
	}
	t := o.turns[terms.Key]
	if t.served += terms.Weight; t.served >= terms.Share {
		t = turn{since: l.fence}
	}
	o.turns[terms.Key] = t
	o.leaves(token, false)
}

// begin is the order that the script finds when it has removed what has ended, and what it ends itself.
func (s *keyedStep) begin() *order {
	b := s.before
	o := &order{
		leases: b.live(), lines: map[string][]waiting{}, turns: map[string]turn{}, latest: map[string]uint64{},
		permits: func(token string) int { return cmp.Or(s.after.resized, termsOfText(token).Permits) },
	}
	for key, record := range b.held {
		o.latest[key] = record.fence
	}
	if b.whole() {
		o.lines, o.turns = maps.Clone(b.lines), maps.Clone(b.turns)
	}
	if !b.leasesWhole() {
		o.leases = map[string]lease{}
	}
	for token, l := range o.leases {
		if is, ok := s.after.holders[token]; !ok || is.fence != l.fence {
			delete(o.leases, token)
		}
	}
	if l, ok := s.after.holders[s.by]; ok && s.by != "" {
		had, held := b.holders[s.by]
		if o.leases[s.by] = l; !held || had.fence != l.fence {
			o.latest[termsOfText(s.by).Key] = l.fence
		}
	}
	return o
}

// Each grant is of the waiter that is next at that moment, or of a newcomer that comes before all who are runnable. Afterwards nobody is
// next that fits. Turns move as they should.
func keyedNext(s *keyedStep) string {
	if s.reads() {
		return ""
	}
	o := s.begin()
	_, queued := s.before.queue[s.token]
	queued = queued && s.before.whole()
	if s.verb == "acquire" && s.queues && (queued || s.ticket > 0) {
		ticket := s.ticket
		if queued && (ticket == 0 || s.before.queue[s.token] < ticket) {
			ticket = s.before.queue[s.token]
		}
		o.joins(s.token, ticket)
		queued = true
	}
	granted := s.granted()
	for key, line := range maps.Clone(o.lines) {
		for _, w := range line {
			if _, waits := s.after.queue[w.token]; !waits && !slices.Contains(granted, w.token) {
				o.leaves(w.token, false)
			}
		}
		_ = key
	}
	for i, token := range granted {
		newcomer := token == s.token && (!queued || !s.queues)
		switch next := o.next(); {
		case !o.fits(token) || !o.hasRoom(token):
			return token + " has no room"
		case newcomer && (i < len(granted)-1 || len(o.lines[termsOfText(token).Key]) > 0 || next != "" && o.level(next) <= o.level(token)):
			return fmt.Sprintf("the newcomer %s has passed %s", token, next)
		case !newcomer && token != next:
			return fmt.Sprintf("%s was granted permits, and next was %s", token, next)
		}
		o.grants(token, s.after.holders[token], !newcomer)
	}
	next := o.next()
	if !s.more && s.verb != "resume" && next != "" && o.fits(next) {
		return next + " is next, fits, and waits"
	}
	if text := s.refused(o, next); text != "" {
		return text
	}
	if _, new := s.after.queue[s.token]; new && !queued && s.verb == "acquire" {
		o.joins(s.token, s.after.queue[s.token])
	}
	if got, want := fmt.Sprint(s.after.lines, s.after.turns), fmt.Sprint(o.lines, o.turns); got != want {
		return fmt.Sprintf("lines and turns are\n%s, want\n%s", got, want)
	}
	return ""
}

// refused says what is wrong with a try that was refused, or a newcomer that joins.
func (s *keyedStep) refused(o *order, next string) string {
	_, waited := s.before.queue[s.token]
	if _, holds := s.after.holders[s.token]; s.declined || s.verb != "acquire" || holds || s.more || waited || s.queues && s.ticket > 0 {
		return ""
	}
	fits, alone, room := o.fits(s.token), len(o.lines[termsOfText(s.token).Key]) == 0, o.hasRoom(s.token)
	first := next == "" || o.level(s.token) < o.level(next)
	why := "nothing"
	switch {
	case !fits:
		why = "lock"
	case !alone:
		why = "turn"
	case !room:
		why = "key"
	case !first:
		why = "turn"
	}
	if why == "nothing" || s.busy != "" && s.busy != why {
		return fmt.Sprintf("%s was refused because of %q, want %q", s.token, s.busy, why)
	}
	return ""
}

// checkKeyed returns what is wrong with a step.
func checkKeyed(s *keyedStep) string {
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(keyedRules)) {
		if text := keyedRules[name](s); text != "" {
			wrong = append(wrong, "rule "+name+": "+text)
		}
	}
	return strings.Join(wrong, "\n")
}
