package sim

import (
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/internal/tools/rules"
)

// rare are states that a run should reach now and then, by name. A long run in which one of them never occurs has
// become blind.
var rare = []struct {
	name string
	is   func(*rules.Step) bool
}{
	{"a waiter comes back by its ticket, and is first", func(s *rules.Step) bool {
		return s.Verb == "acquire" && s.Args[4] != "0" && s.Before.Waiter(s.Args[1]) == nil && len(s.After.Waiters) > 1 &&
			s.After.Waiters[0].Token == s.Args[1]
	}},
	{"a late acquire meets a tombstone", func(s *rules.Step) bool {
		return s.Verb == "acquire" &&
			s.Before.Tombstones[s.Args[1]] > s.Before.Now
	}},
	{"a queue with a lost key is forgotten", func(s *rules.Step) bool {
		return len(s.Before.Waiters) > 0 && !s.Before.Whole() && s.After.Last > 0
	}},
	{"permits with a lost key are forgotten", func(s *rules.Step) bool { return s.Before.Lost && !s.After.Lost }},
	{"a lease is resumed", func(s *rules.Step) bool {
		return replies(s, "resume", "resumed") &&
			s.Before.Holder(s.Args[4]) == nil
	}},
	{"a copy of a resume finds what was done", func(s *rules.Step) bool {
		return replies(s, "resume", "resumed") && s.Before.Holder(s.Args[4]) != nil
	}},
	{"a lease is resumed by a token that has left", func(s *rules.Step) bool {
		return replies(s, "resume", "lost") && s.Before.Tombstones[s.Args[4]] > s.Before.Now
	}},
	{"a release leaves the rest of a minimum hold", func(s *rules.Step) bool {
		return replies(s, "release", "1") &&
			s.After.Holder(s.Args[4]) != nil
	}},
	{"a copy of a release finds the rest", func(s *rules.Step) bool {
		return replies(s, "release", "1") &&
			s.Before.Holder(s.Args[4]) != nil
	}},
	{"the head is told that a lease ends soon", func(s *rules.Step) bool {
		return slices.ContainsFunc(s.Sent, func(m rules.Message) bool { return m.Fence == 0 })
	}},
	{"a heartbeat finds a grant whose notification was lost", func(s *rules.Step) bool {
		return s.Verb == "heartbeat" && len(s.Reply) == 3 && strings.Contains(s.Reply[2], "h")
	}},
	{"a waiter that fits waits for a head that does not", func(s *rules.Step) bool {
		return len(s.After.Waiters) > 1 && !s.After.Fits(s.After.Waiters[0].Token) && s.After.Fits(s.After.Waiters[1].Token)
	}},
	{"a renewal comes after another lease of its token", func(s *rules.Step) bool {
		return replies(s, "renew", "lost") &&
			s.Before.Holder(s.Args[1]) != nil
	}},
	{"the number is ahead of the clock by 100 ms", func(s *rules.Step) bool {
		return int64(
			s.After.Last) > s.After.Now+rules.Second/10
	}},
	{"a full server refuses a request", func(s *rules.Step) bool { return s.Refused }},
	{"a key at its limit lets another one pass", func(s *rules.Step) bool {
		return passes(s, func(key string) bool { return s.After.Levels[key] == rules.AtLimit })
	}},
	{"a key that holds less passes an earlier waiter", func(s *rules.Step) bool {
		return passes(s, func(key string) bool { return s.After.Levels[key] < rules.AtLimit })
	}},
	{"a turn goes on after a grant", func(s *rules.Step) bool {
		for key, turn := range s.After.Turns {
			if turn.Served > s.Before.Turns[key].Served {
				return true
			}
		}
		return false
	}},
	{"lines with a lost key are forgotten", func(s *rules.Step) bool {
		return len(s.Before.Levels) != len(s.Before.Lines) && s.After.Whole() && s.Verb != "renew"
	}},
	{"a resize drops a waiter", func(s *rules.Step) bool {
		return s.Verb == "resize" && len(s.After.Waiters) < len(s.Before.Waiters) && len(s.Sent) == 0
	}},
}

// passes reports whether a waiter was handed the lock while an earlier one of such a key waits.
func passes(s *rules.Step, such func(key string) bool) bool {
	head := ""
	if len(s.After.Waiters) > 0 {
		head = rules.Terms(s.After.Waiters[0].Token).Key
	}
	return head != "" && such(head) && slices.ContainsFunc(s.Sent, func(m rules.Message) bool {
		w := s.Before.Waiter(m.Token)
		return m.Fence != 0 && w != nil && w.Ticket > s.After.Waiters[0].Ticket
	})
}

func replies(s *rules.Step, verb, word string) bool {
	return s.Verb == verb && len(s.Reply) > 0 && s.Reply[0] == word
}

// mix is what the workers of a run do. It is drawn from the seed: what all runs do a little of hides what happens if
// some do nothing else. Of a call it says with which chance, one in so many, it is of that sort; 0: none is.
type mix struct {
	locks []target

	tries, limits, long, minHolds, smaller, keyLimits, shares int
}

func (w *world) draw() mix {
	random := w.random("mix")
	m := mix{slices.Clone(w.targets), 10, 5, 8, 20, 4, 3, 4}
	if w.cfg.Lock != "" {
		m.locks = slices.DeleteFunc(m.locks, func(t target) bool { return t.name != w.cfg.Lock })
	}
	if w.cfg.Faults != nil || random.IntN(3) == 0 { // under some faults only, and in a third of the runs: a little of all
		return m
	}
	random.Shuffle(len(m.locks), func(i, j int) { m.locks[i], m.locks[j] = m.locks[j], m.locks[i] })
	m.locks = m.locks[:1+random.IntN(len(m.locks))]
	for _, chance := range []*int{&m.tries, &m.limits, &m.long, &m.minHolds, &m.smaller, &m.keyLimits, &m.shares} {
		*chance = []int{0, *chance, 2}[random.IntN(3)]
	}
	return m
}

// one draws whether one call in n is meant; n is 0: none.
func one(random interface{ IntN(int) int }, n int) bool { return n > 0 && random.IntN(n) == 0 }
