package rules

import (
	"fmt"
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
	Reply   []string // words, including those of nested lists; nil: an error
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

// Words are those of a reply, including nested lists. Those of an empty reply are empty, but not nil.
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

// ticket is the token's ticket when waiters are admitted. A token without one comes after all others.
func (s *Step) ticket(token string) uint64 {
	ticket := uint64(math.MaxUint64)
	if w := s.Before.Waiter(token); w != nil && s.Before.Whole() && !s.expired(token) {
		ticket = w.Ticket
	}
	if s.requester() == token && s.number(4) > 0 && s.number(2) > 0 {
		ticket = min(ticket, uint64(s.number(4)))
	}
	return ticket
}

// handed are the leases that the step has given to those that request the lock, or wait for it.
func (s *Step) handed() []Holder {
	by, _ := s.by()
	return slices.DeleteFunc(s.granted(), func(h Holder) bool { return h.Token == by })
}

// refuses reports whether the token has a tombstone that is not over.
func (s *Step) refuses(token string) bool { return s.Before.Tombstones[token] > s.Before.Now }

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
		return s.Before.lease(token) == nil && !s.refuses(token) && (s.word(0) != "queued" || s.told(4) != 0)
	case "heartbeat":
		return s.told(1) != 0
	}
	return s.handsOff()
}

// reads reports whether the step changes no more than a lease's end.
func (s *Step) reads() bool {
	switch s.Verb {
	case "renew", "inspect":
		return true
	case "acquire":
		return s.fails() || s.Before.lease(s.Args[1]) != nil || s.refuses(s.Args[1])
	case "resume":
		return s.fails() || s.refuses(s.Args[4])
	}
	return s.fails()
}

// keyed reports whether the lock is a keyed semaphore, as far as one can see.
func (s *Step) keyed() bool {
	return s.Before.keyed() || s.After.keyed() || s.After.Held != nil ||
		slices.ContainsFunc(s.Args, func(arg string) bool { return Terms(arg).Key != "" })
}

// handsOff reports whether it is one of the verbs after which a lease may end sooner.
func (s *Step) handsOff() bool {
	return slices.Contains([]string{"release", "leave", "force_release", "resize"}, s.Verb)
}

func near(a, b int64) bool { return a-b <= 2*Millisecond && b-a <= 2*Millisecond }

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
