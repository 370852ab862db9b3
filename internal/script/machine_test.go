package script_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/internal/tools/rules"
	"github.com/fairlock/fairlock-go/token"
)

// What a step uses unless it says otherwise. The lease is longer than the waiter TTL, so that it shows which of the two
// bounds what a waiter is given. Both are so long that a stalled machine changes nothing.
const (
	ttl       = 60 * time.Minute
	waiterTTL = 45 * time.Minute
	day       = 24 * time.Hour
)

var ctx = context.Background()

// kind is a kind of lock, with the weight of a party that names none.
type kind struct {
	name            string
	weight, permits int // permits 0: a mutex
	open            func(rdb script.Sender, namespace, name string) script.Lock
}

func semaphore(permits int) kind { return kind{"semaphore", 1, permits, script.Semaphore} }
func keyed(permits int) kind     { return kind{"keyed", 1, permits, script.KeyedSemaphore} }

var (
	mutex     = kind{"mutex", 1, 0, script.Mutex}
	rwMutex   = kind{"rwmutex", 1, tokens.WriterWeight, script.RWMutex}
	writers   = kind{"writers", tokens.WriterWeight, tokens.WriterWeight, script.RWMutex}
	oneHolder = []kind{mutex, semaphore(1), keyed(1), writers} // one party at a time holds all
)

func (k kind) lock(rdb script.Sender, namespace string) script.Lock {
	return k.open(rdb, namespace, "name")
}

// terms are those of a party that does not say.
func (k kind) terms(d time.Duration) tokens.Terms {
	t := tokens.Terms{TTL: d, Weight: k.weight, Permits: k.permits}
	if k.name == "keyed" {
		t.Key, t.Share = "key", 1
	}
	return t
}

// numbered returns a token that is the same in every run.
func numbered(client string, terms tokens.Terms, n int) token.Token {
	text := tokens.New(client, terms)
	t, err := token.Parse(fmt.Sprintf("%s%021dA", text[:len(text)-tokens.RandomLen], n))
	if err != nil {
		panic(err)
	}
	return t
}

// party is one acquisition. All its requests have the same terms.
type party struct {
	name          string
	n             int
	terms         tokens.Terms
	tok           token.Token // from its first request on
	ticket, fence uint64      // the last that it had
}

func (p *party) token() token.Token {
	if p.tok.Text() == "" {
		p.tok = numbered("c", p.terms, p.n)
	}
	return p.tok
}

// machine does steps to a lock, and checks the rules after each. The clock stands still between two steps. Only
// redis-server's keys expire by its own clock. They last for whole minutes, less the time that a test takes, and a
// shift of their TTL makes time pass for them.
//
// Each step is sent twice, unless once is set: the second time changes nothing.
type machine struct {
	*server
	kind
	t       testing.TB
	user    script.Sender     // sends the steps
	keys    map[string]string // by the end of their names
	clock   int64             // µs
	parties map[string]*party
	terms   map[string]tokens.Terms // of the keys of a keyed semaphore
	step    rules.Step              // the latest
	refusal string                  // why it was refused
	once    bool
	foreign bool // a key is not ours: no rule says what becomes of it
}

func newMachine(t testing.TB, s *server, k kind) *machine {
	t.Helper()
	m := &machine{server: s, kind: k, t: t, keys: map[string]string{}, parties: map[string]*party{},
		terms: map[string]tokens.Terms{}}
	for _, name := range k.lock(nil, s.namespace).Keys() {
		m.keys[name[strings.LastIndexByte(name, ':')+1:]] = name
	}
	m.user = instrumentedBy(s.rdb, timed())
	m.setClock(1_700_000_000_000_000) // the same in every run
	m.lose()
	return m
}

func (m *machine) lock() script.Lock { return m.kind.lock(m, m.namespace) }

// Send sends a request, and notes it and its reply.
func (m *machine) Send(ctx context.Context, r dispatch.Request) (any, error) {
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

// read reads what is in Redis, and for how long each key lasts: -1 is for ever. Of a foreign key nothing is read.
func (m *machine) read() (*rules.State, map[string]time.Duration) {
	m.t.Helper()
	texts, zsets, lasts := map[string]*redis.StringCmd{}, map[string]*redis.ZSliceCmd{}, map[string]*redis.DurationCmd{}
	var holders *redis.MapStringStringCmd
	_, _ = m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for name, key := range m.keys {
			lasts[name] = p.PTTL(ctx, key)
			switch name {
			case "number", "resized", "lock":
				texts[name] = p.Get(ctx, key)
			case "holders":
				holders = p.HGetAll(ctx, key)
			default:
				zsets[name] = p.ZRangeWithScores(ctx, key, 0, -1)
			}
		}
		return nil
	})
	keys, left := map[string]rules.Key{}, map[string]time.Duration{}
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
	if holders != nil {
		var k rules.Key
		for field, value := range holders.Val() {
			k.Members = append(k.Members, rules.Member{Name: field, Number: fields(value)[0], Text: value})
		}
		keys["holders"] = k
	}
	for name, cmd := range lasts {
		if cmd.Val() != -2 {
			left[name] = wholeMinutes(cmd.Val())
		}
	}
	if lock, ok := keys["lock"]; ok {
		lock.Until = m.clock + left["lock"].Microseconds()
		keys["lock"] = lock
	}
	return rules.Read(m.clock, keys), left
}

// wholeMinutes rounds up the remaining time of a key; -1 is for ever.
func wholeMinutes(left time.Duration) time.Duration {
	if left < 0 {
		return left
	}
	return (left + time.Minute - 1).Truncate(time.Minute)
}

func (m *machine) state() *rules.State {
	s, _ := m.read()
	return s
}

// fields are the numbers in a text; there are at least five.
func fields(text string) (n []int64) {
	for field := range strings.FieldsSeq(text + " 0 0 0 0 0") {
		number, _ := strconv.ParseInt(field, 10, 64)
		n = append(n, number)
	}
	return n
}

// numberOf is the text of the number. The number of permits that a resize has set, 0 if none has, is its last part.
func numberOf(last, clock, at, size int64) string {
	return strings.TrimSuffix(fmt.Sprintf("2 %d %d %d %d", last, clock, at, size), " 0")
}

// endOfText is where the text of a script's error ends.
var endOfText = regexp.MustCompile(` script: `)

// denied says that the user lacks a right that a script needs.
const denied = "can't run this command"

// refusals are what an error of the server or of a script says, besides the keys.
var refusals = regexp.MustCompile(`OOM|NOPERM|` + denied + `|ACL failure in|the \w+ (is|has) [a-z ]*[a-z]`)

// sends sends a request twice, unless it has reached a bound, and checks the rules each time. The server's clock is
// another one than that of keys, and nobody listens for messages.
func sends[T any](m *machine, send func() (T, error)) T {
	m.t.Helper()
	before := m.state()
	got, err := send()
	if err != nil {
		m.refusal = refusals.FindString(endOfText.Split(err.Error(), 2)[0])
		if m.refusal == "ACL failure in" { // a script: Redis 7.4 and Valkey
			m.refusal = denied
		}
		require.NotEmpty(m.t, m.refusal, "%v", err)
		require.True(m.t, m.foreign || strings.Contains(err.Error(), m.namespace+":{name}:"), "%v", err)
		if m.refusal == "OOM" {
			require.Equal(m.t, before, m.state(), "a request that is refused has changed something")
		}
		return got
	}
	after := m.judge(before, false)
	reply := m.step.Reply
	more := slices.Contains(reply, "more") || m.step.Verb == "acquire" && reply[0] == "queued" && reply[4] == "0" ||
		m.step.Verb == "heartbeat" && reply[1] == "0"
	if !m.once && !more {
		_, err = send()
		require.NoError(m.t, err)
		m.judge(after, true)
	}
	return got
}

// judge checks the rules, and that each key that must expire has an expiry. The parties learn their tickets and fences.
func (m *machine) judge(before *rules.State, again bool) *rules.State {
	m.t.Helper()
	after, left := m.read()
	for _, p := range m.parties {
		if h := after.Holder(p.token().Text()); h != nil {
			p.fence = h.Fence
		}
		if w := after.Waiter(p.token().Text()); w != nil {
			p.ticket = w.Ticket
		}
	}
	if m.foreign {
		return after
	}
	for name, left := range left {
		require.NotEqual(m.t, name == "resized", left >= 0, "%s lasts for %v", name, left)
	}
	s := m.step
	s.Before, s.After, s.Again = before, after, again
	wrong := rules.Check(&s, "expiries", "messages")
	require.Empty(m.t, wrong, "%d: %s %q -> %q\nbefore %+v\nafter %+v", m.clock, s.Verb, s.Args, s.Reply, before, after)
	return after
}

func (m *machine) setClock(to int64) {
	m.clock = to
	m.do(m.t, "SET", m.namespace+":clock", to)
}

// pass lets time pass: of the server alone if nobody sends anything, or of the queue as well. A negative time steps the
// clock back. An expiry is a moment and does not move.
func (m *machine) pass(d time.Duration, queue bool) {
	m.t.Helper()
	if text := m.rdb.Get(ctx, m.keys["number"]).Val(); text != "" && queue {
		n := fields(text)
		m.do(m.t, "SET", m.keys["number"], numberOf(n[1], n[2]+d.Microseconds(), n[3]+d.Microseconds(), n[4]), "KEEPTTL")
	}
	for _, key := range m.keys {
		if left := m.rdb.PTTL(ctx, key).Val(); left >= 0 {
			m.do(m.t, "PEXPIRE", key, (wholeMinutes(left) - d).Milliseconds())
		}
	}
	m.setClock(m.clock + d.Microseconds())
}

// lose loses all data.
func (m *machine) lose() { m.rdb.Del(ctx, slices.Collect(maps.Values(m.keys))...) }

var (
	ofCrowd = regexp.MustCompile(`^[hq]\d+$`)
	keyOf   = regexp.MustCompile(`^[A-Z]+`)
)

// party returns the party of a word, "name*2", with an optional number of permits.
func (m *machine) party(word string) *party {
	name, weight, heavy := strings.Cut(word, "*")
	p := m.parties[name]
	if p == nil {
		p = &party{name: name, n: len(m.parties) + 1, terms: m.kind.terms(ttl)}
		if key := keyOf.FindString(name); key != "" && m.name == rwMutex.name {
			p.terms.Weight = tokens.WriterWeight
		} else if key != "" && m.name == "keyed" {
			p.terms.Key = key
			if terms, ok := m.terms[key]; ok {
				p.terms = terms
			}
		}
		if ofCrowd.MatchString(name) {
			i, _ := strconv.Atoi(name[1:])
			p.tok = map[byte]func(int) token.Token{'h': m.held, 'q': m.queued}[name[0]](i)
		}
		m.parties[name] = p
	}
	if heavy {
		p.terms.Weight, _ = strconv.Atoi(weight)
	}
	return p
}

// A scenario is a list of steps, in lines or separated by semicolons. After an arrow stands what a step gives:
//
//	acquire a b*2 c        parties; b requests 2 permits; of 5: the number of permits in its token;
//	                       ttl 5m, wait 5m: durations; max 4, line 2: waiters; try: does not queue; ticket: with the one
//	                       that it has -> granted, queued 1, busy lock, full 4 key, resized 5; if the test wants it,
//	                       "by a" and "retry 45m"
//	release a              kept 5m by r: for that long r holds the lock -> the next ones; if the test wants it,
//	                       "b(45m)": for how long. release 3: those of the earliest grants
//	leave a tombstone      kept 5m by r; force: with the last fence; resize 5 -> as release
//	renew a                -> renewed, lost
//	resume a by b          -> resumed, lost
//	heartbeat a b          wait 5m -> queued, holding, gone; retry 45m: of the head
//	inspect 10             -> the holders | the waiters, at most 10 of each
//	permits                -> A! 1/4 2, …: what Inspect says of a key: held, its limit, waiting; ! at its limit
//	key A limit 4 share 3 of 10   what the parties of key A say that come from now on: A1, A2
//	after 5m; stall 5m     time passes, with the queue's clock or without
//	clock -5m              the server's clock steps
//	lose; evict number     all data are lost; one key is
//	set lock x             a key is somebody else's
//	full; full no          the server has no memory left, or has -> OOM, NOPERM, …: why it was refused
//	once                   what follows is sent once
//	drop a                 a waiter is dropped, though it has not expired; forge a 5m: it has a ticket of then
//	crowd 9 12             holders of one permit each, and waiters; ended, expired: they are over; keys 3, limit 1
//	left; count            -> the keys that exist; how many hold | how many wait
//	fence                  -> now, now+1: the last number, in µs of the server's time
//
// In a rwmutex, a capital letter is a writer.
func (m *machine) run(steps string) {
	m.t.Helper()
	for line := range strings.Lines(steps) {
		line, _, _ = strings.Cut(line, "#")
		for text := range strings.SplitSeq(line, ";") {
			words, want, expects := strings.Cut(text, "->")
			if strings.TrimSpace(words) == "" {
				continue
			}
			m.refusal = ""
			got := m.does(strings.Fields(words), strings.TrimSpace(want))
			got = cmp.Or(m.refusal, got)
			require.True(m.t, !expects || got == strings.TrimSpace(want), "%s: got %s", strings.TrimSpace(text), got)
		}
	}
}

// options are what a step says after its verb.
type options struct {
	who  []*party
	with map[string]string // words with a value, flags, and under "" another word
}

func (o options) has(flag string) bool { _, ok := o.with[flag]; return ok }

func (o options) number(name string) int { n, _ := strconv.Atoi(o.with[name]); return n }

func (o options) duration(name string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(o.with[name]); err == nil {
		return d
	}
	return otherwise
}

const (
	valued  = " ttl wait kept max line by of limit share keys "
	flagged = " try ticket tombstone ended expired "
	alone   = " evict set full after stall clock left count fence crowd resize inspect lose once key permits force "
)

func (m *machine) options(verb string, words []string) options {
	m.t.Helper()
	o := options{with: map[string]string{}}
	is := func(list, word string) bool { return strings.Contains(list, " "+word+" ") }
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case is(valued, word):
			o.with[word] = words[i+1]
			i++
		case is(flagged, word):
			o.with[word] = ""
		case is(alone, verb) || strings.Trim(word[:1], "-0123456789") == "":
			o.with[""] = strings.TrimSpace(o.with[""] + " " + word)
		default:
			o.who = append(o.who, m.party(word))
		}
	}
	for _, p := range o.who {
		if p.tok.Text() == "" {
			p.terms.TTL, p.terms.Permits = o.duration("ttl", p.terms.TTL), cmp.Or(o.number("of"), p.terms.Permits)
		}
	}
	return o
}

// by is the token that has a lease after the step, with the same number of permits by default.
func (m *machine) by(o options, flags tokens.Flags) token.Token {
	if !o.has("by") {
		return token.Token{}
	}
	by := m.party(o.with["by"])
	if by.tok.Text() == "" {
		by.terms.Flags = flags
		if !strings.Contains(o.with["by"], "*") {
			by.terms.Weight = o.who[0].terms.Weight
		}
	}
	return by.token()
}

// does does a step, and returns what it gives in words. What only some scenarios look at is there if they want it.
func (m *machine) does(words []string, want string) string {
	m.t.Helper()
	verb, o := words[0], m.options(words[0], words[1:])
	rest := func() script.Rest { return script.Rest{Left: o.duration("kept", 0), By: m.by(o, tokens.Released)} }
	handoff := func(send func() (script.Handoff, error)) string { return m.handoff(sends(m, send), want) }
	switch verb {
	case "acquire":
		var all []string
		for i, p := range o.who {
			wants := strings.Split(want, ",")
			all = append(all, m.reply(m.acquire(p, o), wants[min(i, len(wants)-1)]))
		}
		return strings.Join(all, ", ")
	case "release":
		if len(o.who) == 0 {
			var all []string
			for range o.number("") {
				h := m.state().Live()[0]
				t, err := token.Parse(h.Token)
				require.NoError(m.t, err)
				all = append(all, strings.Fields(handoff(func() (script.Handoff, error) {
					return m.lock().Release(ctx, t, h.Fence, script.Rest{})
				}))...)
			}
			return strings.Join(all, " ")
		}
		fence, rest := o.who[0].fence, rest()
		return handoff(func() (script.Handoff, error) { return m.lock().Release(ctx, o.who[0].token(), fence, rest) })
	case "leave":
		var all []script.Leaving
		for _, p := range o.who {
			all = append(all, script.Leaving{Token: p.token(), Tombstone: o.has("tombstone")})
		}
		return handoff(func() (script.Handoff, error) { return m.lock().Leave(ctx, rest(), all...) })
	case "force":
		seen := m.state().Last
		return handoff(func() (script.Handoff, error) { return m.lock().ForceRelease(ctx, seen, 0) })
	case "resize":
		return handoff(func() (script.Handoff, error) { return m.lock().Resize(ctx, o.number("")) })
	case "renew":
		fence := o.who[0].fence
		renewed := sends(m, func() (bool, error) {
			return m.lock().Renew(ctx, o.who[0].token(), ttl, fence)
		})
		return map[bool]string{true: "renewed", false: "lost"}[renewed]
	case "resume":
		fence, by := o.who[0].fence, m.by(o, 0)
		r := sends(m, func() (resumption, error) {
			return resumed(m.lock().Resume(ctx, o.who[0].token(), fence, ttl, by))
		})
		return map[bool]string{true: "resumed", false: "lost"}[r.Fence > 0]
	case "heartbeat":
		var all []token.Token
		for _, p := range o.who {
			all = append(all, p.token())
		}
		r := sends(m, func() (script.HeartbeatReply, error) {
			return m.lock().Heartbeat(ctx, o.duration("wait", waiterTTL), all)
		})
		var states []string
		for _, state := range r.States {
			states = append(states, []string{"gone", "queued", "holding"}[state])
		}
		return strings.TrimSpace(strings.Join(states, ", ") + retry(r.RetryAfter, want))
	case "inspect", "permits":
		most := cmp.Or(o.number(""), 100)
		return m.snapshot(sends(m, func() (script.Snapshot, error) { return m.lock().Inspect(ctx, most, most) }), verb)
	default:
		return m.happens(verb, o)
	}
}

// happens does a step that sends no verb.
func (m *machine) happens(verb string, o options) string {
	m.t.Helper()
	switch verb {
	case "key":
		terms := tokens.Terms{TTL: ttl, Weight: 1, Permits: cmp.Or(o.number("of"), m.permits), Key: o.with[""],
			KeyLimit: o.number("limit"), Share: max(o.number("share"), 1)}
		m.terms[terms.Key] = terms
	case "set":
		m.foreign = true
		key, value, _ := strings.Cut(o.with[""], " ")
		m.do(m.t, "SET", m.keys[key], value)
	case "full":
		m.do(m.t, "CONFIG", "SET", "maxmemory", map[bool]int{true: 1}[o.with[""] != "no"])
	case "after", "stall", "clock":
		m.pass(o.duration("", 0), verb == "after")
	case "lose":
		m.lose()
	case "evict":
		require.Equal(m.t, int64(1), m.do(m.t, "DEL", m.keys[o.with[""]]))
	case "once":
		m.once = true
	case "drop":
		m.do(m.t, "ZREM", m.keys["queue"], o.who[0].token().Text())
		m.do(m.t, "ZREM", m.keys["heartbeats"], o.who[0].token().Text())
	case "forge":
		o.who[0].ticket = uint64(m.clock + o.duration("", 0).Microseconds())
	case "crowd":
		n := fields(o.with[""])
		over := map[bool]time.Duration{true: -time.Second, false: time.Hour}
		m.put(crowd{holders: int(n[0]), waiters: int(n[1]), keys: max(o.number("keys"), 1), limit: o.number("limit"),
			leases: over[o.has("ended")], waits: over[o.has("expired")]})
	case "left":
		_, left := m.read()
		return strings.Join(slices.Sorted(maps.Keys(left)), " ")
	case "count":
		s := m.state()
		return fmt.Sprintf("%d | %d", len(s.Holders), len(s.Waiters))
	case "fence":
		return strings.TrimSuffix(fmt.Sprintf("now%+d", int64(m.state().Last)-m.clock), "+0")
	default:
		require.FailNow(m.t, "no such step: "+verb)
	}
	return ""
}

func (m *machine) acquire(p *party, o options) script.Reply {
	m.t.Helper()
	r := script.Request{Token: p.token(), WaiterTTL: o.duration("wait", waiterTTL), MaxWaiters: o.number("max"),
		MaxLine: o.number("line"), Try: o.has("try")}
	if o.has("ticket") {
		r.Ticket = script.Ticket(p.ticket)
	}
	return sends(m, func() (script.Reply, error) { return m.lock().Acquire(ctx, r) })
}

func (m *machine) reply(r script.Reply, want string) string {
	words := []string{"", "granted", "queued", "busy", "full", "resized"}[r.Outcome]
	if n := r.Position + r.Permits; n > 0 {
		words += " " + strconv.Itoa(n)
	}
	if r.Why != "" {
		words += " " + string(r.Why)
	}
	if strings.Contains(want, " by ") {
		words += " by " + m.nameOf(r.Holder)
	}
	return words + map[bool]string{true: " more"}[r.More] + retry(r.RetryAfter, want)
}

func (m *machine) handoff(h script.Handoff, want string) string {
	var words []string
	for _, g := range h.Grants {
		name := m.nameOf(g.Token.Text())
		if strings.Contains(want, "(") {
			name += "(" + roughly(g.Given) + ")"
		}
		words = append(words, name)
	}
	if h.More {
		words = append(words, "more")
	}
	return strings.Join(words, " ")
}

func (m *machine) snapshot(s script.Snapshot, verb string) string {
	var words []string
	if verb == "permits" {
		for _, k := range s.Keys {
			words = append(words, fmt.Sprintf("%s%s %d/%d %d", k.Key, map[bool]string{true: "!"}[k.AtLimit], k.Held, k.Limit,
				k.Waiting))
		}
		return strings.Join(words, ", ")
	}
	for _, h := range s.Holders {
		words = append(words, m.nameOf(h.Token))
	}
	words = append(words, "|")
	for _, w := range s.Waiters {
		words = append(words, m.nameOf(w.Token))
	}
	return strings.Join(words, " ")
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
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%.0fm", math.Round(d.Minutes()))
}

// nameOf is the party with a token.
func (m *machine) nameOf(text string) string {
	for _, p := range m.parties {
		if p.tok.Text() == text {
			return p.name
		}
	}
	return cmp.Or(map[string]string{"": "nobody"}[text], text)
}

// The files in testdata/scenarios have the scenarios that short histories do not reach, or show what a rule is for. A
// scenario begins with its name and the kinds of locks for which it runs.
//
//fairlock:promise Order: waiters are granted the lock by ticket; tickets are given in the order of arrival, many in one microsecond too
//fairlock:promise Order within a key: first come, first served; one key alone has the order of a semaphore
//fairlock:fault The server's clock steps back
//fairlock:fault A waiter is cut off when its turn comes: it is passed over, and comes back at its old position
//fairlock:fault Redis loses its data: the lock begins anew, with higher numbers; its waiters come back with their tickets, and its old holder is told at its next renewal
//fairlock:fault The server is full (OOM): what has to store something is refused; no lock is held by nobody; holders and queued waiters go on
//fairlock:promise Turns between keys: the next permit goes to the key that holds the least for its share, of several to the one whose turn began first: a key with many requests delays the first waiter of another key by one turn
//fairlock:promise A wide request of a key: once its key holds nothing, at most one grant of each key that waited before it comes first
//fairlock:fault A client is killed that has holders and waiters of many keys of a keyed semaphore: the others go on within one TTL and one WaiterTTL in all
//fairlock:fault The lines, turns or holders of a keyed semaphore are lost: order within a key among those who are back; nobody is granted twice; nothing stays
//fairlock:promise Terms of a key travel with the request: the first waiter of a key speaks for its limit and its share; a resize counts for all keys; two numbers in use are shown
//fairlock:fault A process is in a crash loop and joins each time: the queue stays as long as what joins in one WaiterTTL; a living head has its turn at once
func TestScenarios(t *testing.T) {
	kinds := map[string]kind{"mutex": mutex, "rwmutex": rwMutex, "writers": writers}
	files, err := os.ReadDir("testdata/scenarios")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile("testdata/scenarios/" + file.Name())
		require.NoError(t, err)
		for s := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			head, steps, _ := strings.Cut(s, "\n")
			name, of, _ := strings.Cut(head, ": ")
			for word := range strings.SplitSeq(of, ", ") {
				t.Run(fmt.Sprint(strings.TrimSuffix(file.Name(), ".txt"), "/", name, "/", word), func(t *testing.T) {
					t.Parallel()
					k, ok := kinds[word]
					if name, permits, _ := strings.Cut(word, " "); !ok {
						n, err := strconv.Atoi(permits)
						require.NoError(t, err)
						k = map[string]func(int) kind{"semaphore": semaphore, "keyed": keyed}[name](n)
					}
					if strings.Contains(steps, "full") {
						newMachine(t, newServer(t, redistest.Start(t)), k).run(steps)
					} else {
						newMachine(t, shared(t), k).run(steps)
					}
				})
			}
		}
	}
}

// server is a namespace of a redis-server.
type server struct {
	rdb       *redis.Client
	namespace string
}

// shared returns a namespace of the server that all tests share.
func shared(t testing.TB) *server {
	t.Helper()
	return newServer(t, redistest.Shared(t))
}

func newServer(t testing.TB, s *redistest.Server) *server {
	t.Helper()
	o := s.Options()
	o.ReadTimeout = time.Minute // go-redis sends again what a slow machine has not answered
	return &server{client(t, o), fmt.Sprint("ns", namespaces.Add(1))}
}

// do sends a command of the test's own.
func (s *server) do(t require.TestingT, args ...any) any {
	reply, err := s.rdb.Do(ctx, args...).Result()
	require.True(t, err == nil || errors.Is(err, redis.Nil), "%v: %v", args, err)
	return reply
}

// instrumented runs other scripts, by the hash of the original.
type instrumented struct {
	*redis.Client
	scripts map[string]*redis.Script
}

func (i instrumented) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if s := i.scripts[sha]; s != nil {
		sha = s.Hash()
	}
	return i.Client.EvalSha(ctx, sha, keys, args...)
}

func (i instrumented) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if s := i.scripts[redis.NewScript(script).Hash()]; s != nil {
		return s.Eval(ctx, i.Client, keys, args...)
	}
	return i.Client.Eval(ctx, script, keys, args...)
}

// instrumentedBy returns a Sender that runs other scripts.
func instrumentedBy(rdb *redis.Client, scripts map[string]*redis.Script) script.Sender {
	return dispatch.NewDirect(instrumented{rdb, scripts})
}

// instrument makes each script a function in Lua, before which a function call takes the place of redis.call. The clock
// of redis-server is the test's: TIME returns what stands in a key of the namespace, and PTTL whole minutes.
func instrument(call, then string) map[string]*redis.Script {
	all := map[string]*redis.Script{}
	for hash, source := range script.Sources() {
		all[hash] = redis.NewScript(`local space, called = string.match(KEYS[1], '^(.-):{'), redis.call
			local function real(command, ...)
				if command == 'TIME' then
					local at = called('GET', space .. ':clock')
					return { string.sub(at, 1, -7), tostring(tonumber(string.sub(at, -6))) }
				end
				local reply = called(command, ...)
				return command == 'PTTL' and reply > 0 and math.ceil(reply / 60000) * 60000 or reply
			end
			` + call + `
			local redis = setmetatable({ call = call }, { __index = redis })
			local function script() ` + source.Text + " end\n" + then)
	}
	return all
}

var timed = sync.OnceValue(func() map[string]*redis.Script { return instrument("local call = real", "return script()") })
