package lua_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

// A scenario is a list of steps, in lines or separated by semicolons. After an arrow stands what a step gives. A machine does
// them to the lock, twice each, and to the model. The steps that send a verb are in the table of verbs; the others are:
//
//	after 5m; stall 5m   time passes, with the queue's clock or without
//	clock -5m            the server's clock steps
//	lose; evict number   all data are lost; one key is
//	raise 5m; raise 7    the last number becomes one of a clock that is so far ahead; or that number
//	set lock x           a key is somebody else's
//	full; full no        the server has no memory left, or has
//	  -> OOM, NOPERM, …: why it was refused
//	drop a               a waiter is dropped, though it has not expired; forge a 5m: it has a ticket of then
//	crowd 9; hoard 9     waiters, and holders of one permit each, appear; expired: they have expired
//	keys; recorded       -> those that exist; whose weights are recorded
//	count                -> how many hold | how many wait
//	fence; ticket a      -> now, now+1: µs of the server's time
//
// In a rwmutex, a capital letter is a writer.
type scenario struct{ name, steps string }

// A scenario begins so that needs the clock to the µs, or steps it, or takes miniredis too long.
const (
	inMemory = "in memory"
	onRedis  = "on redis"
)

// oneHolder are the kinds of which one party at a time holds all.
var oneHolder = []kind{mutex, semaphore(1), writers}

// scenarios runs scenarios for kinds of locks on redis-server, and for the first kind in memory.
func scenarios(t *testing.T, kinds []kind, all ...scenario) {
	t.Helper()
	for _, s := range all {
		steps, exact := strings.CutPrefix(strings.TrimSpace(s.steps), inMemory)
		steps, large := strings.CutPrefix(steps, onRedis)
		run := func(where string, start func(testing.TB) *server, k kind) {
			t.Run(s.name+"/"+k.name+"/"+where, func(t *testing.T) {
				t.Parallel()
				newMachine(t, start(t), k).run(steps)
			})
		}
		for i, k := range kinds {
			if !exact {
				run("redis", real, k)
			}
			if i == 0 && !large {
				run("memory", memory, k)
			}
		}
	}
}

func (m *machine) run(steps string) {
	m.t.Helper()
	for line := range strings.Lines(steps) {
		line, _, _ = strings.Cut(line, "#")
		for text := range strings.SplitSeq(line, ";") {
			step, want, expects := strings.Cut(text, "->")
			if words := strings.Fields(step); len(words) > 0 {
				m.refusal, want = "", strings.TrimSpace(want)
				got := m.step(words[0], words[1:], want)
				got = cmp.Or(m.refusal, got)
				require.True(m.t, !expects || got == want, "%s: got %s", strings.TrimSpace(text), got)
			}
		}
	}
	require.True(m.t, m.blind || len(m.notifications(m.t)) == 0, "more notifications than grants")
}

// options are what a step says after its verb.
type options struct {
	who       []*party
	p         *party // the first of them
	number    int    // -1: none
	duration  time.Duration
	tombstone bool
	seen      *party
	word      string
	request
}

// options reads parties, numbers, durations and words, and words with a value.
func (m *machine) options(words []string) options {
	m.t.Helper()
	o := options{number: -1}
	for i := 0; i < len(words); i++ {
		value := words[min(i+1, len(words)-1)]
		number, _ := strconv.Atoi(value)
		duration, _ := time.ParseDuration(value)
		i++ // with the value
		switch word := words[i-1]; word {
		case "ttl":
			o.ttl = duration
		case "wait":
			o.wait = duration
		case "max":
			o.max = number
		case "seen":
			o.seen = m.party(value)
		case "of":
			o.who[len(o.who)-1].capacity = number
		default:
			i--
			if number, err := strconv.Atoi(word); err == nil {
				o.number = number
			} else if duration, err := time.ParseDuration(word); err == nil {
				o.duration = duration
			} else if word == "try" || word == "ticket" || word == "tombstone" {
				o.try, o.ticket, o.tombstone = o.try || word == "try", o.ticket || word == "ticket", o.tombstone || word == "tombstone"
			} else if o.word = word; len(word) == 1 || strings.ContainsAny(word, "*/0123456789") {
				name, weight, heavy := strings.Cut(word, "*")
				o.who = append(o.who, m.party(name))
				if heavy {
					o.who[len(o.who)-1].weight, _ = strconv.Atoi(weight)
				}
			}
		}
	}
	if len(o.who) > 0 {
		o.p = o.who[0]
	}
	return o
}

// fence is that of the party that the step says, or of its own.
func (o options) fence() uint64 { return cmp.Or(o.seen, o.p).fence }

// step does a step, and returns what it gives in words. What only some scenarios look at is there if they want it.
func (m *machine) step(word string, words []string, want string) string {
	m.t.Helper()
	o := m.options(words)
	switch word {
	case "set":
		m.foreign, m.blind = true, true
		m.do(m.t, "SET", m.keys[words[0]], words[1])
	case "full":
		m.do(m.t, "CONFIG", "SET", "maxmemory", map[bool]int{true: 1}[o.word != "no"])
	case "after":
		m.after(o.duration)
	case "stall", "clock":
		m.stall(o.duration)
	case "lose":
		m.lose()
	case "evict":
		m.evict(o.word)
	case "raise":
		to := int64(o.number)
		if to < 0 {
			to = m.clock + o.duration.Microseconds()
		}
		m.raise(uint64(to))
	case "drop":
		m.drop(o.p)
	case "forge":
		o.p.ticket = uint64(m.clock + o.duration.Microseconds())
	case "crowd", "hoard":
		left := map[bool]time.Duration{true: -time.Second, false: time.Hour}[o.word == "expired"]
		map[string]func(int, time.Duration){"crowd": m.crowd, "hoard": m.hoard}[word](o.number, left)
	case "keys":
		return strings.Join(slices.Sorted(maps.Keys(m.contents().Left)), " ")
	case "recorded":
		c, found := m.contents(), []string(nil)
		for _, p := range m.parties {
			if c.Holders[p.token.Text()] != "" || strings.Contains(c.Heartbeats[short(p.token.Text())], " ") {
				found = append(found, p.name)
			}
		}
		return strings.Join(found, " ")
	case "count":
		c := m.contents()
		return fmt.Sprintf("%d | %d", len(c.Permits), len(c.Queue))
	case "fence":
		return m.fromNow(m.contents().last())
	case "ticket":
		return m.fromNow(o.p.ticket)
	default:
		for _, v := range verbs {
			if step := v.steps[word]; step != nil {
				return step(m, o, want)
			}
		}
		require.FailNow(m.t, "no such step: "+word)
	}
	return ""
}

func (m *machine) fromNow(n uint64) string {
	return strings.TrimSuffix(fmt.Sprintf("now%+d", int64(n)-m.clock), "+0")
}

func (m *machine) reply(r lua.Reply, want string) string {
	words := map[lua.Outcome]string{
		lua.Granted: "granted", lua.Queued: "queued", lua.Busy: "busy", lua.Full: "full", lua.CapacityDiffers: "capacity",
	}[r.Outcome]
	if n := r.Position + r.Capacity; n > 0 {
		words += " " + strconv.Itoa(n)
	}
	if strings.Contains(want, " by ") {
		words += " by " + m.nameOf(r.Holder, 0)
	}
	return words + map[bool]string{true: " more"}[r.More] + retry(r.RetryAfter, want)
}

func (m *machine) became(h lua.Handoff, want string) string {
	var words []string
	if h.Released {
		words = append(words, "released")
	}
	if len(h.Grants) > 0 {
		words = append(words, "grants")
	}
	for _, g := range h.Grants {
		name := m.nameOf(g.Token.Text(), 0)
		if strings.Contains(want, "(") {
			name += "(" + roughly(g.Given) + ")"
		}
		words = append(words, name)
	}
	if h.More {
		words = append(words, "more")
	}
	return cmp.Or(strings.Join(words, " "), "nothing")
}

func retry(d time.Duration, want string) string {
	if !strings.Contains(want, "retry ") {
		return ""
	}
	return " retry " + map[bool]string{true: "never", false: roughly(d)}[d < 0]
}

// roughly gives minutes, and less than one of them exactly.
func roughly(d time.Duration) string {
	if d < time.Minute/2 {
		return d.String()
	}
	return fmt.Sprintf("%.0fm", d.Minutes())
}

// nameOf is the party with a token, and its weight if that is not what it asks for when it does not say.
func (m *machine) nameOf(text string, weight int) string {
	for _, p := range m.parties {
		if p.token.Text() == text && (weight == 0 || weight == m.usual(p.name)) {
			return p.name
		} else if p.token.Text() == text {
			return p.name + "*" + strconv.Itoa(weight)
		}
	}
	return cmp.Or(map[string]string{lua.Quarantined: "quarantine", "": "nobody"}[text], text)
}
