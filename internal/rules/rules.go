package rules

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Step is a script that ran.
type Step struct {
	Verb    string
	Args    []string // ARGV
	Before  *State   // what it found, at its time; of the second time a request is sent, what the first has left
	After   *State
	Reply   []string // words, also those of nested lists; nil: an error
	Sent    []Message
	Again   bool // the request was sent before, and nothing has happened since
	Refused bool // a server without memory has refused a command of it
}

// Message is a message to a client. If its fence is 0, it tells the head when a lease ends.
type Message struct {
	Token string
	Fence uint64
	Ms    int64
}

// ParseMessage reads a message as it is sent.
func ParseMessage(text string) Message {
	token, rest, _ := strings.Cut(text, " ")
	n := Numbers(rest)
	return Message{token, uint64(n[0]), n[1]}
}

// Words are those of a reply, also of nested lists; of an empty one there are none, which is not nil.
func Words(reply any) []string {
	list, ok := reply.([]any)
	if !ok {
		return strings.Fields(fmt.Sprint(reply))
	}
	words := []string{}
	for _, item := range list {
		words = append(words, Words(item)...)
	}
	return words
}

// Rule is what holds for each step. It returns what is wrong, or "".
type Rule struct {
	Name  string
	Check func(*Step) string
}

// All are the rules. Each has a mutant (lab/mutants) by which it was seen to fail.
var All = []Rule{
	{"again", again}, {"exclusion", exclusion}, {"room", room}, {"next", next}, {"handoff", handoff}, {"numbers", numbers},
	{"tombstones", tombstones}, {"queue", queue}, {"leases", leases}, {"expiries", expiries}, {"records", records},
	{"reply", reply}, {"messages", messages},
}

// Check returns what is wrong with a step, each with the name of its rule.
func Check(s *Step) (wrong []string) {
	for _, r := range All {
		if text := r.Check(s); text != "" {
			wrong = append(wrong, "rule "+r.Name+": "+text)
		}
	}
	return wrong
}

func (s *Step) number(i int) int64 {
	n, _ := strconv.ParseInt(s.Args[i], 10, 64)
	return n
}

// word is a word of the reply, or "".
func (s *Step) word(i int) string {
	if i >= len(s.Reply) {
		return ""
	}
	return s.Reply[i]
}

func (s *Step) told(i int) int64 {
	n, err := strconv.ParseInt(s.word(i), 10, 64)
	if err != nil {
		return math.MinInt64
	}
	return n
}

// requester is the token that requests the lock; "" of another verb.
func (s *Step) requester() string {
	if s.Verb == "acquire" {
		return s.Args[1]
	}
	return ""
}

// left are the tokens that leave.
func (s *Step) left() []string {
	if s.Verb == "leave" {
		return s.Args[4:]
	}
	return nil
}

// by is the token that takes a lease over, for how many ms; "" of another verb.
func (s *Step) by() (token string, ms int64) {
	switch s.Verb {
	case "resume":
		return s.Args[4], s.number(3)
	case "release":
		return s.Args[4], s.number(3)
	case "leave":
		return s.Args[2], s.number(1)
	}
	return "", 0
}

// ends reports whether the step may end that lease.
func (s *Step) ends(h Holder) bool {
	switch s.Verb {
	case "release", "resume":
		return s.Args[1] == h.Token && s.Args[2] == fmt.Sprint(h.Fence)
	case "leave":
		return slices.Contains(s.left(), h.Token)
	case "force_release":
		return h.Fence <= uint64(s.number(1))
	}
	return false
}

// granted are the leases that the step has given, by their fences.
func (s *Step) granted() (all []Holder) {
	for _, h := range s.After.Holders {
		if had := s.Before.lease(h.Token); had == nil || had.Fence != h.Fence {
			if old := s.Before.Holder(h.Token); old == nil || *old != h { // an expired one may be there still
				all = append(all, h)
			}
		}
	}
	return all
}

// waits reports whether the request is that of a waiter, or its heartbeat: it begins anew not to expire.
func (s *Step) waits(token string) bool {
	return s.requester() == token && s.number(2) > 0 || s.Verb == "heartbeat" && slices.Contains(s.Args[2:], token)
}

// expired reports whether a waiter has expired.
func (s *Step) expired(token string) bool {
	return s.Before.Heartbeats[token] < s.Before.QueueClock()+Millisecond && !s.waits(token)
}

// ticket is the token's in the queue when waiters are admitted; one that has none comes after all others.
func (s *Step) ticket(token string) uint64 {
	ticket := uint64(math.MaxUint64)
	if w := s.Before.Waiter(token); w != nil && s.Before.whole() && !s.expired(token) {
		ticket = w.Ticket
	}
	if s.requester() == token && s.number(4) > 0 && s.number(2) > 0 {
		ticket = min(ticket, uint64(s.number(4)))
	}
	return ticket
}

// fails reports whether the script replied with an error.
func (s *Step) fails() bool { return s.Reply == nil }

// admits reports whether the step admits waiters, as far as it can in one call.
func (s *Step) admits() bool {
	if s.fails() || s.Refused || slices.Contains(s.Reply, "more") {
		return false
	}
	switch s.Verb {
	case "acquire":
		token := s.Args[1]
		return s.Before.lease(token) == nil && s.Before.Tombstones[token] <= s.Before.Now && (s.word(0) != "queued" || s.told(4) != 0)
	case "heartbeat":
		return s.told(1) != 0
	}
	return s.handsOff()
}

// handsOff reports whether it is one of the verbs after which a lease may end sooner.
func (s *Step) handsOff() bool {
	return slices.Contains([]string{"release", "leave", "force_release", "resize"}, s.Verb)
}

func near(a, b int64) bool { return a-b <= 2*Millisecond && b-a <= 2*Millisecond }

// A request that is sent twice changes nothing the second time; only the number may expire sooner. Nor does one that reads, or fails.
func again(s *Step) string {
	reads := s.Verb == "inspect" || s.Verb == "waiting" || s.fails() && !s.Refused
	if s.Before == s.After || !s.Again && !reads {
		return ""
	}
	a, b := *s.Before, *s.After
	if s.Again {
		a.Until, b.Until = maps.Clone(a.Until), maps.Clone(b.Until)
		delete(a.Until, "number")
		delete(b.Until, "number")
	}
	if text, other := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); text != other {
		return fmt.Sprintf("a request that was sent before, that reads, or that fails, has changed\n%s\nto\n%s", text, other)
	}
	return ""
}

// A lease ends by itself, or by a request that names it.
func exclusion(s *Step) string {
	for _, h := range s.Before.Live() {
		if now := s.After.lease(h.Token); (now == nil || now.Fence != h.Fence) && !s.ends(h) {
			return fmt.Sprintf("the lease %+v is ended", h)
		}
	}
	return ""
}

// No more is held than there is for whoever is granted something.
func room(s *Step) string {
	after := *s.After
	granted := s.granted()
	for i := len(granted) - 1; i >= 0; i-- {
		by, _ := s.by()
		if used, most := after.Used(), after.permits(granted[i].Token); used > most && granted[i].Token != by {
			return fmt.Sprintf("%d are held of %d", used, most)
		} else if used > max(s.Before.Used(), most) {
			return fmt.Sprintf("%d are held, more than before", used)
		}
		after.Holders = slices.DeleteFunc(slices.Clone(after.Holders), func(h Holder) bool { return h == granted[i] })
	}
	return ""
}

// Nobody is granted the lock but who is next: nobody with a lower ticket waits, or is granted it later.
func next(s *Step) string {
	by, _ := s.by()
	last := uint64(0)
	for _, h := range s.granted() {
		if h.Token == by {
			continue
		}
		ticket := s.ticket(h.Token)
		if ticket < last {
			return h.Token + " was granted the lock after one with a higher ticket"
		}
		last = ticket
		if head := s.After.head(); head != "" && s.After.Waiters[0].Ticket < ticket {
			return h.Token + " has passed " + head
		}
		if ticket == math.MaxUint64 && h.Token != s.requester() {
			return h.Token + " neither waited nor asked"
		}
	}
	return ""
}

// A script that admits waiters leaves none waiting at the head for what is free. So does one that requests the lock for itself.
func handoff(s *Step) string {
	if !s.admits() {
		return ""
	}
	if head := s.After.head(); head != "" && s.After.Fits(head) {
		return "the head fits, and waits"
	}
	if token := s.requester(); token != "" && s.After.head() == "" && s.After.lease(token) == nil && s.After.Fits(token) {
		return "what was requested is free"
	}
	return ""
}

// Numbers rise: a new ticket or fence is the time, or one above the last number. The last number never falls.
func numbers(s *Step) string {
	known, brought := s.Before.known(), uint64(0)
	if s.requester() != "" {
		brought = uint64(s.number(4))
	}
	var given []uint64
	for _, h := range s.granted() {
		given = append(given, h.Fence)
	}
	for _, w := range s.After.Waiters {
		if had := s.Before.Waiter(w.Token); (had == nil || had.Ticket != w.Ticket) && w.Ticket != brought {
			given = append(given, w.Ticket)
		}
	}
	slices.Sort(given)
	last, now := max(known, brought), uint64(s.Before.Now)
	for _, n := range given {
		if n <= last || n < now || n > max(now, last)+1 {
			return fmt.Sprintf("the number %d was given, at %d and after %d", n, now, last)
		}
		last = n
	}
	if s.After.Last < last && len(given) > 0 || s.After.Last < s.Before.Last {
		return fmt.Sprintf("the last number is %d after %d", s.After.Last, last)
	}
	if w := s.After.Waiters; s.After.Last > 0 && !s.fails() && s.Verb != "inspect" && s.Verb != "renew" && s.Verb != "waiting" && len(w) > 0 &&
		w[len(w)-1].Ticket > s.After.Last && s.Before.whole() {
		return "a ticket is above the last number"
	}
	return ""
}

// A token with a tombstone gets nothing new. A tombstone is set for whom it is asked for, and stands until it is over.
func tombstones(s *Step) string {
	for token, until := range s.Before.Tombstones {
		if until <= s.Before.Now {
			continue
		}
		had, has := s.Before.lease(token), s.After.lease(token)
		if has != nil && (had == nil || has.Fence != had.Fence) || s.After.Waiter(token) != nil && s.Before.Waiter(token) == nil {
			return token + " has left, and is there"
		}
		if s.After.Tombstones[token] < min(until, s.Before.Now+Kept) {
			return "the tombstone of " + token + " is gone"
		}
	}
	set := s.left()
	if s.Verb == "leave" {
		set = set[:s.number(3)]
	}
	if s.Verb == "resume" && s.word(0) == "resumed" && s.Before.lease(s.Args[4]) == nil {
		set = s.Args[1:2]
	}
	for _, token := range set {
		if !s.fails() && s.After.Tombstones[token] != s.Before.Now+Kept {
			return token + " has no tombstone"
		}
	}
	if len(s.After.Tombstones) > len(s.Before.Tombstones)+len(set) {
		return "a tombstone that nobody has asked for"
	}
	return ""
}

// A waiter stays in the queue, with its ticket, until it is granted the lock, leaves, has expired, asks for more permits than a
// resize has set, or a key of the queue was lost. Its time changes by its own requests alone.
func queue(s *Step) string {
	clock := s.Before.QueueClock()
	for _, w := range s.Before.Waiters {
		is, expires, expired := s.After.Waiter(w.Token), s.Before.Heartbeats[w.Token], s.expired(w.Token)
		switch {
		case !s.Before.whole() || s.fails():
			return s.forgotten()
		case is == nil && s.After.lease(w.Token) == nil && !expired && !s.After.tooLarge(w.Token) && !slices.Contains(s.left(), w.Token):
			return w.Token + " is dropped, and has not expired"
		case is != nil && is.Ticket != w.Ticket && is.Ticket != s.ticket(w.Token):
			return fmt.Sprintf("%s has ticket %d, and had %d", w.Token, is.Ticket, w.Ticket)
		case is != nil && !s.waits(w.Token) && s.After.Heartbeats[w.Token] != expires:
			return w.Token + " expires at another time"
		case is != nil && s.admits() && expired && len(s.After.Waiters) < 100:
			return w.Token + " has expired, and waits"
		}
	}
	for _, w := range s.After.Waiters {
		ends, ttl := s.After.Heartbeats[w.Token], s.waiterTTL()
		if !s.waits(w.Token) && s.Before.Waiter(w.Token) == nil {
			return w.Token + " is queued without a request"
		} else if !s.waits(w.Token) {
			continue
		}
		if s.Before.whole() && ends != clock+ttl*Millisecond || min(s.After.Until["queue"], s.After.Until["heartbeats"]) < s.Before.Now+Kept+(ttl-1)*Millisecond {
			return w.Token + " expires too soon or too late"
		}
	}
	for _, token := range s.left() {
		if s.After.Waiter(token) != nil || s.After.lease(token) != nil {
			return token + " has left, and is there"
		}
	}
	return ""
}

// forgotten says whether a queue of which a key was lost is forgotten by a script that admits waiters.
func (s *Step) forgotten() string {
	for _, w := range s.After.Waiters {
		if s.admits() && w.Token != s.requester() {
			return "a queue is kept of which a key was lost"
		}
	}
	return ""
}

// A lease that was requested lasts for the TTL in its token; one that was handed over until its waiter would have expired, if that is
// sooner; one that was taken over for as long as was asked. No other request changes its end.
func leases(s *Step) string {
	by, ms := s.by()
	for _, h := range s.After.Live() {
		ttl, now := Terms(h.Token).TTL.Milliseconds(), s.Before.Now
		had := s.Before.lease(h.Token)
		isNew := had == nil || had.Fence != h.Fence
		switch {
		case h.Token == s.requester() && (isNew || s.word(0) == "granted"):
		case h.Token == by && (isNew || s.Verb == "resume" && s.word(0) == "resumed"):
			ttl = ms
		case isNew:
			expires := s.Before.Heartbeats[h.Token]
			if s.Verb == "heartbeat" && slices.Contains(s.Args[2:], h.Token) {
				expires = s.Before.QueueClock() + s.number(1)*Millisecond
			}
			ttl = min(ttl, (expires-s.Before.QueueClock())/Millisecond)
		case s.Verb == "renew" && s.Args[1] == h.Token && s.word(0) == "renewed":
			ttl = min(ttl, s.number(2))
		default:
			now, ttl = had.Expires, 0
		}
		if !near(h.Expires, now+ttl*Millisecond) {
			return fmt.Sprintf("%+v ends %d µs from now, want %d", h, h.Expires-s.Before.Now, now+ttl*Millisecond-s.Before.Now)
		}
	}
	return ""
}

// Each key but the number of permits expires: not before what it serves, and the number FenceTTL after what was given, and not
// before the clock has reached it.
func expiries(s *Step) string {
	fenceTTL := s.number(0) * Millisecond
	for key, until := range s.After.Until {
		least, most := int64(0), int64(math.MaxInt64)
		_, queued := s.After.Until["queue"]
		switch key {
		case "resized":
			if until != 0 {
				return "the number of permits expires"
			}
			continue
		case "permits", "holders":
			for _, h := range s.After.Holders {
				least = max(least, h.Expires+Second)
			}
			if !s.After.Lost { // a longer lease may have been there
				most = max(least, s.Before.Until["permits"], s.Before.Until["holders"])
			}
		case "queue", "heartbeats":
			if other := map[string]string{"queue": "heartbeats", "heartbeats": "queue"}[key]; s.After.Until[other] != until && s.admits() {
				return "the keys of the queue do not expire together"
			}
			if until != s.Before.Until[key] {
				most = s.Before.Now + Kept + s.waiterTTL()*Millisecond
			}
		case "tombstones":
			for _, at := range s.After.Tombstones {
				if until != s.Before.Until[key] { // if the clock has stepped back, earlier ones are over sooner
					least = max(least, min(at, s.Before.Now+Kept))
				}
			}
		case "number":
			if s.fails() || s.Before.Last == s.After.Last && s.Before.ClockAt == s.After.ClockAt && until == s.Before.Until[key] {
				continue
			}
			least, most = s.Before.Now+fenceTTL, 0
			by, _ := s.by()
			for _, h := range s.granted() {
				if most = max(most, h.Expires+fenceTTL); h.Token != by && len(s.Before.Waiters) == 0 { // else a later write may shorten it
					least = max(least, h.Expires+fenceTTL)
				}
			}
			if queued {
				least = max(least, s.After.Until["queue"]+fenceTTL)
			}
			least = max(least, int64(s.After.Last))
			most = max(most, least, s.Before.Until["queue"]+fenceTTL, s.Before.Now+Kept+s.waiterTTL()*Millisecond+fenceTTL)
		}
		if until == 0 || until < least-2*Millisecond || until-2*Millisecond > most {
			return fmt.Sprintf("%s expires at %d, want %d to %d", key, until, least, most)
		}
	}
	return ""
}

// waiterTTL is what the request brings for waiters, in ms.
func (s *Step) waiterTTL() int64 {
	switch s.Verb {
	case "acquire":
		return s.number(2)
	case "heartbeat":
		return s.number(1)
	}
	return 0
}

// What is recorded about the holders and the waiters agrees with them; nothing is left of either; a resize sets the number.
func records(s *Step) string {
	used, size := int64(0), s.Before.Resized
	for _, h := range s.After.Holders {
		if used += int64(Terms(h.Token).Weight); h.Fence == 0 || h.Fence > s.After.highest {
			return fmt.Sprintf("%+v, and the highest is said to be %d", h, s.After.highest)
		}
	}
	if _, mutex := s.After.Until["lock"]; !mutex && !s.After.Lost && used != s.After.used {
		return fmt.Sprintf("%d permits are said to be used, and %d are", s.After.used, used)
	}
	for _, w := range s.After.Waiters {
		if s.After.lease(w.Token) != nil && s.Before.Waiter(w.Token) == nil {
			return w.Token + " holds the lock, and waits"
		}
	}
	if s.admits() {
		if s.After.Lost || len(s.After.Heartbeats) != len(s.After.Waiters) {
			return "a part is left of what was lost"
		}
		for _, h := range s.After.Holders {
			if h.Expires <= s.After.Now && len(s.Before.Holders) < 500 {
				return "a lease is left that has ended"
			}
		}
	}
	if s.Verb == "resize" {
		size = int(s.number(1))
	}
	if !s.fails() && s.After.Resized != size {
		return fmt.Sprintf("there are %d permits, want %d", s.After.Resized, size)
	}
	return ""
}

// A reply says what is there afterwards.
func reply(s *Step) string {
	if s.fails() {
		return ""
	}
	after := s.After
	ok := true
	switch s.Verb {
	case "acquire":
		return s.replyToAcquire()
	case "release", "leave", "resize":
		ok = s.told(0) == s.released() && s.lists(2)
	case "force_release":
		ok = s.told(1) == s.released() && s.lists(3)
	case "renew":
		h := s.Before.lease(s.Args[1])
		ok = (s.word(0) == "renewed") == (h != nil && s.Args[3] == fmt.Sprint(h.Fence))
	case "resume":
		h, by := s.Before.lease(s.Args[1]), after.lease(s.Args[4])
		ok = (s.word(0) == "resumed") == (by != nil && s.Before.Tombstones[s.Args[4]] <= s.Before.Now) &&
			(by == nil || s.word(0) == "lost" || s.told(1) == int64(by.Fence))
		if could := h != nil && s.ends(*h) && Terms(h.Token).Weight == Terms(s.Args[4]).Weight; could && by == nil && s.Before.Tombstones[s.Args[4]] <= s.Before.Now {
			ok = false
		}
	case "waiting":
		ok = s.told(0) == int64(len(s.Before.Waiters))
	case "inspect":
		ok = s.told(1) == int64(s.Before.known()) && s.told(3) == int64(s.Before.Resized) && (s.Before.Lost || s.told(2) == int64(s.Before.Used()))
	case "heartbeat":
		ok = s.replyToHeartbeat()
	}
	if !ok {
		return fmt.Sprintf("%q", s.Reply)
	}
	return ""
}

// released is 1 if a lease was ended, or was kept for another token; else 0.
func (s *Step) released() int64 {
	if by, _ := s.by(); s.Before.lease(by) != nil {
		return 1
	}
	if s.Verb == "force_release" && s.Before.Lost {
		return 1
	}
	for _, h := range s.Before.Live() {
		if s.ends(h) {
			return 1
		}
	}
	return 0
}

// lists reports whether the words from i on are the grants of the step.
func (s *Step) lists(i int) bool {
	var want []string
	by, _ := s.by()
	for _, h := range s.granted() {
		if h.Token != by {
			want = append(want, h.Token, fmt.Sprint(h.Fence), "ms")
		}
	}
	got := slices.Clone(s.Reply[min(i, len(s.Reply)):])
	for j := 2; j < len(got); j += 3 {
		got[j] = "ms"
	}
	return slices.Equal(got, want)
}

func (s *Step) replyToAcquire() string {
	token, after := s.Args[1], s.After
	h, at := after.lease(token), slices.IndexFunc(after.Waiters, func(w Waiter) bool { return w.Token == s.Args[1] })
	ok := false
	switch s.word(0) {
	case "granted":
		ok = h != nil && s.told(1) == int64(h.Fence)
	case "queued":
		end := int64(-1)
		if at == 0 {
			end = after.nextEnd()
		}
		ok = h == nil && at >= 0 && s.told(1) == int64(after.Waiters[at].Ticket) && s.told(2) == int64(at+1) && s.told(3) == int64(after.Last) &&
			(s.told(4) == 0 || near(s.told(4)*Millisecond, end*Millisecond)) && s.holder(5) && s.number(2) > 0
	case "busy":
		end := after.nextEnd()
		tombstone := s.Before.Tombstones[token] > s.Before.Now
		ok = h == nil && (s.number(2) == 0 && near(s.told(2)*Millisecond, end*Millisecond) && s.holder(3) || tombstone)
	case "full":
		ok = h == nil && at < 0 && s.told(1) == int64(len(after.Waiters)) && s.number(3) > 0 && s.told(1) >= s.number(3)
	case "resized":
		ok = h == nil && at < 0 && s.Before.tooLarge(token) && s.told(1) == int64(after.Resized)
	}
	if !ok {
		return fmt.Sprintf("%q", s.Reply)
	}
	return ""
}

// holder reports whether a word of the reply is the token of the holder whose lease ends last.
func (s *Step) holder(i int) bool {
	last := int64(0)
	for _, h := range s.After.Holders {
		last = max(last, h.Expires)
	}
	h := s.After.Holder(s.word(i))
	return h == nil && len(s.After.Holders) == 0 && s.word(i) == "" || h != nil && h.Expires == last
}

func (s *Step) replyToHeartbeat() bool {
	var letters strings.Builder
	after, end := s.After, int64(-1)
	for _, token := range s.Args[2:] {
		switch {
		case after.lease(token) != nil:
			letters.WriteByte('h')
		case after.Waiter(token) != nil:
			letters.WriteByte('q')
		default:
			letters.WriteByte('n')
		}
		if token == after.head() {
			end = after.nextEnd()
		}
	}
	last := int64(max(after.Last, after.known()))
	return s.told(0) >= last && (after.Last == 0 || s.told(0) == last) && (s.told(1) == 0 || near(s.told(1)*Millisecond, end*Millisecond)) && s.word(2) == letters.String()
}

// Each waiter that was handed the lock is told so, and nobody else. The head is told when a lease ends soon, if a script may have made
// another waiter the head, or brought an end forward; unless it has sent the request.
func messages(s *Step) string {
	if s.fails() || s.Refused {
		return ""
	}
	by, _ := s.by()
	sent := slices.Clone(s.Sent)
	for _, h := range s.granted() {
		if h.Token == by || h.Token == s.requester() {
			continue
		}
		if len(sent) == 0 || sent[0].Token != h.Token || sent[0].Fence != h.Fence || !near(h.Expires, s.Before.Now+sent[0].Ms*Millisecond) {
			return fmt.Sprintf("%+v: told %+v", h, sent)
		}
		sent = sent[1:]
	}
	end, head := s.After.nextEnd(), s.After.head()
	asks := head == s.requester() || s.Verb == "heartbeat" && slices.Contains(s.Args[2:], head)
	must := s.admits() && head != "" && end > 0 && end < soon-2 && !asks && (s.handsOff() || s.Before.head() != "" && s.Before.head() != head && s.Before.whole())
	may := head != "" && end > 0 && end <= soon+2 && !asks
	if len(sent) > 1 || len(sent) == 1 && (!may || sent[0].Token != head || sent[0].Fence != 0 || !near(sent[0].Ms*Millisecond, end*Millisecond)) || len(sent) == 0 && must {
		return fmt.Sprintf("the head is told %+v, want %d ms", sent, end)
	}
	return ""
}
