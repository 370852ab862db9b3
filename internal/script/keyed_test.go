package script_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/internal/tools/rules"
	"github.com/fairlock/fairlock-go/token"
)

// caller is one acquisition of a keyed semaphore. Its name begins with its key, a capital letter.
type caller struct {
	name          string
	token         token.Token
	terms         tokens.Terms
	ticket, fence uint64 // the last that it was told
	left, try     bool   // of random steps
	successor     *caller
}

// keyedMachine does steps to a keyed semaphore. The rules are checked after each. Each is sent twice, unless once is
// set: the second time changes nothing.
type keyedMachine struct {
	*server
	t       testing.TB
	user    script.Sender
	keys    map[string]string
	permits int
	clock   int64
	callers map[string]*caller
	terms   map[string]tokens.Terms // of keys
	once    bool
	step    rules.Step // the latest
	refusal string     // why it was refused
	history []string
}

func newKeyed(t testing.TB, s *server, permits int) *keyedMachine {
	t.Helper()
	m := &keyedMachine{
		server: s, t: t, permits: permits, keys: map[string]string{}, callers: map[string]*caller{},
		terms: map[string]tokens.Terms{},
	}
	m.user = instrumentedBy(s.rdb, timed())
	for _, key := range script.KeysOf("keyed", m.namespace, "name") {
		m.keys[key.Part] = key.Name
	}
	m.setClock(1_700_000_000_000_000)
	m.lose()
	return m
}

func (m *keyedMachine) lock() script.Lock { return script.KeyedSemaphore(m, m.namespace, "name") }

// Send sends a request, and notes it and its reply.
func (m *keyedMachine) Send(ctx context.Context, r dispatch.Request) (any, error) {
	reply, err := m.user.Send(ctx, r)
	m.step = rules.Step{Verb: script.Sources()[r.Script.Hash].Verb}
	for _, a := range r.Args {
		m.step.Args = append(m.step.Args, fmt.Sprint(a))
	}
	if err == nil {
		m.step.Reply = rules.Words(reply)
	}
	return reply, err
}

func (m *keyedMachine) lose() { m.rdb.Del(ctx, slices.Collect(maps.Values(m.keys))...) }

func (m *keyedMachine) setClock(to int64) {
	m.clock = to
	m.do(m.t, "SET", m.namespace+":clock", to)
}

// pass lets time pass: of the server alone if nobody sends anything, or of the queue as well.
func (m *keyedMachine) pass(d time.Duration, queue bool) {
	m.t.Helper()
	if text := m.rdb.Get(ctx, m.keys["number"]).Val(); text != "" && queue && d > 0 {
		n := fields(text)
		m.do(m.t, "SET", m.keys["number"], fmt.Sprint("2 ", n[1], " ", n[2]+d.Microseconds(), " ", n[3]+d.Microseconds()),
			"KEEPTTL")
	}
	for _, key := range m.keys {
		if left := m.rdb.PTTL(ctx, key).Val(); left > 0 && d > 0 {
			m.do(m.t, "PEXPIRE", key, (left - d).Milliseconds())
		}
	}
	m.setClock(m.clock + d.Microseconds())
}

// read reads what is in Redis.
func (m *keyedMachine) read() *rules.State {
	m.t.Helper()
	texts, zsets := map[string]*redis.StringCmd{}, map[string]*redis.ZSliceCmd{}
	var holders *redis.MapStringStringCmd
	_, _ = m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for name, key := range m.keys {
			switch name {
			case "number", "resized":
				texts[name] = p.Get(ctx, key)
			case "holders":
				holders = p.HGetAll(ctx, key)
			default:
				zsets[name] = p.ZRangeWithScores(ctx, key, 0, -1)
			}
		}
		return nil
	})
	keys := map[string]rules.Key{}
	for name, cmd := range texts {
		if cmd.Val() != "" {
			keys[name] = rules.Key{Text: cmd.Val()}
		}
	}
	for name, cmd := range zsets {
		var k rules.Key
		for _, z := range cmd.Val() {
			k.Members = append(k.Members, rules.Member{Name: z.Member.(string), Number: int64(z.Score)})
		}
		keys[name] = k
	}
	var k rules.Key
	for field, value := range holders.Val() {
		k.Members = append(k.Members, rules.Member{Name: field, Number: fields(value)[0], Text: value})
	}
	keys["holders"] = k
	return rules.Read(m.clock, keys)
}

// caller returns the one of that name, with the terms of its key.
func (m *keyedMachine) caller(name string) *caller {
	name, weight, heavy := strings.Cut(name, "*")
	if c := m.callers[name]; c != nil {
		return c
	}
	key := regexp.MustCompile(`^[A-Z]+`).FindString(name)
	terms, ok := m.terms[key]
	if !ok {
		terms = tokens.Terms{TTL: ttl, Weight: 1, Permits: m.permits, Key: key, Share: 1}
	}
	if heavy {
		terms.Weight, _ = strconv.Atoi(weight)
	}
	return m.add(name, terms)
}

func (m *keyedMachine) add(name string, terms tokens.Terms) *caller {
	c := &caller{name: name, terms: terms, token: keyedToken("c", terms, len(m.callers)+1)}
	m.callers[name] = c
	return c
}

// keyedToken returns a token that is the same in every run.
func keyedToken(client string, terms tokens.Terms, n int) token.Token {
	text := tokens.New(client, terms)
	t, err := token.Parse(text[:len(text)-22] + fmt.Sprintf("%021dA", n))
	if err != nil {
		panic(err)
	}
	return t
}

// sends sends a request: twice, and checks the rules after each time.
func sends[T any](m *keyedMachine, send func() (T, error)) T {
	m.t.Helper()
	before := m.read()
	got, err := send()
	m.history = append(m.history, fmt.Sprintf("%d: %s %q -> %q", m.clock, m.step.Verb, m.step.Args, m.step.Reply))
	s := m.step
	s.Before, s.After = before, m.read()
	if m.refusal = ""; err != nil {
		m.refusal = refusals.FindString(endOfText.Split(err.Error(), 2)[0])
		require.NotEmpty(m.t, m.refusal, "%v", err)
		require.Equal(m.t, s.Before, s.After, "a request that is refused has changed something")
		return got
	}
	m.judge(&s)
	if more := slices.Contains(s.Reply, "more") || s.Verb == "acquire" && s.Reply[0] == "queued" && s.Reply[4] == "0" ||
		s.Verb == "heartbeat" && s.Reply[1] == "0"; m.once || more {
		return got
	}
	_, err = send()
	require.NoError(m.t, err)
	again := m.step
	again.Before, again.After, again.Again = s.After, m.read(), true
	m.judge(&again)
	return got
}

// judge checks the rules. The server's clock is another one than that of keys, and nobody listens for messages.
func (m *keyedMachine) judge(s *rules.Step) {
	m.t.Helper()
	wrong := rules.Check(s, "expiries", "messages")
	require.Empty(m.t, wrong, "%s\nbefore %+v\nafter %+v", strings.Join(m.history[max(len(m.history)-40, 0):], "\n"),
		s.Before, s.After)
}

func (m *keyedMachine) acquire(c *caller, r script.Request) script.Reply {
	m.t.Helper()
	r.Token = c.token
	if r.WaiterTTL == 0 {
		r.WaiterTTL = waiterTTL
	}
	reply := sends(m, func() (script.Reply, error) { return m.lock().Acquire(ctx, r) })
	switch reply.Outcome {
	case script.Granted:
		c.fence = reply.Fence
	case script.Queued:
		c.ticket = uint64(reply.Ticket)
	}
	return reply
}

// learn has those know their fences who were granted permits.
func (m *keyedMachine) learn(h script.Handoff) script.Handoff {
	for _, g := range h.Grants {
		if c := m.named(g.Token.Text()); c != nil {
			c.fence = g.Fence
		}
	}
	return h
}

func (m *keyedMachine) named(text string) *caller {
	for _, c := range m.callers {
		if c.token.Text() == text {
			return c
		}
	}
	return nil
}

func (m *keyedMachine) release(c *caller, kept time.Duration, by *caller) script.Handoff {
	m.t.Helper()
	var rest script.Rest
	if by != nil {
		rest = script.Rest{Left: kept, By: by.token}
	}
	return m.learn(sends(m, func() (script.Handoff, error) { return m.lock().Release(ctx, c.token, c.fence, rest) }))
}

func (m *keyedMachine) leave(tombstone bool, callers ...*caller) script.Handoff {
	m.t.Helper()
	var all []script.Leaving
	for _, c := range callers {
		all = append(all, script.Leaving{Token: c.token, Tombstone: tombstone})
	}
	return m.learn(sends(m, func() (script.Handoff, error) { return m.lock().Leave(ctx, script.Rest{}, all...) }))
}

func (m *keyedMachine) heartbeat(ttl time.Duration, callers ...*caller) script.HeartbeatReply {
	m.t.Helper()
	var all []token.Token
	for _, c := range callers {
		all = append(all, c.token)
	}
	return sends(m, func() (script.HeartbeatReply, error) { return m.lock().Heartbeat(ctx, ttl, all) })
}

func (m *keyedMachine) resume(c, by *caller) uint64 {
	m.t.Helper()
	r := sends(m, func() (resumption, error) { return resumed(m.lock().Resume(ctx, c.token, c.fence, ttl, by.token)) })
	by.fence = max(by.fence, r.Fence)
	return r.Fence
}

func (m *keyedMachine) resize(permits int) script.Handoff {
	m.t.Helper()
	return m.learn(sends(m, func() (script.Handoff, error) { return m.lock().Resize(ctx, permits) }))
}

func (m *keyedMachine) force(seen uint64) script.Handoff {
	m.t.Helper()
	return m.learn(sends(m, func() (script.Handoff, error) { return m.lock().ForceRelease(ctx, seen, 0) }))
}

func (m *keyedMachine) renew(c *caller) bool {
	m.t.Helper()
	return sends(m, func() (bool, error) { return m.lock().Renew(ctx, c.token, ttl, c.fence) })
}

// A scenario of keys is one in the words of scenario. A name begins with its key: A1 and A2 are callers of A, A3*2 asks
// for two permits. Other steps and words:
//
//	key A limit 4 share 3 of 10   what the callers of A say that come from now on
//	acquire A1 max 5 line 2       at most five may wait, and two of its key
//	keys                          -> A 1/4 2: what Inspect says of keys: held, limit, waiting; ! at its limit
//	release 5                     those that were granted permits earliest, one after the other -> who was granted them
func (m *keyedMachine) scenario(steps string) {
	m.t.Helper()
	for line := range strings.Lines(steps) {
		line, _, _ = strings.Cut(line, "#")
		for text := range strings.SplitSeq(line, ";") {
			step, want, expects := strings.Cut(text, "->")
			if words := strings.Fields(step); len(words) > 0 {
				m.refusal = ""
				got := m.word(words[0], words[1:])
				got = cmp.Or(m.refusal, got)
				if want = strings.TrimSpace(want); expects {
					require.Equal(m.t, want, got, strings.TrimSpace(text))
				}
			}
		}
	}
}

func (m *keyedMachine) word(verb string, words []string) string {
	m.t.Helper()
	var who []*caller
	var r script.Request
	tombstone, with := false, map[string]string{}
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case word == "try":
			r.Try = true
		case word == "tombstone":
			tombstone = true
		case word == "ticket":
			with["ticket"] = "yes"
		case verb != "key" && regexp.MustCompile(`^[A-Z]+\d+(\*\d+)?$`).MatchString(word):
			who = append(who, m.caller(word))
		case i+1 < len(words) && slices.Contains([]string{"limit", "share", "of", "max", "line", "kept", "by", "wait",
			"seen"}, word):
			with[word] = words[i+1]
			i++
		default:
			with[""] = word
		}
	}
	number := func(name string) int { n, _ := strconv.Atoi(with[name]); return n }
	duration := func(name string) time.Duration { d, _ := time.ParseDuration(with[name]); return d }
	switch verb {
	case "key":
		terms := tokens.Terms{TTL: ttl, Weight: 1, Permits: m.permits, Key: with[""], KeyLimit: number("limit"),
			Share: max(number("share"), 1)}
		if with["of"] != "" {
			terms.Permits = number("of")
		}
		m.terms[with[""]] = terms
	case "acquire":
		var all []string
		for _, c := range who {
			r := r
			r.MaxWaiters, r.MaxLine, r.WaiterTTL = number("max"), number("line"), duration("wait")
			if with["ticket"] != "" {
				r.Ticket = script.Ticket(c.ticket)
			}
			all = append(all, outcome(m.acquire(c, r)))
		}
		return strings.Join(all, ", ")
	case "release":
		if len(who) > 0 {
			var by *caller
			if with["by"] != "" {
				by = m.caller(with["by"])
				by.token = rested(by.token)
			}
			return m.names(m.release(who[0], duration("kept"), by))
		}
		var all []string
		for range number("") {
			all = append(all, strings.Fields(m.names(m.release(m.oldest(), 0, nil)))...)
		}
		return strings.Join(all, " ")
	case "leave":
		return m.names(m.leave(tombstone, who...))
	case "heartbeat":
		ttl := waiterTTL
		if with["wait"] != "" {
			ttl = duration("wait")
		}
		var all []string
		for _, state := range m.heartbeat(ttl, who...).States {
			all = append(all, []string{"gone", "queued", "holding"}[state])
		}
		return strings.Join(all, ", ")
	case "resume":
		return map[bool]string{true: "resumed", false: "lost"}[m.resume(who[0], m.caller(with["by"])) > 0]
	case "renew":
		return map[bool]string{true: "renewed", false: "lost"}[m.renew(who[0])]
	case "resize":
		return m.names(m.resize(number("")))
	case "force":
		return m.names(m.force(m.read().Last))
	case "after", "stall":
		m.pass(duration(""), verb == "after")
	case "evict":
		require.Equal(m.t, int64(1), m.do(m.t, "DEL", m.keys[with[""]]))
	case "lose":
		m.lose()
	case "once":
		m.once = true
	case "full":
		m.do(m.t, "CONFIG", "SET", "maxmemory", map[bool]int{true: 1}[with[""] != "no"])
	case "keys":
		return m.listed()
	case "left":
		var all []string
		for name, key := range m.keys {
			if m.rdb.Exists(ctx, key).Val() == 1 {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	case "inspect":
		return m.inspected()
	default:
		require.FailNow(m.t, "no such step: "+verb)
	}
	return ""
}

func outcome(r script.Reply) string {
	switch r.Outcome {
	case script.Granted:
		return "granted"
	case script.Queued:
		return fmt.Sprint("queued ", r.Position)
	case script.Busy:
		return "busy " + string(r.Why)
	case script.Full:
		return fmt.Sprint("full ", r.Position, " ", r.Why)
	default:
		return fmt.Sprint("resized ", r.Permits)
	}
}

func (m *keyedMachine) names(h script.Handoff) string {
	var all []string
	for _, g := range h.Grants {
		all = append(all, m.named(g.Token.Text()).name)
	}
	return strings.Join(all, " ")
}

// oldest is the holder whose fence is the lowest.
func (m *keyedMachine) oldest() *caller {
	holders := m.read().Live()
	if len(holders) == 0 {
		return nil
	}
	c := m.named(holders[0].Token)
	c.fence = holders[0].Fence
	return c
}

func (m *keyedMachine) inspected() string {
	s, err := m.lock().Inspect(ctx, 100, 100)
	require.NoError(m.t, err)
	var words []string
	for _, h := range s.Holders {
		words = append(words, m.named(h.Token).name)
	}
	slices.Sort(words)
	words = append(words, "|")
	for _, w := range s.Waiters {
		words = append(words, m.named(w.Token).name)
	}
	return strings.Join(words, " ")
}

func (m *keyedMachine) listed() string {
	s, err := m.lock().Inspect(ctx, 100, 100)
	require.NoError(m.t, err)
	var all []string
	for _, k := range s.Keys {
		all = append(all, fmt.Sprintf("%s%s %d/%d %d", k.Key, map[bool]string{true: "!"}[k.AtLimit], k.Held, k.Limit,
			k.Waiting))
	}
	return strings.Join(all, ", ")
}

// keyedScenario runs a scenario.
func keyedScenario(t *testing.T, permits int, steps string) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		newKeyed(t, real(t), permits).scenario(steps)
	})
}

// Case 1: a limit in all and one for each key.
func TestKeyed_Limits(t *testing.T) {
	keyedScenario(t, 10, `
		key A limit 4; acquire A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 -> granted, granted, granted, granted, queued 1, queued 2, queued 3, queued 4, queued 5, queued 6
		acquire A11 try -> busy turn; acquire B1 C1 B2 C2 B3 C3 -> granted, granted, granted, granted, granted, granted
		acquire B4 try -> busy lock; acquire B5 -> queued 1; keys -> B 3/0 1, A! 4/4 6; release A1 -> A5
		release A2 -> B5; leave A6 A7 A8 A9 A10; release A3; acquire A12 try -> granted; release B1
		acquire A13 try -> granted; acquire A14 try -> busy lock; release B2; acquire A14 try -> busy key; acquire D1 try -> granted
		release 10; left -> number`)
}

// Case 2: one key alone is plain first come, first served.
func TestKeyed_OneKeyIsFIFO(t *testing.T) {
	keyedScenario(t, 3, `
		acquire A1*2 A2*2 A3 A4*3 A5 -> granted, queued 1, queued 2, queued 3, queued 4; acquire A6 try -> busy turn
		release A1 -> A2 A3; release A2; release A3 -> A4; release A4 -> A5; release A5; left -> number`)
}

// Case 3: keys take turns, however many of one wait.
func TestKeyed_Turns(t *testing.T) {
	keyedScenario(t, 1, `
		acquire H1 A1 A2 A3 A4 A5 A6 B1 B2 B3 C1 C2; release 9 -> A1 B1 C1 A2 B2 C2 A3 B3 A4
		release 3 -> A5 A6 ; left -> number`)
	keyedScenario(t, 1, `# a stream of new keys does not starve A
		acquire H1 A1 A2 A3; acquire B1; release 1 -> A1; acquire C1; release 1 -> B1; acquire D1; release 1 -> A2; acquire E1
		release 1 -> C1; acquire F1; release 1 -> D1; release 1 -> A3`)
	keyedScenario(t, 1, `# old tickets do not bring more turns
		acquire H1 A1 A2 B1 B2 B3 A3; leave A1; leave A2; leave A3; release 1 -> B1; acquire A1 ticket; release 1 -> A1; acquire A2 ticket -> queued 1
		release 1 -> B2; acquire A3 ticket -> queued 2; release 2 -> A2 B3`)
}

// Case 4: a key with share 3 gets three permits in its turn.
func TestKeyed_Shares(t *testing.T) {
	keyedScenario(t, 1, `
		key A share 3; acquire H1 A1 A2 A3 A4 A5 A6 A7 B1 B2 B3; release 9 -> A1 A2 A3 B1 A4 A5 A6 B2 A7`)
	keyedScenario(t, 4, `
		key A share 3; acquire H1 H2 H3 H4; acquire B1 B2 B3 B4 A1 A2 A3 A4 A5; release 4 -> B1 A1 A2 A3; keys -> B 1/0 3, A 3/0 2`)
}

// Case 5: a newcomer that holds nothing is next, before a backlog of a key that holds something.
func TestKeyed_NewcomerIsNext(t *testing.T) {
	keyedScenario(t, 3, `
		acquire A1 A2 A3 A4 A5; acquire B1 -> queued 1; keys -> B 0/0 1, A 3/0 2; release 1 -> B1; acquire C1; release 1 -> C1`)
}

// Case 6: a key at its limit lets others pass, keeps its turn and does not hoard.
func TestKeyed_AtItsLimit(t *testing.T) {
	keyedScenario(t, 3, `
		key A limit 1; acquire A1 A2 A3 -> granted, queued 1, queued 2; acquire B1 B2 -> granted, granted; acquire B3 C1
		release B1 -> C1; keys -> B 1/0 1, A! 1/1 2; release B2 -> B3; release A1 -> A2; keys -> A! 1/1 1; acquire D1 -> queued 1
		release C1 -> D1; release A2 -> A3`)
	keyedScenario(t, 2, `# its head is next when a holder of the key ends, though others have waited for less long
		key A limit 1; acquire A1 A2; acquire B1 B2; release A1 -> A2; release B1 -> B2; acquire B3; release A2 -> B3; acquire A3 -> queued 1`)
}

// Case 7: a wide request.
func TestKeyed_Wide(t *testing.T) {
	keyedScenario(t, 4, `
		acquire A1 A2 B1 B2; acquire W1*4 -> queued 1; acquire A3 B3 -> queued 1, queued 1; release A1; release A2; release B1
		acquire C1 -> queued 1; acquire C2 try -> busy turn; release B2 -> W1; release W1 -> A3 B3 C1`)
	keyedScenario(t, 4, `# while its key holds something, keys that hold less pass it
		acquire W1 A1 A2 A3; acquire W2*4 B1 -> queued 1, queued 1; release A1 -> B1; acquire C1; release A2 -> C1; release A3
		release W1; release B1; release C1 -> W2`)
}

// Case 8: a client that has crashed with holders and waiters of many keys. Others go on after one WaiterTTL in all.
func TestKeyed_Crash(t *testing.T) {
	m := newKeyed(t, real(t), 50)
	for i := range 100 {
		terms := tokens.Terms{TTL: 10 * time.Second, Weight: 1, Permits: 50, Key: fmt.Sprint("K", i%50), Share: 1}
		m.acquire(m.add(fmt.Sprintf("K%dx%d", i%50, i), terms), script.Request{WaiterTTL: 10 * time.Second})
	}
	m.scenario(`acquire Z1 Z2 -> queued 1, queued 2; stall 5s; acquire Z1 Z2 -> queued 1, queued 2`)
	m.pass(9*time.Second, true)
	m.scenario(`acquire Z1 Z2 -> granted, granted; keys ->; release Z1; release Z2; left -> number`)
}

// Case 9: what of a queue or of leases was lost.
func TestKeyed_Losses(t *testing.T) {
	for _, key := range []string{"lines", "turns", "queue", "heartbeats"} {
		keyedScenario(t, 2, `
			acquire A1 A2; acquire A3 A4 B1; evict `+key+`; acquire A4 ticket -> queued 1; acquire A3 ticket -> queued 1; heartbeat B1 -> gone
			acquire B1 ticket -> queued 1; keys -> B 0/0 1, A 2/0 2; release 2 -> B1 A3; release 3 -> A4; left -> number`)
	}
	for _, key := range []string{"holders", "permits"} {
		keyedScenario(t, 2, `
			acquire A1 A2; acquire A3 A4 B1; evict `+key+`; heartbeat A3 A4 B1 -> gone, gone, gone; renew A1 -> lost
			acquire A4 ticket -> granted; acquire A3 ticket -> granted; acquire B1 ticket -> queued 1; release A4 -> B1; release 2; left -> number`)
	}
	keyedScenario(t, 2, `
		acquire A1 A2; acquire A3 B1; evict permits; acquire A3; lose; acquire C1 -> granted; renew A1 -> lost; acquire B1 ticket -> granted
		acquire A3 ticket -> queued 1; release C1 -> A3`)
}

// Case 10: the number of permits changes, or differs; a key's requests bring different limits.
func TestKeyed_Resize(t *testing.T) {
	keyedScenario(t, 4, `
		acquire A1 A2 A3 A4; acquire A5*4 B1 C1; resize 2; keys -> B 0/0 1, C 0/0 1, A 4/0 1; release 2; release 1 -> B1
		release 1 -> C1; acquire D1; release 1 -> D1; heartbeat A5 -> gone; acquire A5 -> resized 2; resize 8; acquire E1*3 -> granted; resize 0 ->
		acquire E2*4 try -> busy lock`)
	keyedScenario(t, 8, `# a smaller number that is next makes others wait
		acquire A1 A2 A3; key B of 2; acquire B1 -> queued 1; acquire C1 -> queued 1; release A1; release A2 -> B1 C1`)
	keyedScenario(t, 8, `# the head speaks for its key
		key A limit 1; acquire A1; key A limit 3; acquire A2 -> granted; key A limit 1; acquire A3 -> queued 1; key A limit 3; acquire A4 -> queued 2
		keys -> A! 2/1 2; leave A3 -> A4`)
}

// Case 11: the rest of a minimum hold counts for its key, and the first of the queue is told when a lease ends.
func TestKeyed_MinHold(t *testing.T) {
	keyedScenario(t, 5, `
		key A limit 1; acquire A1; release A1 kept 30s by A90 ->; acquire A2 try -> busy key; acquire A2 -> queued 1; keys -> A! 1/1 1
		acquire B1 -> granted; after 31s; acquire A2 -> granted; release A2; release B1; left -> number`)
	m := newKeyed(t, real(t), 5)
	m.scenario(`key A limit 1; acquire A1; release A1 kept 30s by A90`)
	r := m.acquire(m.caller("A2"), script.Request{})
	assert.InDelta(t, 30*time.Second, r.RetryAfter, float64(time.Second), "permits are free, and its key is at its limit")
	m.scenario(`key B limit 1; acquire B1 B2 -> granted, queued 1`)
	assert.Negative(t, m.heartbeat(waiterTTL, m.caller("B2")).RetryAfter, "the first of the queue asks for all")
}

// A refused try learns when enough rests of minimum holds have ended, and nothing if a live lease is in the way.
func TestKeyed_TryLearnsWhenRestsEnd(t *testing.T) {
	for steps, want := range map[string]time.Duration{
		"acquire A1 A2; release A2 kept 60s by A90; acquire B1 try":                                            60 * time.Second,
		"acquire A1 A2; release A2 kept 60s by A90; acquire B1*2 try":                                          -time.Millisecond,
		"acquire A1 A2; acquire B1 try":                                                                        -time.Millisecond,
		"acquire A1 A2; release A1 kept 20s by A90; release A2 kept 30s by A91; acquire B1*2 try":              30 * time.Second,
		"key A limit 1; acquire A1; release A1 kept 10s by A90; acquire A2 try":                                10 * time.Second,
		"key A limit 1; acquire A1; acquire A2 try":                                                            -time.Millisecond,
		"key A limit 1; acquire A1 B1; release A1 kept 10s by A90; release B1 kept 20s by B90; acquire A2 try": 10 * time.Second,
		// B1 waits
		"acquire A1 A2; acquire B1; release A2 kept 60s by A90; acquire C1 try": -time.Millisecond,
	} {
		m := newKeyed(t, real(t), 2)
		last := steps[strings.LastIndex(steps, "acquire ")+len("acquire ") : len(steps)-len(" try")]
		m.scenario(strings.TrimSuffix(steps, "acquire "+last+" try"))
		c := m.caller(last)
		reply := sends(m, func() (script.Reply, error) { return m.lock().Acquire(ctx, script.Request{Token: c.token}) })
		assert.Equal(t, script.Busy, reply.Outcome, steps)
		assert.InDelta(t, want, reply.RetryAfter, float64(time.Second), steps)
	}
}

// A waiter can be refused because the queue is full, or the line of its key.
func TestKeyed_Full(t *testing.T) {
	keyedScenario(t, 1, `
		acquire A1 A2; acquire A3 line 1 -> full 1 key; acquire A3 line 2 -> queued 2; acquire B1 line 1 max 3 -> queued 1
		acquire C1 max 3 line 1 -> full 3 lock; acquire A3 line 1 max 1 -> queued 2`)
}

// A server without memory refuses what has to store something. What is held can be kept, and is handed off.
func TestKeyed_FullServer(t *testing.T) {
	m := newKeyed(t, newReal(t, redistest.Start(t)), 1)
	m.scenario(`
		full; acquire A1 -> OOM; acquire A1 try -> OOM; left ->; full no; acquire A1 A2 B1 B2 A3; acquire C2; leave C2; full
		acquire C1 -> OOM; acquire A2 -> queued 1; heartbeat B1 A3 -> queued, queued; renew A1 -> renewed; full no; after 1s; full; release A1 -> A2
		release A2 -> B1; leave B2 tombstone; release B1 -> A3; force; full no; left -> number tombstones`)
	m.scenario(`
		key D limit 1; acquire D1; key D limit 1 of 5; acquire D2 -> queued 1; after 40m; full; acquire D2 -> queued 1; renew D1 -> renewed
		acquire E1 try -> OOM; release D1 -> D2; acquire C2 ticket -> OOM; full no; release D2`)
}

// A lease passes to a token of the same key only.
func TestKeyed_Resume(t *testing.T) {
	keyedScenario(t, 2, `
		key A limit 1; acquire A1 A2; resume A1 by B1 -> lost; resume A1 by A3 -> resumed; keys -> A! 1/1 1; renew A1 -> lost; release A1 ->
		release A3 -> A2; force ->; left -> number tombstones`)
}

// Keys are whatever callers choose.
func TestKeyed_Names(t *testing.T) {
	m := newKeyed(t, real(t), 1)
	names := []string{"a", "a!", "a ", "a%20", "a:b", "ü", "\x00", "=a", "used", "~", "A", "aa",
		strings.Repeat("\xff", 128)}
	m.scenario("acquire H1")
	for i, name := range names {
		for j := range 2 {
			c := m.add(fmt.Sprint("k", i, "-", j), tokens.Terms{TTL: ttl, Weight: 1, Permits: 1, Key: name, Share: 1})
			require.Equal(t, fmt.Sprint("queued ", j+1), outcome(m.acquire(c, script.Request{})))
		}
	}
	s, err := m.lock().Inspect(ctx, 100, 100)
	require.NoError(t, err)
	for i, k := range s.Keys {
		require.Equal(t, script.Key{Key: names[i], Waiting: 2, Share: 1, Ticket: k.Ticket}, k)
	}
	for j := range 2 {
		for i := range names {
			require.Equal(t, fmt.Sprint("k", i, "-", j), m.names(m.release(m.oldest(), 0, nil)))
		}
	}
	m.scenario("release 1; left -> number")
}

// Case 2: for any sequence of requests of one key, the same grants in the same order as a semaphore.
func TestKeyed_OneKeyIsASemaphore(t *testing.T) {
	for seed := range uint64(20) {
		random, s := rand.New(rand.NewPCG(seed, 0)), real(t)
		timedUser := instrumentedBy(s.rdb, timed())
		plain, keyed := script.Semaphore(timedUser, s.namespace, "name"), script.KeyedSemaphore(timedUser, s.namespace,
			"name")
		weights := []int{}
		tokenOf := func(lock script.Lock, n int) token.Token {
			terms := tokens.Terms{TTL: ttl, Weight: weights[n], Permits: 4}
			if lock.Keyed() {
				terms.Key, terms.Share = "A", 1
			}
			return keyedToken("c", terms, n+1)
		}
		fences := map[int]uint64{}
		for clock := int64(1_700_000_000_000_000); clock < 1_700_000_000_000_200; clock++ {
			s.do(t, "SET", s.namespace+":clock", clock)
			var said []string
			n, kind := len(weights), random.IntN(10)
			if kind < 5 {
				weights = append(weights, 1+random.IntN(4))
			} else if n = random.IntN(max(n, 1)); len(weights) == 0 {
				continue
			}
			for _, lock := range []script.Lock{plain, keyed} {
				var text string
				switch {
				case kind < 5:
					r, err := lock.Acquire(ctx, script.Request{Token: tokenOf(lock, n), WaiterTTL: waiterTTL, Try: kind == 0})
					require.NoError(t, err)
					fences[n] = max(fences[n], r.Fence)
					r.Holder = ""
					text = fmt.Sprint(r)
				case kind < 9:
					h, err := lock.Release(ctx, tokenOf(lock, n), fences[n], script.Rest{})
					require.NoError(t, err)
					text = grantsOf(h, fences)
				default:
					h, err := lock.Leave(ctx, script.Rest{}, script.Leaving{Token: tokenOf(lock, n)})
					require.NoError(t, err)
					text = grantsOf(h, fences)
				}
				said = append(said, text)
			}
			require.Equal(t, said[0], said[1], "seed %d", seed)
		}
	}
}

// grantsOf writes a handoff without its tokens' keys, and notes the fences.
func grantsOf(h script.Handoff, fences map[int]uint64) string {
	text := fmt.Sprint(h.Released, h.More)
	for _, g := range h.Grants {
		n, _ := strconv.Atoi(strings.TrimSuffix(g.Token.Text()[len(g.Token.Text())-22:], "A"))
		fences[n-1] = g.Fence
		text += fmt.Sprint(" ", n, " ", g.Fence, " ", g.Given)
	}
	return text
}

// Case 4: each grant is of the waiter that is next, and over 2,000 grants the time for which keys hold permits is as
// their shares, within 20 %.
//
//fairlock:promise Shares of keys: over 2,000 grants, keys hold permits for as long as their shares say, within 20 %, with 2 to 50 keys on 8 permits
func TestKeyed_HeldByShare(t *testing.T) {
	const permits, grants = 8, 2000
	for _, keys := range []int{2, 4, 8, 20, 50} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			t.Parallel()
			m := newKeyed(t, real(t), permits)
			lock, random, shares := script.KeyedSemaphore(m.user, m.namespace, "name"), rand.New(rand.NewPCG(1, 2)), []int{3, 1}
			o := rules.NewOrder(&rules.State{})
			type holder struct {
				script.Grant

				from, to float64
			}
			var held []holder
			got, n, now := map[string]float64{}, 0, 0.0
			grant := func(g script.Grant) holder {
				o.Grants(rules.Holder{Token: g.Token.Text(), Fence: g.Fence})
				return holder{g, now, now + 0.5 + random.Float64()}
			}
			join := func(key int) {
				n++
				terms := tokens.Terms{TTL: 300 * ttl, Weight: 1, Permits: permits, Key: fmt.Sprint(key), Share: shares[key%2]}
				c := keyedToken("c", terms, n)
				r, err := lock.Acquire(ctx, script.Request{Token: c, WaiterTTL: 300 * ttl})
				require.NoError(t, err)
				if r.Outcome != script.Granted {
					o.Joins(rules.Waiter{Token: c.Text(), Ticket: uint64(r.Ticket)})
					return
				}
				held = append(held, grant(script.Grant{Token: c, Fence: r.Fence}))
			}
			for range 12 { // as many of each key hold or wait at any time
				for key := range keys {
					join(key)
				}
			}
			for i := range grants {
				slices.SortFunc(held, func(a, b holder) int { return cmp.Compare(a.to, b.to) })
				ends := held[0]
				now = ends.to
				h, err := lock.Release(ctx, ends.Token, ends.Fence, script.Rest{})
				require.NoError(t, err)
				require.Len(t, h.Grants, 1)
				o.Ends(rules.Holder{Token: ends.Token.Text(), Fence: ends.Fence})
				require.Equal(t, o.Next(), h.Grants[0].Token.Text(), "grant %d", i)
				held[0] = grant(h.Grants[0])
				key, _ := strconv.Atoi(ends.Token.Terms().Key)
				got[fmt.Sprint(key)] += ends.to - ends.from
				join(key)
				if i%100 == 0 {
					m.setClock(m.clock + 1000)
				}
			}
			for key := range keys {
				want := now * permits * float64(shares[key%2]) / float64(keys*2)
				assert.InEpsilon(t, want, got[fmt.Sprint(key)], 0.2, "key %d of %v", key, got)
			}
		})
	}
}
