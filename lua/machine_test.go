package lua_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/model"
	"github.com/fairlock/fairlock-go/lua"
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

// server is a redis-server, or one in memory whose clock stands still until the test sets it.
type server struct {
	rdb       *redis.Client
	mini      *miniredis.Miniredis // nil: redis-server
	namespace string
	heard     <-chan *redis.Message // notifications to all clients
}

// real is a namespace of the shared redis-server, memory a server in memory.
func real(t testing.TB) *server {
	t.Helper()
	return newReal(t, &shared)
}

func newReal(t testing.TB, s *redisServer) *server {
	t.Helper()
	started, namespace := s.get(t)
	o := started.Options()
	o.ReadTimeout = time.Minute // go-redis sends again what a slow machine has not answered
	return newServer(t, &server{rdb: client(t, o), namespace: namespace})
}

func memory(t testing.TB) *server {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return newServer(t, &server{mini: m, namespace: "ns", rdb: client(t, &redis.Options{
		Dialer:      func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		ReadTimeout: time.Minute,
	})})
}

func newServer(t testing.TB, s *server) *server {
	t.Helper()
	sub := s.rdb.PSubscribe(ctx, lua.NotificationChannel(s.namespace, "*"))
	t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	s.heard = sub.Channel(redis.WithChannelSize(1000), redis.WithChannelHealthCheckInterval(0))
	return s
}

// do sends a command of the test's own.
func (s *server) do(t require.TestingT, args ...any) any {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	reply, err := s.rdb.Do(ctx, args...).Result()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err, "%v", args)
	}
	return reply
}

// notifications returns those that came since the last call, in order. It sends one more to know where they end.
func (s *server) notifications(t require.TestingT) (all []lua.Grant) {
	s.do(t, "PUBLISH", lua.NotificationChannel(s.namespace, "test"), "end")
	for m := range s.heard {
		if m.Payload == "end" {
			break
		}
		g, err := lua.ParseNotification(m.Payload)
		require.NoError(t, err)
		require.Equal(t, lua.NotificationChannel(s.namespace, g.Token.Client()), m.Channel)
		all = append(all, g)
	}
	return all
}

// kind is a kind of lock, with what a party asks for that does not say.
type kind struct {
	name             string
	weight, capacity int
	open             func(rdb lua.Scripter, namespace string, capacity int) lua.Lock
}

func openMutex(rdb lua.Scripter, namespace string, _ int) lua.Lock {
	return lua.Mutex(rdb, namespace, "name")
}

func openSemaphore(rdb lua.Scripter, namespace string, capacity int) lua.Lock {
	return lua.Semaphore(rdb, namespace, "name", capacity)
}

func openRWMutex(rdb lua.Scripter, namespace string, _ int) lua.Lock {
	return lua.RWMutex(rdb, namespace, "name")
}

var (
	mutex   = kind{"mutex", 1, 1, openMutex}
	rwMutex = kind{"rwmutex", 1, lua.WriterWeight, openRWMutex}
	writers = kind{"writers", lua.WriterWeight, lua.WriterWeight, openRWMutex}
)

func semaphore(capacity int) kind {
	return kind{"semaphore of " + strconv.Itoa(capacity), 1, capacity, openSemaphore}
}

// checker is a *testing.T or a *rapid.T.
type checker interface {
	require.TestingT
	Helper()
	Logf(format string, args ...any)
}

// both is a number as the model has it and as Redis has it.
type both struct{ model, redis uint64 }

// party is one acquisition. Whenever it asks, it asks for the same.
type party struct {
	name             string
	token            token.Token
	weight, capacity int
	ticket, fence    both // the last that it was told
	try, left        bool // of random steps: it does not queue; it has released or left
}

// machine does steps to a lock and to its model, and compares the replies, the notifications and what is in Redis.
//
// In memory the clock stands still between two steps. So everything is compared to the µs: fences, tickets, expiries, and
// what comes just before, at and after them. On redis-server time passes by a shift of all that expires. Fences and
// tickets are compared by their order there, and times within a minute.
//
// Each step is sent twice, unless once is set: the second time must change nothing, and give an answer from which the
// same follows.
type machine struct {
	*server
	kind
	t               checker
	keys            map[string]string // by the end of their names
	model           model.Lock
	clock, ahead    int64 // µs; how far it is ahead of redis-server's
	slack           int64 // µs by which times may be apart
	parties         []*party
	fences, tickets []both // all that were ever seen
	longest         int64  // until when the keys may last that expire with holders and waiters
	forgotten       map[string]bool
	more            bool // the step has reached a bound
	admitted        bool // the step has admitted whom it could
	once            bool
	blind           bool         // the model does not know what was lost, or put there
	foreign         bool         // a key is not ours
	user            lua.Scripter // who does the steps
	mute            bool         // it may not send notifications
	refusal         string       // why the step was refused
}

func newMachine(t checker, s *server, k kind) *machine {
	m := &machine{
		server: s, kind: k, t: t, user: s.rdb, keys: map[string]string{}, forgotten: map[string]bool{}, slack: time.Minute.Microseconds(),
	}
	names, _ := k.open(nil, s.namespace, k.capacity).Keys()
	for _, name := range names {
		m.keys[name[strings.LastIndexByte(name, ':')+1:]] = name
	}
	if m.mini != nil {
		m.slack = time.Millisecond.Microseconds()
		m.setClock(1_700_000_000_000_000) // the same in every run
	}
	m.lose()
	return m
}

func (m *machine) setClock(to int64) {
	m.clock = to
	m.mini.SetTime(time.UnixMicro(to))
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
	p := &party{name: short, token: numbered(client, len(m.parties)+1), weight: m.usual(short), capacity: m.capacity}
	m.parties = append(m.parties, p)
	return p
}

// usual is the weight of a party that does not say.
func (m *machine) usual(name string) int {
	if m.name == rwMutex.name && strings.ToUpper(name) == name {
		return lua.WriterWeight
	}
	return m.weight
}

// numbered returns a token that is the same in every run.
func numbered(client string, n int) token.Token {
	t, err := token.Parse(fmt.Sprintf("%s:%021dA", client, n))
	if err != nil {
		panic(err)
	}
	return t
}

// begin begins every step: it says what is done, and brings the model to the present.
func (m *machine) begin(format string, args ...any) {
	m.t.Helper()
	if m.mini == nil {
		now, err := m.rdb.Time(ctx).Result()
		require.NoError(m.t, err)
		m.clock = now.UnixMicro() + m.ahead
	}
	m.t.Logf("%d: "+format, append([]any{m.clock}, args...)...)
	m.more, m.admitted = false, false
	m.model.Advance(m.clock)
	if from, by := m.model.Forgets(); !m.blind && len(m.model.Waiters) > 0 && m.clock >= from {
		if m.rdb.Exists(ctx, m.keys["queue"]).Val() == 1 {
			require.LessOrEqual(m.t, m.clock, by, "Redis forgets the queue by then")
			return
		}
		m.forget()
	}
}

// forget has the model forget the queue.
func (m *machine) forget() {
	for _, w := range m.model.Waiters {
		m.forgotten[w.Token], m.forgotten[short(w.Token)] = true, true
	}
	m.model.Forget()
}

func (m *machine) waits(p *party) bool {
	return slices.ContainsFunc(m.model.Waiters, func(w model.Waiter) bool { return w.Token == p.token.Text() })
}

func (m *machine) holds(p *party) bool {
	return slices.ContainsFunc(m.model.Holders, func(h model.Holder) bool { return h.Token == p.token.Text() })
}

func short(text string) string { return text[max(len(text)-14, 0):] }

func (m *machine) lock(p *party) lua.Lock { return m.open(m.user, m.namespace, p.capacity) }

func (m *machine) any() lua.Lock { return m.open(m.user, m.namespace, m.capacity) }

// as gives the steps to come to a new user with these rights.
func (m *machine) as(t testing.TB, rules []string) {
	t.Helper()
	m.do(t, append([]any{"ACL", "SETUSER", m.namespace, "reset", "on", ">secret"}, anys(rules)...)...)
	o := *m.rdb.Options()
	o.Username, o.Password = m.namespace, "secret"
	m.user, m.mute = client(t, &o), slices.Contains(rules, "resetchannels")
}

// refusals are what an error of the server says, besides the keys.
var refusals = regexp.MustCompile(`OOM|NOPERM|can't run this command|the fence is not a number`)

// do does a step: to the lock, to the model and, unless it has reached a bound, to the lock again.
func do[T any](m *machine, call func() (T, error), compare, again func(T)) T {
	m.t.Helper()
	got, err := call()
	if err != nil {
		m.refusal = refusals.FindString(err.Error())
		require.NotEmpty(m.t, m.refusal, "%v", err)
		require.True(m.t, m.foreign || strings.Contains(err.Error(), m.namespace+":{name}:"), "%v", err)
	} else if !m.blind {
		compare(got)
	}
	first := m.check()
	if m.once || m.more || err != nil {
		return got
	}
	second, err := call()
	require.NoError(m.t, err)
	if !m.blind {
		again(second)
	}
	require.Equal(m.t, m.timeless(first), m.timeless(m.check()), "the second time has changed something")
	return got
}

// lasting notes how long keys may last after a step.
func (m *machine) lasting(d ...time.Duration) {
	m.longest = max(m.longest, m.clock+slices.Max(d).Microseconds()+950_000)
}

// request is how a party asks.
type request struct {
	ttl, wait   time.Duration
	max         int
	try, ticket bool
}

var outcomes = map[model.Outcome]lua.Outcome{
	model.Granted: lua.Granted, model.Queued: lua.Queued, model.Busy: lua.Busy, model.Full: lua.Full,
	model.CapacityDiffers: lua.CapacityDiffers,
}

func (m *machine) acquire(p *party, r request) lua.Reply {
	m.t.Helper()
	m.begin("%s acquires %d of %d: %+v", p.name, p.weight, p.capacity, r)
	r.ttl, r.wait = cmp.Or(r.ttl, ttl), cmp.Or(r.wait, waiterTTL)
	m.lasting(r.ttl, r.wait)
	ask := lua.Request{Token: p.token, TTL: r.ttl, WaiterTTL: r.wait, MaxWaiters: r.max, Try: r.try, Weight: p.weight}
	same := model.Request{
		Token: p.token.Text(), TTL: r.ttl.Microseconds(), WaiterTTL: r.wait.Microseconds(), MaxWaiters: r.max,
		Weight: p.weight, Capacity: p.capacity,
	}
	if r.ticket {
		ask.Ticket, same.Ticket = lua.Ticket(p.ticket.redis), p.ticket.model
	}
	if r.try {
		same.WaiterTTL = 0
	}
	var first lua.Reply
	return do(m, func() (lua.Reply, error) { return m.lock(p).Acquire(ctx, ask) }, func(got lua.Reply) {
		m.admitted = !m.holds(p) && m.model.Tombstones[same.Token] <= m.clock
		isNew := !m.waits(p) && !r.ticket
		want := m.model.Acquire(m.clock, same)
		m.more = want.Queue == model.More
		first = lua.Reply{
			Outcome: outcomes[want.Outcome], Position: want.Position, Capacity: want.Capacity, Holder: m.holderOf(want),
			More: m.more && want.Outcome != model.Queued, Fence: got.Fence, Ticket: got.Ticket, RetryAfter: got.RetryAfter,
		}
		require.Equal(m.t, first, got)
		m.same(&m.fences, want.Fence, got.Fence)
		m.same(&m.tickets, want.Ticket, uint64(got.Ticket))
		switch want.Outcome {
		case model.Granted:
			p.fence = both{want.Fence, got.Fence}
		case model.Queued:
			p.ticket = both{want.Ticket, uint64(got.Ticket)}
			m.helps(want.RetryAfter, got.RetryAfter)
			require.True(m.t, !isNew || uint64(got.Ticket) > got.Fence, "a new ticket is above the last fence")
		}
	}, func(second lua.Reply) {
		if first.More, second.More = false, false; m.mini == nil {
			second.RetryAfter = first.RetryAfter
		}
		require.Equal(m.t, first, second, "the second reply")
	})
}

// holderOf returns the holder that a reply has to name. On redis-server leases can end in another order than in the model:
// its clock has moved between their grants.
func (m *machine) holderOf(want model.Reply) string {
	if m.mini != nil || len(m.model.Holders) < 2 || want.Holder == "" {
		return want.Holder
	}
	return m.rdb.ZRange(ctx, m.keys["permits"], 0, 0).Val()[0] // check compares when its lease ends
}

// helps checks after how long the server says that another request can help.
func (m *machine) helps(want int64, got time.Duration) {
	m.t.Helper()
	switch {
	case want < 0:
		require.Negative(m.t, got)
	case m.more:
		require.Zero(m.t, got)
	case m.mini != nil:
		require.Greater(m.t, got.Microseconds(), want, "an earlier request cannot help")
		require.LessOrEqual(m.t, got.Microseconds(), want+2000)
	default:
		m.near(want, got.Microseconds(), "retry after")
	}
}

func (m *machine) release(p *party) lua.Handoff {
	m.t.Helper()
	m.begin("%s releases", p.name)
	return m.handoff(func() (lua.Handoff, error) { return m.lock(p).Release(ctx, p.token, ttl) },
		func() model.Handoff { return m.model.Release(m.clock, p.token.Text(), ttl.Microseconds()) })
}

func (m *machine) leave(p *party, ttl, tombstone time.Duration) lua.Handoff {
	m.t.Helper()
	m.begin("%s leaves, tombstone %v", p.name, tombstone)
	m.lasting(tombstone)
	h := m.handoff(func() (lua.Handoff, error) { return m.lock(p).Leave(ctx, p.token, ttl, tombstone) }, func() model.Handoff {
		return m.model.Leave(m.clock, p.token.Text(), ttl.Microseconds(), tombstone.Microseconds())
	})
	for name, at := range m.contents().Alive {
		require.True(m.t, tombstone == 0 || at > 0 || -int64(at)+m.ahead > m.clock, "the tombstone of %s is over", name)
	}
	return h
}

// forceRelease is told the fence that its caller has seen.
func (m *machine) forceRelease(seen both) lua.Handoff {
	m.t.Helper()
	m.begin("force release, seen %d", seen.model)
	return m.handoff(func() (lua.Handoff, error) { return m.any().ForceRelease(ctx, ttl, seen.redis) },
		func() model.Handoff { return m.model.ForceRelease(m.clock, ttl.Microseconds(), seen.model) })
}

func (m *machine) handoff(call func() (lua.Handoff, error), same func() model.Handoff) lua.Handoff {
	m.t.Helper()
	m.lasting(ttl)
	return do(m, call, func(got lua.Handoff) {
		want := same()
		m.more, m.admitted = want.Queue == model.More, true
		require.Equal(m.t, lua.Handoff{Released: want.Released, More: m.more, Grants: got.Grants}, got)
		m.granted(want.Grants, got.Grants)
	}, func(second lua.Handoff) {
		require.Equal(m.t, lua.Handoff{}, second, "the second time there is nothing to release")
	})
}

// granted compares grants to waiters, in their order.
func (m *machine) granted(want []model.Grant, got []lua.Grant) {
	m.t.Helper()
	require.Len(m.t, got, len(want))
	for i, g := range got {
		require.Equal(m.t, want[i].Token, g.Token.Text(), "granted, in order")
		m.same(&m.fences, want[i].Fence, g.Fence)
		m.near(want[i].Given, g.Given.Microseconds(), "given")
		for _, p := range m.parties {
			if p.token == g.Token {
				p.fence = both{want[i].Fence, g.Fence}
			}
		}
	}
}

func (m *machine) renew(p *party, ttl time.Duration) bool {
	m.t.Helper()
	m.begin("%s renews for %v", p.name, ttl)
	m.lasting(ttl)
	var first lua.Renewal
	return do(m, func() (lua.Renewal, error) {
		fence, held, err := m.lock(p).Renew(ctx, p.token, ttl, p.fence.redis)
		return lua.Renewal{Fence: fence, Held: held}, err
	}, func(got lua.Renewal) {
		first = got
		want := m.model.Renew(m.clock, p.token.Text(), ttl.Microseconds())
		require.Equal(m.t, want != 0, got.Held)
		m.same(&m.fences, want, got.Fence)
	}, func(second lua.Renewal) { require.Equal(m.t, first, second) }).Held
}

var waiterStates = map[lua.WaiterState]model.WaiterState{
	lua.NotQueued: model.NotQueued, lua.StillQueued: model.StillQueued, lua.Holding: model.Holding, lua.NowGranted: model.NowGranted,
}

func (m *machine) heartbeat(ttl, wait time.Duration, who ...*party) lua.HeartbeatReply {
	m.t.Helper()
	tokens, texts := make([]token.Token, len(who)), make([]string, len(who))
	for i, p := range who {
		tokens[i], texts[i] = p.token, p.token.Text()
	}
	m.begin("heartbeat of %v, ttl %v, waiter TTL %v", texts, ttl, wait)
	m.lasting(ttl, wait)
	var first lua.HeartbeatReply
	return do(m, func() (lua.HeartbeatReply, error) { return m.any().Heartbeat(ctx, ttl, wait, tokens) }, func(got lua.HeartbeatReply) {
		m.same(&m.fences, m.model.Fence, got.Fence) // the last one before it
		want := m.model.Heartbeat(m.clock, ttl.Microseconds(), wait.Microseconds(), texts)
		m.more, m.admitted = want.RetryAfter == 0, true
		require.Equal(m.t, want.First, got.First, "the first of them")
		m.helps(want.RetryAfter, got.RetryAfter)
		first = got
		first.States = slices.Clone(got.States)
		for i, state := range got.States {
			require.Equal(m.t, want.States[i], waiterStates[state], texts[i])
			if state == lua.NowGranted {
				first.States[i] = lua.Holding
			}
		}
	}, func(second lua.HeartbeatReply) {
		m.same(&m.fences, m.model.Fence, second.Fence)
		if first.Fence = second.Fence; m.mini == nil {
			first.RetryAfter = second.RetryAfter
		}
		require.Equal(m.t, first, second, "the second reply")
	})
}

func (m *machine) inspect(limit int) lua.Snapshot {
	m.t.Helper()
	m.begin("inspect %d", limit)
	return do(m, func() (lua.Snapshot, error) { return m.any().Inspect(ctx, limit) }, func(got lua.Snapshot) {
		m.near(m.clock, got.Now.UnixMicro()+m.ahead, "now")
		m.same(&m.fences, m.model.Fence, got.Fence)
		require.Equal(m.t, []int{m.model.Used(), len(m.model.Waiters)}, []int{got.Used, got.Waiting}, "used, waiting")
		require.True(m.t, !m.model.InUse() || got.Capacity == m.model.Capacity, "capacity %d", got.Capacity)
		require.Len(m.t, got.Holders, min(limit, len(m.model.Holders)))
		for _, h := range got.Holders {
			at := slices.IndexFunc(m.model.Holders, func(want model.Holder) bool { return want.Token == h.Token })
			require.NotEqual(m.t, -1, at, "%s holds nothing", h.Token)
			want := m.model.Holders[at]
			require.Equal(m.t, want.Weight, h.Weight, h.Token)
			m.near(want.Expires-m.clock, h.Left.Microseconds(), "what is left to "+h.Token)
			if want.Token != model.Quarantined {
				m.same(&m.fences, want.Fence, h.Fence)
			}
		}
		require.Len(m.t, got.Waiters, min(limit, len(m.model.Waiters)))
		for i, w := range got.Waiters {
			want := m.model.Waiters[i]
			require.Equal(m.t, lua.Waiter{Token: want.Token, Weight: want.Weight, Ticket: w.Ticket, Expires: w.Expires}, w)
			m.same(&m.tickets, want.Ticket, uint64(w.Ticket))
			m.expires(w.Token, want.Expires, w.Expires.UnixMicro())
		}
	}, func(lua.Snapshot) {})
}

// expires checks when a waiter expires. Of one that has expired, alive may have ended before the queue.
func (m *machine) expires(who string, want, got int64) {
	m.t.Helper()
	if want > m.clock {
		m.near(want, got+m.ahead, "when "+who+" expires")
	} else {
		require.LessOrEqual(m.t, got+m.ahead, m.clock, "%s has expired", who)
	}
}

// pass shifts what expires, as if time had passed.
var pass = redis.NewScript(`
	for _, key in ipairs(KEYS) do
		if string.find(key, ':alive$') or string.find(key, ':permits$') then
			local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
			for i = 1, #all, 2 do
				local at = tonumber(all[i + 1])
				at = at > 0 and at - ARGV[1] * 1000 or at + ARGV[1] * 1000
				redis.call('ZADD', key, string.format('%.0f', at), all[i])
			end
		end
		local left = redis.call('PTTL', key)
		if left > 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
	end`)

// after lets time pass.
func (m *machine) after(d time.Duration) {
	m.t.Helper()
	if m.mini != nil {
		m.setClock(m.clock + d.Microseconds())
	} else {
		m.ahead += d.Microseconds()
		err := pass.Run(ctx, m.rdb, slices.Collect(maps.Values(m.keys)), d.Milliseconds()).Err()
		require.ErrorIs(m.t, err, redis.Nil)
	}
	m.begin("%v have passed", d)
	m.check()
}

// stepClock sets the clock of a server in memory, forward or back. As in Redis, an expiry is a moment and does not move.
func (m *machine) stepClock(d time.Duration) {
	m.t.Helper()
	for _, key := range m.keys {
		if left := m.rdb.PTTL(ctx, key).Val(); left > 0 {
			m.mini.SetTTL(key, left-min(d, 0))
		}
	}
	m.setClock(m.clock + d.Microseconds())
	m.begin("the clock steps by %v", d)
}

// lose loses all data.
func (m *machine) lose() {
	m.t.Helper()
	m.begin("data lost")
	m.do(m.t, append([]any{"DEL"}, anys(slices.Collect(maps.Values(m.keys)))...)...)
	m.model = model.Lock{}
}

func anys(texts []string) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}

// evict loses one key.
func (m *machine) evict(key string) {
	m.t.Helper()
	m.begin("%s is lost", key)
	require.Equal(m.t, int64(1), m.do(m.t, "DEL", m.keys[key]))
	switch key {
	case "fence":
		m.model.Fence = 0
	case "queue":
		m.forget()
	case "alive":
		m.model.Tombstones = nil
		for i := range m.model.Waiters {
			m.model.Waiters[i].Expires = 0
		}
	case "lock", "permits":
		m.model.Holders = nil
	default:
		m.blind = true
	}
}

// raise sets the last fence to a number, or to what a clock has given that was so far ahead.
func (m *machine) raise(number int, ahead time.Duration) {
	m.t.Helper()
	m.begin("the last fence is %d, or ahead by %v", number, ahead)
	to := both{uint64(number), uint64(number)}
	if number < 0 {
		to = both{uint64(m.clock + ahead.Microseconds()), uint64(m.clock - m.ahead + ahead.Microseconds())}
	}
	m.do(m.t, "SET", m.keys["fence"], to.redis, "PX", day.Milliseconds())
	m.model.Fence, m.model.FenceUntil = to.model, m.clock+day.Microseconds()
	for i := range m.model.Holders {
		if m.keys["lock"] != "" { // the last fence is that of the owner
			m.model.Holders[i].Fence = to.model
		}
	}
	m.check()
}

// drop drops a waiter that has not expired.
func (m *machine) drop(p *party) {
	m.t.Helper()
	m.begin("%s is dropped", p.name)
	m.do(m.t, "ZREM", m.keys["queue"], p.token.Text())
	m.do(m.t, "ZREM", m.keys["alive"], short(p.token.Text()))
	m.do(m.t, "HDEL", m.keys["wants"], p.token.Text())
	m.model.Waiters = slices.DeleteFunc(m.model.Waiters, func(w model.Waiter) bool { return w.Token == p.token.Text() })
	if len(m.model.Waiters) == 0 {
		m.model.Forget()
	}
}

// last is the last fence.
func (m *machine) last() both {
	m.t.Helper()
	m.begin("the last fence")
	last, _ := m.rdb.Get(ctx, m.keys["fence"]).Uint64()
	return both{m.model.Fence, last}
}

// same compares a number that the model and Redis have each for itself: the same two always go together, and in the same
// order; in memory they are equal.
func (m *machine) same(seen *[]both, want, got uint64) {
	m.t.Helper()
	if m.mini != nil || want == 0 {
		require.Equal(m.t, want, got)
		return
	}
	at, known := slices.BinarySearchFunc(*seen, want, func(b both, want uint64) int { return cmp.Compare(b.model, want) })
	if known {
		require.Equal(m.t, (*seen)[at].redis, got, "it does not change")
		return
	}
	if at > 0 {
		require.Greater(m.t, got, (*seen)[at-1].redis, "it rises")
	}
	if at < len(*seen) {
		require.Less(m.t, got, (*seen)[at].redis, "it rises")
	}
	*seen = slices.Insert(*seen, at, both{want, got})
}

// near compares two times, or durations, in µs.
func (m *machine) near(want, got int64, what string) {
	m.t.Helper()
	require.InDelta(m.t, 0, want-got, float64(m.slack), what)
}
