package rules

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Rule is what holds for each step. It returns what is wrong, or "".
type Rule struct {
	Name  string
	Check func(*Step) string
}

// All are the rules. Each has a mutant (lab/mutants) by which it was seen to fail.
var All = []Rule{
	{"again", again}, {"exclusion", exclusion}, {"room", room}, {"next", next}, {"numbers", numbers},
	{"tombstones", tombstones}, {"queue", queue}, {"leases", leases}, {"expiries", expiries}, {"records", records},
	{"reply", reply}, {"messages", messages},
}

// Check returns what is wrong with a step, each with the name of its rule. Rules can be left out.
func Check(s *Step, without ...string) (wrong []string) {
	for _, r := range All {
		if slices.Contains(without, r.Name) {
			continue
		}
		if text := r.Check(s); text != "" {
			wrong = append(wrong, "rule "+r.Name+": "+text)
		}
	}
	return wrong
}

// A request that is sent twice changes nothing the second time; only the number may expire sooner. A script that reads
// or fails does not do so.
func again(s *Step) string {
	reads := s.Verb == "inspect" || s.fails() && !s.Refused
	if s.Before == s.After || !s.Again && !reads {
		return ""
	}
	a, b := *s.Before, *s.After
	if s.Again {
		a.Until, b.Until = maps.Clone(a.Until), maps.Clone(b.Until)
		delete(a.Until, "number")
		delete(b.Until, "number")
		a.Levels, b.Levels = nil, nil // a key at its limit is marked when it is met
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

// A grant must not exceed the number of permits of its token, or the limit of its key.
func room(s *Step) string {
	after := *s.After
	by, _ := s.by()
	for _, h := range slices.Backward(s.granted()) {
		if used, most := after.Used(), after.permits(h.Token); used > most && (h.Token != by || used > s.Before.Used()) {
			return fmt.Sprintf("%d are held of %d", used, most)
		}
		if terms := Terms(h.Token); terms.KeyLimit > 0 && after.usedBy(terms.Key) > terms.KeyLimit && h.Token != by {
			return fmt.Sprintf("%d are held by %q, which may hold %d", after.usedBy(terms.Key), terms.Key, terms.KeyLimit)
		}
		after.Holders = slices.DeleteFunc(slices.Clone(after.Holders), func(other Holder) bool { return other == h })
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
	if w := s.After.Waiters; s.admits() && len(w) > 0 && w[len(w)-1].Ticket > s.After.Last {
		return "a ticket is above the last number"
	}
	return ""
}

// A token with a tombstone is not queued or granted the lock. A tombstone is set for the requested tokens, and stays
// until it expires.
func tombstones(s *Step) string {
	for token, until := range s.Before.Tombstones {
		if until <= s.Before.Now {
			continue
		}
		had, has := s.Before.lease(token), s.After.lease(token)
		if has != nil && (had == nil || has.Fence != had.Fence) || s.After.Waiter(token) != nil &&
			s.Before.Waiter(token) == nil {
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

// A waiter stays in the queue, with its ticket, until it is granted the lock, leaves or expires. It is dropped if it
// wants more permits than a resize has set, or if a key of the queue was lost. Its time changes by its own requests
// alone.
func queue(s *Step) string {
	clock := s.Before.QueueClock()
	few := len(slices.DeleteFunc(slices.Clone(s.Before.Waiters),
		func(w Waiter) bool { return !s.expired(w.Token) })) <= mostDropped
	for _, w := range s.Before.Waiters {
		is, expires, expired := s.After.Waiter(w.Token), s.Before.Heartbeats[w.Token], s.expired(w.Token)
		switch {
		case !s.Before.Whole() || s.fails():
			return s.forgotten()
		case is == nil && s.After.lease(w.Token) == nil && !expired && !s.After.tooLarge(w.Token) &&
			!slices.Contains(s.left(), w.Token):
			return w.Token + " is dropped, and has not expired"
		case is != nil && is.Ticket != w.Ticket && is.Ticket != s.ticket(w.Token):
			return fmt.Sprintf("%s has ticket %d, and had %d", w.Token, is.Ticket, w.Ticket)
		case is != nil && !s.waits(w.Token) && s.After.Heartbeats[w.Token] != expires:
			return w.Token + " expires at another time"
		case is != nil && s.admits() && expired && few:
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
		if s.Before.Whole() && ends != clock+ttl*Millisecond {
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

// forgotten checks that a script that admits waiters removes a queue that has lost a key.
func (s *Step) forgotten() string {
	for _, w := range s.After.Waiters {
		if s.admits() && w.Token != s.requester() {
			return "a queue is kept although one of its keys was lost"
		}
	}
	return ""
}

// A lease that was requested lasts for the TTL in its token. After a handoff it lasts until its waiter would have
// expired, if that is sooner. After a take-over it lasts for the requested time. No other request changes its end.
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

// Each key except the number of permits expires, but not before the leases and waiters in it. The number expires
// FenceTTL after the last grant or ticket, and not before the clock has reached it.
func expiries(s *Step) string {
	fenceTTL := s.number(0) * Millisecond
	waits := slices.ContainsFunc(s.After.Waiters, func(w Waiter) bool { return s.waits(w.Token) })
	idle := s.admits() && s.handsOff() && len(s.After.Holders)+len(s.After.Waiters) == 0
	for key, until := range s.After.Until {
		if idle && key != "number" && key != "tombstones" && key != "resized" {
			return key + " is left, and nobody holds or waits"
		}
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
			if s.After.Whole() && s.After.keyed() && key == "holders" {
				least = max(least, s.After.Until["lines"]) // what keys hold, by which they take turns
			}
			if !s.After.Lost { // a longer lease may have been there
				most = max(least, s.Before.Until["permits"], s.Before.Until["holders"], s.After.Until["lines"])
			}
			if s.keyed() && s.waiterTTL() > 0 { // as long as the lines that perhaps were there for a moment
				most = max(most, s.Before.Now+Kept+s.waiterTTL()*Millisecond)
			}
		case "lines", "turns":
			if until != s.Before.Until[key] {
				most = s.Before.Now + Kept + s.waiterTTL()*Millisecond
			}
			if s.After.Whole() {
				least = s.After.Until["queue"]
			}
		case "queue", "heartbeats":
			if other := map[string]string{"queue": "heartbeats", "heartbeats": "queue"}[key]; s.After.Until[other] != until &&
				s.admits() {
				return "the keys of the queue do not expire together"
			}
			if until != s.Before.Until[key] {
				most = s.Before.Now + Kept + s.waiterTTL()*Millisecond
			}
			if waits { // they are not extended each time
				least = s.Before.Now + Kept - Minute + s.waiterTTL()*Millisecond
			}
		case "tombstones":
			for _, at := range s.After.Tombstones {
				if until != s.Before.Until[key] { // if the clock has stepped back, earlier ones are over sooner
					least = max(least, min(at, s.Before.Now+Kept))
				}
			}
		case "number":
			if s.fails() || s.Before.Last == s.After.Last && s.Before.ClockAt == s.After.ClockAt &&
				until == s.Before.Until[key] {
				continue
			}
			least, most = s.Before.Now+fenceTTL, 0
			for _, h := range s.granted() {
				most = max(most, h.Expires+fenceTTL)
			}
			for _, h := range s.handed() {
				if len(s.Before.Waiters) == 0 { // else a later write may shorten it
					least = max(least, h.Expires+fenceTTL)
				}
			}
			if queued {
				least = max(least, s.After.Until["queue"]+fenceTTL)
			}
			if s.Verb != "acquire" { // that of an idle lock counts from the FenceTTL of its client
				least = max(least, s.Before.Until[key])
			}
			least = max(least, int64(s.After.Last))
			most = max(most, s.Before.Until[key], least, s.Before.Until["queue"]+fenceTTL,
				s.Before.Now+Kept+s.waiterTTL()*Millisecond+fenceTTL)
		}
		if until == 0 || until < least-2*Millisecond || until-2*Millisecond > most {
			return fmt.Sprintf("%s expires at %d, want %d to %d", key, until, least, most)
		}
	}
	return ""
}

// What is recorded about the holders and the waiters agrees with them; nothing is left of either; a resize sets the
// number.
func records(s *Step) string {
	used, size := int64(0), s.Before.Resized
	for _, h := range s.After.Holders {
		if used += int64(Terms(h.Token).Weight); h.Fence == 0 || h.Fence > s.After.highest {
			return fmt.Sprintf("%+v, and the highest is said to be %d", h, s.After.highest)
		}
	}
	if _, mutex := s.After.Until["lock"]; !mutex && !s.After.Lost && used != max(s.After.used, 0) {
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
			if h.Expires <= s.After.Now && len(s.Before.Holders) < 200 {
				return "a lease is left that has ended"
			}
		}
	}
	if text := s.After.wrongLines(); text != "" && !s.reads() && !s.Refused {
		return text
	}
	if !s.After.Whole() && !s.reads() && !s.Refused {
		return "a part is left of a queue that was lost"
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
		ok = (s.word(0) == "resumed") == (by != nil && !s.refuses(s.Args[4])) &&
			(by == nil || s.word(0) == "lost" || s.told(1) == int64(by.Fence))
		if could := h != nil && s.ends(*h) && Terms(h.Token).Weight == Terms(s.Args[4]).Weight &&
			Terms(h.Token).Key == Terms(s.Args[4]).Key; could && by == nil && !s.refuses(s.Args[4]) {
			ok = false
		}
	case "inspect":
		ok = s.told(1) == int64(s.Before.known()) && s.told(3) == int64(s.Before.Resized) &&
			(s.Before.Lost || s.told(2) == int64(s.Before.Used()))
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
	if slices.ContainsFunc(s.Before.Live(), s.ends) {
		return 1
	}
	return 0
}

// lists reports whether the words from i on are the grants of the step.
func (s *Step) lists(i int) bool {
	var want []string
	for _, h := range s.handed() {
		want = append(want, h.Token, fmt.Sprint(h.Fence), "ms")
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
		ok = h == nil && at >= 0 && s.told(1) == int64(after.Waiters[at].Ticket) && s.told(2) == int64(s.others(at)+1) &&
			s.told(3) == int64(after.Last) &&
			(s.told(4) == 0 || near(s.told(4)*Millisecond, end*Millisecond)) && s.holder(5) && s.number(2) > 0
	case "busy":
		free, by := int64(-1), ""
		if len(after.Waiters) == 0 && s.word(1) != "more" {
			free, by = after.freeAfter(token)
		}
		named := by == s.word(4) || by == "" && (after.Holder(s.word(4)) != nil || s.holder(4))
		// next says why
		ok = h == nil && (s.number(2) == 0 && near(s.told(2)*Millisecond, free*Millisecond) && named || s.refuses(token))
	case "full":
		n := map[string]int{"lock": len(after.Waiters), "key": s.others(len(after.Waiters))}[s.word(2)]
		most := map[string]int64{"lock": s.number(3), "key": s.number(5)}[s.word(2)]
		ok = h == nil && at < 0 && s.told(1) == int64(n) && most > 0 && s.told(1) >= most
	case "resized":
		ok = h == nil && at < 0 && s.Before.tooLarge(token) && s.told(1) == int64(after.Resized)
	}
	if !ok {
		return fmt.Sprintf("%q", s.Reply)
	}
	return ""
}

// others is how many wait in the line of the requester, of those before that place in the queue.
func (s *Step) others(at int) (n int) {
	for _, w := range s.After.Waiters[:at] {
		if Terms(w.Token).Key == Terms(s.requester()).Key {
			n++
		}
	}
	return n
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
	return s.told(0) >= last && (after.Last == 0 || s.told(0) == last) &&
		(s.told(1) == 0 || near(s.told(1)*Millisecond, end*Millisecond)) && s.word(2) == letters.String()
}

// Each waiter that was handed the lock is told so, and nobody else. The head is notified of a lease that ends soon, if
// a script may have changed the head or the end. It is not notified if it has sent the request.
func messages(s *Step) string {
	if s.fails() || s.Refused {
		return ""
	}
	sent := slices.Clone(s.Sent)
	for _, h := range s.handed() {
		if h.Token == s.requester() {
			continue
		}
		if len(sent) == 0 || sent[0].Token != h.Token || sent[0].Fence != h.Fence ||
			!near(h.Expires, s.Before.Now+sent[0].Ms*Millisecond) {
			return fmt.Sprintf("%+v: told %+v", h, sent)
		}
		sent = sent[1:]
	}
	end, head := s.After.nextEnd(), s.After.head()
	asks := head == s.requester() || s.Verb == "heartbeat" && slices.Contains(s.Args[2:], head)
	must := s.admits() && head != "" && end > 0 && end < soon-2 && !asks &&
		(s.handsOff() || s.Before.head() != "" && s.Before.head() != head && s.Before.Whole())
	may := head != "" && end > 0 && end <= soon+2 && !asks
	if len(sent) > 1 || len(sent) == 1 && (!may || sent[0].Token != head || sent[0].Fence != 0 ||
		!near(sent[0].Ms*Millisecond, end*Millisecond)) || len(sent) == 0 && must {
		return fmt.Sprintf("the head is told %+v, want %d ms", sent, end)
	}
	return ""
}
