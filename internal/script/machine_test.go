package script_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

// server is a namespace of a redis-server.
type server struct {
	rdb       *redis.Client
	namespace string
}

func real(t testing.TB) *server {
	t.Helper()
	return newReal(t, redistest.Shared(t))
}

func newReal(t testing.TB, s *redistest.Server) *server {
	t.Helper()
	return newServer(t, &server{namespace: fmt.Sprint("ns", namespaces.Add(1))}, s.Options())
}

func newServer(t testing.TB, s *server, o *redis.Options) *server {
	t.Helper()
	o.ReadTimeout = time.Minute // go-redis sends again what a slow machine has not answered
	s.rdb = client(t, o)
	return s
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

// instrument makes each script a function in Lua, before which a function call takes the place of redis.call.
func instrument(call, then string) map[string]*redis.Script {
	all := map[string]*redis.Script{}
	for hash, source := range script.Sources() {
		text := source.Text
		all[hash] = redis.NewScript("local real = redis.call\n" + call +
			"\nlocal redis = setmetatable({ call = call }, { __index = redis })\nlocal function script() " + text + " end\n" +
			then)
	}
	return all
}

// The clock of redis-server is the test's: TIME returns what stands in a key of the namespace.
var timed = sync.OnceValue(func() map[string]*redis.Script {
	return instrument(`local function call(command, ...)
		if command ~= 'TIME' then return real(command, ...) end
		local at = real('GET', string.match(KEYS[1], '^(.-):{') .. ':clock')
		return { string.sub(at, 1, -7), tostring(tonumber(string.sub(at, -6))) }
	end`, "return script()")
})

// kind is a kind of lock, with what a party asks for that does not say.
type kind struct {
	name            string
	weight, permits int // permits 0: a mutex
	open            func(rdb script.Sender, namespace, name string) script.Lock
}

func semaphore(permits int) kind {
	return kind{"semaphore of " + strconv.Itoa(permits), 1, permits, script.Semaphore}
}

var (
	mutex   = kind{"mutex", 1, 0, script.Mutex}
	keyed   = kind{"keyed", 1, 1, script.KeyedSemaphore} // all of one key
	rwMutex = kind{"rwmutex", 1, tokens.WriterWeight, script.RWMutex}
	writers = kind{"writers", tokens.WriterWeight, tokens.WriterWeight, script.RWMutex}
)

// lock returns the lock of that kind.
func (k kind) lock(rdb script.Sender, namespace string) script.Lock {
	return k.open(rdb, namespace, "name")
}

// party is one acquisition. Whenever it asks, it asks for the same.
type party struct {
	name            string
	token           token.Token
	weight, permits int
	ticket, fence   uint64 // the last that it had
	asked           bool
}

// machine does steps to a lock. The clock stands still between two steps. Only redis-server's keys expire by its own
// clock, and time passes for them by a shift of their TTL.
//
// Each step is sent twice, unless once is set: the second time must change nothing.
type machine struct {
	*server
	kind
	t       testing.TB
	user    script.Sender     // sends the steps
	keys    map[string]string // by the end of their names
	clock   int64             // µs
	parties []*party
	refusal string // why the step was refused
	once    bool
	foreign bool // a key is not ours
}

func newMachine(t testing.TB, s *server, k kind) *machine {
	t.Helper()
	m := &machine{server: s, kind: k, t: t, keys: map[string]string{}}
	names := k.lock(nil, s.namespace).Keys()
	for _, name := range names {
		m.keys[name[strings.LastIndexByte(name, ':')+1:]] = name
	}
	m.user = instrumentedBy(s.rdb, timed())
	m.setClock(1_700_000_000_000_000) // the same in every run
	m.lose()
	return m
}

// contents is all that a lock has in Redis.
type contents struct {
	Lock, Number        string
	Resized             string
	Queue               []redis.Z
	Tombstones, Permits map[string]float64
	Heartbeats          map[string]float64
	Holders             map[string]string
	Left                map[string]time.Duration // of each key; -1: it lasts for ever
}

func (m *machine) contents() contents {
	m.t.Helper()
	var number, lock, resized *redis.StringCmd
	var queue, tombstones, permits, heartbeats *redis.ZSliceCmd
	var holders *redis.MapStringStringCmd
	left := map[string]*redis.DurationCmd{}
	_, err := m.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		number, lock = p.Get(ctx, m.keys["number"]), p.Get(ctx, m.keys["lock"])
		resized = p.Get(ctx, m.keys["resized"])
		queue, tombstones = p.ZRangeWithScores(ctx, m.keys["queue"], 0, -1), p.ZRangeWithScores(ctx, m.keys["tombstones"], 0,
			-1)
		permits = p.ZRangeWithScores(ctx, m.keys["permits"], 0, -1)
		holders, heartbeats = p.HGetAll(ctx, m.keys["holders"]), p.ZRangeWithScores(ctx, m.keys["heartbeats"], 0, -1)
		for name, key := range m.keys {
			left[name] = p.PTTL(ctx, key)
		}
		return nil
	})
	if !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") { // of a foreign key nothing is read
		require.NoError(m.t, err)
	}
	scores := func(all []redis.Z) map[string]float64 {
		found := map[string]float64{}
		for _, z := range all {
			found[z.Member.(string)] = z.Score
		}
		return found
	}
	c := contents{
		lock.Val(), number.Val(), resized.Val(), queue.Val(), scores(tombstones.Val()), scores(permits.Val()), scores(
			heartbeats.Val()), holders.Val(),
		map[string]time.Duration{},
	}
	for name, d := range left {
		if d.Val() != -2 {
			c.Left[name] = d.Val()
		}
	}
	return c
}

// last is the last number that is recorded; 0 if there is none.
func (c contents) last() uint64 {
	_, rest, _ := strings.Cut(c.Number, " ")
	return number(strings.TrimLeft(rest, "0"))
}

// highest is the highest number that is there.
func (c contents) highest() uint64 {
	_, fence, _ := strings.Cut(c.Lock, " ")
	highest := max(c.last(), number(fence), number(c.Holders["fence"]))
	for _, w := range c.Queue {
		highest = max(highest, uint64(w.Score))
	}
	return highest
}

// number is the first number in a value; 0 if there is none.
func number(text string) uint64 {
	first, _, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseUint(first, 10, 64)
	return n
}

// weightOf is the weight in a token.
func weightOf(text string) uint64 {
	t, _ := token.Parse(text)
	return uint64(t.Weight())
}

func (m *machine) setClock(to int64) {
	m.clock = to
	m.do(m.t, "SET", m.namespace+":clock", to)
}

// party returns the one of that name. Its token is of client "c" unless the name says which: "client/name".
func (m *machine) party(name string) *party {
	client, short, ok := strings.Cut(name, "/")
	if !ok {
		client, short = "c", name
	}
	if i := slices.IndexFunc(m.parties, func(p *party) bool { return p.name == short }); i >= 0 {
		return m.parties[i]
	}
	p := &party{name: short, weight: m.usual(short), permits: m.permits}
	p.token = numbered(client, ttl, p.weight, p.permits, len(m.parties)+1)
	m.parties = append(m.parties, p)
	return p
}

// usual is the weight of a party that does not say.
func (m *machine) usual(name string) int {
	if m.name == rwMutex.name && strings.ToUpper(name) == name {
		return tokens.WriterWeight
	}
	return m.weight
}

// numbered returns a token of that kind of lock.
func (k kind) numbered(client string, ttl time.Duration, weight, permits, n int) token.Token {
	if k.name == keyed.name {
		return keyedToken(client, tokens.Terms{TTL: ttl, Weight: weight, Permits: permits, Key: "key", Share: 1}, n)
	}
	return numbered(client, ttl, weight, permits, n)
}

// rested returns the token that holds a lock for the rest of a minimum hold.
func rested(t token.Token) token.Token {
	text := t.Text()
	t, err := token.Parse(text[:len(text)-23] + "1" + text[len(text)-22:])
	if err != nil {
		panic(err)
	}
	return t
}

// numbered returns a token that is the same in every run. permits 0: of a mutex
func numbered(client string, ttl time.Duration, weight, permits, n int) token.Token {
	digits := func(n int64, length int) string { return fmt.Sprintf("%0*s", length, strconv.FormatInt(n, 36)) }
	facts := ""
	if permits > 0 {
		facts = digits(int64(weight), 6) + digits(int64(permits), 6)
	}
	t, err := token.Parse(fmt.Sprintf("%s:2.%s%s0%021dA", client, facts, digits(ttl.Milliseconds(), 7), n))
	if err != nil {
		panic(err)
	}
	return t
}

func (m *machine) lock() script.Lock { return m.kind.lock(m.user, m.namespace) }

// as has a new user with these rights send the steps.
func (m *machine) as(t testing.TB, rules []string) {
	t.Helper()
	user := client(t, redistest.Shared(t).User(m.namespace, rules...))
	m.user = instrumentedBy(user, timed())
}

// endOfText is where the text of a script's error ends.
var endOfText = regexp.MustCompile(` script: `)

// denied says that the user lacks a right that a script needs.
const denied = "can't run this command"

// refusals are what an error of the server or of a script says, besides the keys.
var refusals = regexp.MustCompile(`OOM|NOPERM|` + denied + `|ACL failure in|the \w+ (is|has) [a-z ]*[a-z]`)

// do does a step, twice unless it has reached a bound: the second time changes nothing.
func do[T any](m *machine, call func() (T, error)) T {
	m.t.Helper()
	got, err := call()
	if err != nil {
		m.refusal = refusals.FindString(endOfText.Split(err.Error(), 2)[0])
		if m.refusal == "ACL failure in" { // a script: Redis 7.4 and Valkey
			m.refusal = denied
		}
		require.NotEmpty(m.t, m.refusal, "%v", err)
		require.True(m.t, m.foreign || strings.Contains(err.Error(), m.namespace+":{name}:"), "%v", err)
	}
	first := m.contents()
	m.learn(first)
	if m.once || err != nil || reachedBound(got) {
		return got
	}
	_, err = call()
	require.NoError(m.t, err)
	after := m.contents()
	first.Left, after.Left = nil, nil
	require.Equal(m.t, first, after, "the second time has changed something")
	return got
}

// learn checks that each key expires that has to, and has each party know its ticket and its fence.
func (m *machine) learn(c contents) {
	m.t.Helper()
	for name, left := range c.Left {
		require.True(m.t, left >= 0 != (name == "resized") || m.foreign, "%s lasts for %v", name, left)
	}
	for _, p := range m.parties {
		if fence := number(c.Holders[p.token.Text()]); fence > 0 {
			p.fence = fence
		}
		if owner, fence, _ := strings.Cut(c.Lock, " "); owner == p.token.Text() {
			p.fence = number(fence)
		}
		for _, w := range c.Queue {
			if w.Member == p.token.Text() {
				p.ticket = uint64(w.Score)
			}
		}
	}
}

// reachedBound reports whether a script has reached a bound before it had served the queue.
func reachedBound(reply any) bool {
	switch r := reply.(type) {
	case script.Reply:
		return r.More || r.Outcome == script.Queued && r.RetryAfter == 0
	case script.Handoff:
		return r.More
	case script.HeartbeatReply:
		return r.RetryAfter == 0
	}
	return false
}

// after lets time pass in which clients keep the queue's clock up to date.
func (m *machine) after(d time.Duration) {
	m.t.Helper()
	if text, err := m.rdb.Get(ctx, m.keys["number"]).Result(); err == nil {
		n := fields(text)
		m.do(m.t, "SET", m.keys["number"], fmt.Sprint("2 ", n[1], " ", n[2]+d.Microseconds(), " ", n[3]+d.Microseconds()),
			"KEEPTTL")
	}
	m.stall(d)
}

// fields are the numbers in a text, as far as they are some; there are at least five.
func fields(text string) (n []int64) {
	for field := range strings.FieldsSeq(text + " 0 0 0 0 0") {
		n = append(n, int64(number(field)))
	}
	return n
}

// stall lets time pass in which nobody asks; a negative time steps the clock back. An expiry is a moment and does not
// move.
func (m *machine) stall(d time.Duration) {
	m.t.Helper()
	for _, key := range m.keys {
		if left := m.rdb.PTTL(ctx, key).Val(); left >= 0 {
			m.do(m.t, "PEXPIRE", key, (left - d).Milliseconds())
		}
	}
	m.setClock(m.clock + d.Microseconds())
}

// lose loses all data.
func (m *machine) lose() {
	m.t.Helper()
	require.NoError(m.t, m.rdb.Del(ctx, slices.Collect(maps.Values(m.keys))...).Err())
}

// evict loses one key.
func (m *machine) evict(key string) {
	m.t.Helper()
	require.Equal(m.t, int64(1), m.do(m.t, "DEL", m.keys[key]))
}

// setNumber sets the last number.
func (m *machine) setNumber(to uint64) {
	m.t.Helper()
	n := fields(m.contents().Number)
	m.do(m.t, "SET", m.keys["number"], fmt.Sprint("2 ", to, " ", n[2], " ", n[3]), "PX", day.Milliseconds())
}

// drop drops a waiter that has not expired.
func (m *machine) drop(p *party) {
	m.t.Helper()
	m.do(m.t, "ZREM", m.keys["queue"], p.token.Text())
	m.do(m.t, "ZREM", m.keys["heartbeats"], p.token.Text())
}

// A scenario is a list of steps, in lines or separated by semicolons. After an arrow stands what a step gives. A
// machine does them to the lock, twice each. The steps that send a verb are in the table of verbs; the others are:
//
//	after 5m; stall 5m   time passes, with the queue's clock or without
//	clock -5m            the server's clock steps
//	lose; evict number   all data are lost; one key is
//	raise 5m; raise 7    the last number becomes one of a clock that is so far ahead; or that number
//	set lock x           a key is somebody else's
//	full; full no        the server has no memory left, or has
//	  -> OOM, NOPERM, …: why it was refused
//	once                 what follows is sent once
//	drop a               a waiter is dropped, though it has not expired; forge a 5m: it has a ticket of then
//	waiters 9; holders 9 so many are added, holders of one permit each; expired: they have expired
//	keys                 -> those that exist
//	count                -> how many hold | how many wait
//	fence; ticket a      -> now, now+1: µs of the server's time
//
// In a rwmutex, a capital letter is a writer.
type scenario struct{ name, steps string }

// oneHolder are the kinds of which one party at a time holds all.
var oneHolder = []kind{mutex, semaphore(1), writers}

// scenarios runs scenarios for kinds of locks.
func scenarios(t *testing.T, kinds []kind, all ...scenario) {
	t.Helper()
	for _, s := range all {
		for _, k := range kinds {
			t.Run(s.name+"/"+k.name, func(t *testing.T) {
				t.Parallel()
				newMachine(t, real(t), k).run(s.steps)
			})
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
}

// options are what a step says after its verb.
type options struct {
	who       []*party
	p         *party // the first of them
	number    int    // -1: none
	duration  time.Duration
	tombstone bool
	seen, by  *party
	kept      time.Duration
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
		case "kept":
			o.kept = duration
		case "max":
			o.max = number
		case "seen":
			o.seen = m.party(value)
		case "by":
			o.by = m.weighed(value)
			if !o.by.asked && !strings.Contains(value, "*") {
				o.by.weight = o.who[0].weight
			}
		case "of":
			o.who[len(o.who)-1].permits = number
		default:
			i--
			if number, err := strconv.Atoi(word); err == nil {
				o.number = number
			} else if duration, err := time.ParseDuration(word); err == nil {
				o.duration = duration
			} else if word == "try" || word == "ticket" || word == "tombstone" {
				o.try, o.ticket, o.tombstone = o.try || word == "try", o.ticket || word == "ticket", o.tombstone ||
					word == "tombstone"
			} else if o.word = word; len(word) == 1 || strings.ContainsAny(word, "*/0123456789") {
				o.who = append(o.who, m.weighed(word))
			}
		}
	}
	if len(o.who) > 0 {
		o.p = o.who[0]
	}
	return o
}

// weighed returns the party of a word, which perhaps says how many permits it asks for.
func (m *machine) weighed(word string) *party {
	name, weight, heavy := strings.Cut(word, "*")
	p := m.party(name)
	if heavy {
		p.weight, _ = strconv.Atoi(weight)
	}
	return p
}

// fence is that of the party that the step says, or of its own.
func (o options) fence() uint64 { return cmp.Or(o.seen, o.p).fence }

// step does a step, and returns what it gives in words. What only some scenarios look at is there if they want it.
func (m *machine) step(word string, words []string, want string) string {
	m.t.Helper()
	o := m.options(words)
	switch word {
	case "set":
		m.foreign = true
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
		m.setNumber(uint64(to))
	case "once":
		m.once = true
	case "drop":
		m.drop(o.p)
	case "forge":
		o.p.ticket = uint64(m.clock + o.duration.Microseconds())
	case "waiters", "holders":
		left := map[bool]time.Duration{true: -time.Second, false: time.Hour}[o.word == "expired"]
		map[string]func(int, time.Duration){"waiters": m.addWaiters, "holders": m.addHolders}[word](o.number, left)
	case "keys":
		return strings.Join(slices.Sorted(maps.Keys(m.contents().Left)), " ")
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

func (m *machine) reply(r script.Reply, want string) string {
	words := map[script.Outcome]string{
		script.Granted: "granted", script.Queued: "queued", script.Busy: "busy", script.Full: "full",
		script.Resized: "resized",
	}[r.Outcome]
	if n := r.Position + r.Permits; n > 0 {
		words += " " + strconv.Itoa(n)
	}
	if strings.Contains(want, " by ") {
		words += " by " + m.nameOf(r.Holder, 0)
	}
	return words + map[bool]string{true: " more"}[r.More] + retry(r.RetryAfter, want)
}

func (m *machine) became(h script.Handoff, want string) string {
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
	return cmp.Or(map[string]string{"": "nobody"}[text], text)
}
