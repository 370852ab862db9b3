package lua_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

// A scenario is a list of steps, one or several in a line, separated by semicolons. After an arrow stands what the last
// of a line gives. A machine does them to the lock, twice each, and to the model.
//
//	acquire a b*2 x/c    parties; b wants 2 permits, c is of client x; of 5: capacity; ttl 5m, wait 5m: durations;
//	                     max 4: waiters; try: does not queue; ticket: with the one that it has
//	  -> granted, queued 1, busy by a, full 4, capacity 5; a queue position may have "by a" and "retry 45m"
//	release a; leave a tombstone 5m; force seen a    a's fence, not the last one
//	  -> released grants b c, grants b(45m): for how long, nothing
//	renew a ttl 5m       -> renewed, lost
//	heartbeat a b        -> queued, holding, granted, gone; retry: of the first of them
//	inspect 10           -> the holders | the waiters
//	after 5m             time passes
//	clock -5m            the clock steps
//	lose                 all data are lost
//	evict fence          one key is lost
//	raise fence 5m       the last fence is of a clock that was so far ahead; or a number
//	drop a               a waiter is dropped, though it has not expired
//	keys; recorded       -> those that exist; whose weights are recorded
//	fence; ticket a      -> now, now+1: µs of the server's time
//
// In a rwmutex, a capital letter is a writer.
type scenario struct{ name, steps string }

// inMemory at the beginning of a scenario is for one that needs the clock to the µs, or steps it.
const inMemory = "in memory"

// onRedis is for one that takes miniredis long.
const onRedis = "on redis"

// scenarios runs scenarios for kinds of locks, on redis-server and in memory.
func scenarios(t *testing.T, kinds []kind, all ...scenario) {
	t.Helper()
	for _, s := range all {
		steps, exact := strings.CutPrefix(strings.TrimSpace(s.steps), inMemory)
		steps, large := strings.CutPrefix(steps, onRedis)
		for i, k := range kinds {
			for where, start := range map[string]func(testing.TB) *server{"redis": real, "memory": memory} {
				if where == "redis" && exact || where == "memory" && (i > 0 || large) {
					continue // in memory one of the kinds will do: it takes longer there
				}
				t.Run(s.name+"/"+k.name+"/"+where, func(t *testing.T) {
					t.Parallel()
					newMachine(t, start(t), k).run(steps)
				})
			}
		}
	}
}

// oneHolder are the kinds of which one party at a time holds all.
var oneHolder = []kind{mutex, semaphore(1), writers}

func (m *machine) run(steps string) {
	m.t.Helper()
	for line := range strings.Lines(steps) {
		line, _, _ = strings.Cut(line, "#")
		line, want, expects := strings.Cut(line, "->")
		want = strings.TrimSpace(want)
		var got string
		for step := range strings.SplitSeq(line, ";") {
			if words := strings.Fields(step); len(words) > 0 {
				got = m.step(words, want)
			}
		}
		if expects {
			require.Equal(m.t, want, got, "%s", line)
		}
	}
	if !m.blind {
		require.Empty(m.t, m.notifications(m.t), "more notifications than grants")
	}
}

// options are what a step says after its verb.
type options struct {
	who       []*party
	limit     int
	tombstone time.Duration
	seen      *party
	request
}

func (m *machine) options(words []string) (o options) {
	m.t.Helper()
	o.limit = 100
	for len(words) > 0 {
		word, value := words[0], ""
		if words = words[1:]; len(words) > 0 {
			value = words[0]
		}
		used := 1
		var err error
		switch word {
		case "ttl":
			o.ttl, err = time.ParseDuration(value)
		case "wait":
			o.wait, err = time.ParseDuration(value)
		case "tombstone":
			o.tombstone, err = time.ParseDuration(value)
		case "max":
			o.max, err = strconv.Atoi(value)
		case "seen":
			o.seen = m.party(value)
		case "of":
			for _, p := range o.who {
				p.capacity, err = strconv.Atoi(value)
			}
		case "try":
			o.try, used = true, 0
		case "ticket":
			o.ticket, used = true, 0
		default:
			used = 0
			if n, isNumber := strconv.Atoi(word); isNumber == nil {
				o.limit = n
				break
			}
			name, weight, heavy := strings.Cut(word, "*")
			o.who = append(o.who, m.party(name))
			if heavy {
				o.who[len(o.who)-1].weight, err = strconv.Atoi(weight)
			}
		}
		require.NoError(m.t, err, "%s %s", word, value)
		words = words[used:]
	}
	return o
}

// usual is the weight of a party that does not say.
func (m *machine) usual(name string) int {
	if m.name == rwMutex.name && strings.ToUpper(name) == name {
		return lua.WriterWeight
	}
	return m.weight
}

func (m *machine) step(words []string, want string) string {
	m.t.Helper()
	switch words[0] {
	case "after", "clock":
		d, err := time.ParseDuration(words[1])
		require.NoError(m.t, err)
		map[string]func(time.Duration){"after": m.after, "clock": m.stepClock}[words[0]](d)
		return ""
	case "crowd", "hoard":
		n, err := strconv.Atoi(words[1])
		require.NoError(m.t, err)
		left := map[bool]time.Duration{true: -time.Second, false: time.Hour}[len(words) > 2]
		map[string]func(int, time.Duration){"crowd": m.crowd, "hoard": m.hoard}[words[0]](n, left)
		return ""
	case "count":
		c := m.contents()
		return fmt.Sprintf("%d | %d", len(c.Permits), len(c.Queue))
	case "evict":
		m.evict(words[1])
		return ""
	case "lose":
		m.lose()
		return ""
	case "raise":
		n, err := strconv.ParseUint(words[2], 10, 64)
		to := both{n, n}
		if err != nil {
			d, err := time.ParseDuration(words[2])
			require.NoError(m.t, err)
			m.begin("now")
			to = both{uint64(m.clock + d.Microseconds()), uint64(m.clock - m.ahead + d.Microseconds())}
		}
		m.raise(to)
		return ""
	case "keys":
		var found []string
		for name := range m.contents().Left {
			found = append(found, name)
		}
		slices.Sort(found)
		return strings.Join(found, " ")
	case "recorded":
		return m.recorded()
	case "fence":
		return m.fromNow(m.last().redis)
	}

	o := m.options(words[1:])
	switch words[0] {
	case "acquire":
		var all []string
		wants := strings.Split(want, ",")
		for i, p := range o.who {
			all = append(all, m.reply(m.acquire(p, o.request), wants[min(i, len(wants)-1)]))
		}
		return strings.Join(all, ", ")
	case "release":
		return m.became(m.release(o.who[0]), want)
	case "leave":
		return m.became(m.leave(o.who[0], ttl, o.tombstone), want)
	case "force":
		seen := m.last()
		if o.seen != nil {
			seen = o.seen.fence
		}
		return m.became(m.forceRelease(seen), want)
	case "renew":
		return map[bool]string{true: "renewed", false: "lost"}[m.renew(o.who[0], cmp.Or(o.ttl, ttl))]
	case "heartbeat":
		r := m.heartbeat(ttl, cmp.Or(o.wait, waiterTTL), o.who...)
		names := map[lua.WaiterState]string{
			lua.NotQueued: "gone", lua.StillQueued: "queued", lua.Holding: "holding", lua.NowGranted: "granted",
		}
		var all []string
		for _, state := range r.States {
			all = append(all, names[state])
		}
		return strings.TrimSpace(strings.Join(all, ", ") + retry(r.RetryAfter, want))
	case "inspect":
		return m.snapshot(m.inspect(o.limit))
	case "drop":
		m.drop(o.who[0])
	case "ticket":
		return m.fromNow(o.who[0].ticket.redis)
	default:
		require.FailNow(m.t, "no such step: "+words[0])
	}
	return ""
}

func (m *machine) fromNow(n uint64) string {
	if n == uint64(m.clock) {
		return "now"
	}
	return fmt.Sprintf("now%+d", int64(n)-m.clock)
}

// reply, became and snapshot are replies in words. What only some scenarios look at is there if they want it.
func (m *machine) reply(r lua.Reply, want string) string {
	words := string(outcomes[r.Outcome])
	switch {
	case r.Position > 0:
		words += " " + strconv.Itoa(r.Position)
	case r.Capacity > 0:
		words += " " + strconv.Itoa(r.Capacity)
	}
	if strings.Contains(want, " by ") {
		words += " by " + m.nameOf(r.Holder)
	}
	if r.More {
		words += " more"
	}
	return words + retry(r.RetryAfter, want)
}

func retry(d time.Duration, want string) string {
	if !strings.Contains(want, "retry ") {
		return ""
	}
	if d < 0 {
		return " retry never"
	}
	return " retry " + roughly(d)
}

// roughly gives minutes, and less than one of them exactly.
func roughly(d time.Duration) string {
	if d < time.Minute/2 {
		return d.String()
	}
	return fmt.Sprintf("%.0fm", d.Minutes())
}

func (m *machine) became(h lua.Handoff, want string) string {
	var words []string
	if h.Released {
		words = append(words, "released")
	}
	for i, g := range h.Grants {
		if i == 0 {
			words = append(words, "grants")
		}
		name := m.nameOf(g.Token.Text())
		if strings.Contains(want, "(") {
			name += "(" + roughly(g.Given) + ")"
		}
		words = append(words, name)
	}
	if h.More {
		words = append(words, "more")
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}

func (m *machine) snapshot(s lua.Snapshot) string {
	words := []string{}
	for _, h := range s.Holders {
		words = append(words, m.weighted(h.Token, h.Weight))
	}
	words = append(words, "|")
	for _, w := range s.Waiters {
		words = append(words, m.weighted(w.Token, w.Weight))
	}
	return strings.Join(words, " ")
}

// recorded are the tokens of which a record of a holder or of what a waiter wants is left.
func (m *machine) recorded() string {
	c := m.contents()
	var found []string
	for _, p := range m.parties {
		if c.Holders[p.token.Text()]+c.Wants[p.token.Text()] != "" {
			found = append(found, p.name)
		}
	}
	return strings.Join(found, " ")
}

func (m *machine) weighted(text string, weight int) string {
	for _, p := range m.parties {
		if p.token.Text() == text && weight != m.usual(p.name) {
			return p.name + "*" + strconv.Itoa(weight)
		}
	}
	return m.nameOf(text)
}

// nameOf is the party with a token.
func (m *machine) nameOf(text string) string {
	for _, p := range m.parties {
		if p.token.Text() == text {
			return p.name
		}
	}
	return map[string]string{lua.Quarantined: "quarantine", "": "nobody"}[text]
}
