package fairlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/machine"
)

// scenarios runs the scenarios of a file in testdata/scenarios, each in its own bubble. Each begins with a comment.
// After each line of steps stands what has happened until everything is idle: when, to which call or client, and what.
// -update writes that anew. Steps of one line are separated by semicolons:
//
//	client a ttl=2s waiter=3s    how client a is made, before it is used. read=1s once deadlines password=: options of
//	                             go-redis. trace log sends dials reloads: what is told of it. clock: it has a clock of its
//	                             own. alone: it sends no pipelines. maxoutage=5s max=2 subscribed
//	1 = a.Lock x ttl=1m          a call by the method of a lock. x is a mutex, rw:x a read-write lock, sem:x a semaphore
//	                             of 3 permits. under=2: its ctx is of lease 2; timeout=1s: of ctx; maxwait=,
//	                             maxoutage=, minhold=, max=. a.DoAll x,y locks both
//	                             key10:A is key A of a keyed semaphore of 10 permits; limit= and line= are those of A
//	1-3 = a.Lock x               three calls
//	1.Unlock; 1.cancel           a method of lease 1; the ctx of call 1 ends
//	1 = a.Do x; 1.return; 1.look a function that Do calls returns, as it does when its ctx ends; whether that has
//	2 = b.Resume x 1             with the handle of lease 1
//	a.Cut; a.Ping; a.Pause       a method of a client, of its link or of its clock. a.Refuse renew OOM: the reply to renewals
//	redis.Stop                   a method of the server
//	x.HoldAs web; x.State        a method of fairlocktest.Lock, or of admin.Client
//	wait 5s; untimed             time passes; when something happens is not told any more, because it is not the same always
func scenarios(t *testing.T, name string) {
	t.Helper()
	file := "scenarios/" + name + ".txt"
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n\n")
	t.Run("", func(t *testing.T) {
		for i, text := range all {
			title, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
			t.Run(title, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *fairlocktest.Server) {
					sc := &scenario{t: t, server: s, begin: time.Now(), replica: replica{s: s},
						actors: map[string]*actor{}, calls: map[string]*scenarioCall{}}
					all[i] = sc.run(text)
					assert.True(t, golden.Updating() || text == all[i], "\n%s", all[i])
				})
			})
		}
	})
	golden.Equal(t, file, strings.Join(all, "\n\n")+"\n")
}

// scenario is a server with the clients and calls of a scenario.
type scenario struct {
	t       *testing.T
	server  *fairlocktest.Server
	begin   time.Time
	untimed bool // events have no times
	actors  map[string]*actor
	replica replica

	mu     sync.Mutex
	calls  map[string]*scenarioCall // guarded by mu
	events []event                  // guarded by mu: of the current line
}

// actor is a client of a scenario.
type actor struct {
	*fairlocktest.Client
	clock   machine.Clock // zero: the bubble's
	refuses sync.Map      // the name of a script → the reply to its requests; "": that of Redis
}

// Refuse has the requests of a script fail before they are sent.
func (a *actor) Refuse(verb, text string) { a.refuses.Store(verb, text) }

// unusual is a client of go-redis that can send no pipelines, or that notes when it is to read anew which server of a
// Cluster has which slots.
type (
	alone     struct{ fairlock.Redis }
	reloading struct {
		*redis.Client
		reload func()
	}
)

func (r reloading) ReloadState(context.Context) { r.reload() }

type scenarioCall struct {
	ctx     context.Context
	cancel  func()
	returns chan struct{}   // closed when a function that Do calls is to return
	lease   *fairlock.Lease // nil: it has none
	inner   context.Context // of a function that Do calls
}

// event is what has happened to a call or a client.
type event struct {
	at        time.Duration
	who, what string
}

// run does the steps of a scenario, and returns its text with what has happened.
func (s *scenario) run(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text + "\n") {
		if strings.HasPrefix(line, " ") {
			continue
		}
		out.WriteString(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		for step := range strings.SplitSeq(line, ";") {
			s.step(strings.Fields(step))
			synctest.Wait()
		}
		for _, e := range s.happened() {
			at := e.at.String()
			if s.untimed {
				at = ""
			}
			fmt.Fprintf(&out, "    %-10s %s: %s\n", at, short(strings.Fields(e.who)), e.what)
		}
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (s *scenario) note(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.begin).Round(time.Millisecond)
	if s.untimed {
		at = 0
	}
	s.events = append(s.events, event{at, who, fmt.Sprintf(format, args...)})
}

// happened returns the events of a line. Those of several calls are one if the same has happened at the same time.
func (s *scenario) happened() (all []event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what), cmp.Compare(len(a.who), len(b.who)),
			cmp.Compare(a.who, b.who))
	})
	for _, e := range s.events {
		if last := len(all) - 1; last >= 0 && all[last].at == e.at && all[last].what == e.what {
			all[last].who += " " + e.who
		} else {
			all = append(all, e)
		}
	}
	s.events = nil
	return all
}

// short lists names. Numbers in a row, and equal names, are told as "1-3" and "a (3 times)".
func short(names []string) string {
	var all []string
	for i := 0; i < len(names); {
		n := 1
		first, err := strconv.Atoi(names[i])
		for i+n < len(names) && err == nil && names[i+n] == strconv.Itoa(first+n) {
			n++
		}
		if n > 2 {
			all = append(all, names[i]+"-"+names[i+n-1])
			i += n
			continue
		}
		for n = 1; i+n < len(names) && names[i+n] == names[i]; n++ {
		}
		if i += n; n > 1 {
			all = append(all, fmt.Sprintf("%s (%d times)", names[i-1], n))
		} else {
			all = append(all, names[i-1])
		}
	}
	return strings.Join(all, ", ")
}

func (s *scenario) step(words []string) {
	switch {
	case words[0] == "wait":
		pass(s.duration(words[1]))
	case words[0] == "untimed":
		s.untimed = true
	case words[0] == "client":
		s.client(words[1], words[2:]...)
	case len(words) > 1 && words[1] == "=":
		for id := range numbers(words[0]) {
			s.do(id, words[2], words[3:])
			synctest.Wait()
		}
	default:
		subject, method, _ := strings.Cut(words[0], ".")
		for id := range numbers(subject) {
			s.do("", id+"."+method, words[1:])
			synctest.Wait()
		}
	}
}

// numbers are "1", "2" and "3" for "1-3". Another word is itself.
func numbers(word string) iter.Seq[string] {
	from, to, several := strings.Cut(word, "-")
	first, err := strconv.Atoi(from)
	last, _ := strconv.Atoi(to)
	return func(yield func(string) bool) {
		if err != nil || !several {
			yield(word)
			return
		}
		for n := first; n <= last && yield(strconv.Itoa(n)); n++ {
		}
	}
}

func (s *scenario) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	require.NoError(s.t, err)
	return d
}

// split takes options, such as "ttl=1m", out of words.
func split(words []string) (others []string, options map[string]string) {
	options = map[string]string{}
	for _, word := range words {
		if key, value, ok := strings.Cut(word, "="); ok {
			options[key] = value
		} else {
			others = append(others, word)
		}
	}
	return others, options
}

// client returns a client. The first time, it makes it.
func (s *scenario) client(name string, words ...string) *actor {
	if a := s.actors[name]; a != nil {
		return a
	}
	flags, options := split(words)
	has := func(flag string) bool { return slices.Contains(flags, flag) }
	a, cfg := &actor{}, fairlock.Config{Name: name}
	for key, value := range options {
		switch key {
		case "ttl":
			cfg.TTL = s.duration(value)
		case "waiter":
			cfg.WaiterTTL = s.duration(value)
		case "maxoutage":
			cfg.MaxOutage = s.duration(value)
		case "max":
			cfg.MaxWaiters = s.number(value)
		}
	}
	if has("clock") {
		a.clock = machine.Clock{LocalClock: s.server.LocalClock()}
		cfg.Clock = a.clock
	}
	if has("trace") {
		cfg.Trace = s.trace(name)
	}
	if has("log") {
		cfg.Logger = slog.New(slog.NewTextHandler(told{s, name}, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	}
	a.Client = clientWith(s.t, s.server, cfg, func(o *redis.Options) {
		o.ContextTimeoutEnabled = has("deadlines")
		if has("once") {
			o.MaxRetries, o.ReadTimeout = -1, -1 // it waits for a reply for as long as it takes
		}
		if read, ok := options["read"]; ok {
			o.ReadTimeout = s.duration(read)
		}
		if password, ok := options["password"]; ok {
			o.Username, o.Password = "user", password
		}
	}, func(rdb *redis.Client) fairlock.Redis {
		switch {
		case has("alone"):
			return alone{rdb}
		case has("reloads"):
			return reloading{rdb, func() { s.note(name, "reads the slots anew") }}
		default:
			return rdb
		}
	})
	sent := record(a.Client)
	sent.before = func(_ int, cmd redis.Cmder) error {
		if has("sends") {
			s.note(name, "sends %s", verbOf(cmd))
		}
		if text, _ := a.refuses.Load(verbOf(cmd)); text != nil && text != "" {
			return refusal(text.(string))
		}
		return nil
	}
	if has("dials") {
		sent.dialled = func() { s.note(name, "connects") }
	}
	s.actors[name] = a
	if has("subscribed") {
		listen(s.t, a.Client)
		s.happened()
	}
	return a
}

// told is a log. Its lines are events of the scenario.
type told struct {
	s    *scenario
	name string
}

func (l told) Write(line []byte) (int, error) {
	l.s.note(l.name, "%s", strings.TrimSpace(string(line)))
	return len(line), nil
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// trace makes an event of each callback. Those of acquisitions and leases have the ctx of their caller.
func (s *scenario) trace(name string) *fairlock.Trace {
	return tracing(func(callback string, info any) {
		v := reflect.ValueOf(info)
		event, _ := info.(fairlock.Event)
		detail := ""
		if err, ok := info.(error); ok {
			detail = ": " + err.Error()
		} else if v.IsValid() && callback != "NotificationLost" {
			event = v.FieldByName("Event").Interface().(fairlock.Event)
			if f := v.FieldByName("Err"); f.IsValid() && !f.IsNil() {
				detail = ": " + f.Interface().(error).Error()
			}
			if f := v.FieldByName("Ticket"); f.IsValid() && !f.IsZero() && callback != "Queued" {
				detail = " queued" + detail
			}
			if f := v.FieldByName("Handoff"); f.IsValid() && f.Bool() {
				detail = " handoff"
			}
		}
		if callback != "Subscription" && event.Name != contended {
			assert.NotNil(s.t, event.Ctx.Value(callers{}), "%s has the ctx of its caller", callback)
		}
		s.note(name, "%s%s", callback, detail)
	})
}

// do calls a method, and notes its outcome when it has returned.
func (s *scenario) do(id, what string, args []string) {
	subject, method, _ := strings.Cut(what, ".")
	name := cmp.Or(id, subject)
	args, options := split(args)
	c := s.call(id, options)
	var on []any
	async := true
	switch {
	case subject == "redis":
		on, async = []any{s.server, &s.replica, s.server.Miniredis}, false
	case subject[0] <= '9':
		of := s.call(subject, nil)
		switch method {
		case "cancel":
			of.cancel()
			return
		case "return":
			close(of.returns)
			return
		case "look":
			select {
			case <-of.inner.Done():
				s.note(subject, "%v: %s", of.inner.Err(), described(context.Cause(of.inner)))
			default:
				s.note(subject, "its ctx has not ended")
			}
			return
		}
		if of.lease == nil {
			s.note(name, "has no lease")
			return
		}
		on = []any{of.lease}
	case len(subject) == 1 && subject < "x":
		a := s.client(subject)
		on = []any{a, a.Link, a.clock, a.Redis}
		if len(args) > 0 {
			if l := s.lock(a, args[0], options); reflect.ValueOf(l).MethodByName(method).IsValid() {
				on, args = []any{l}, args[1:]
			}
		}
	default:
		l, _ := s.lockUnderTest(subject)
		on, async = []any{l, operator(s.server)}, false
	}
	for _, o := range on {
		f := reflect.ValueOf(o).MethodByName(method)
		if !f.IsValid() {
			continue
		}
		in := s.arguments(f.Type(), c, name, args, options)
		told := method + ": "
		if id != "" {
			told = ""
		}
		if async {
			go func() { s.outcome(name, told, c, f.Call(in)) }()
		} else {
			s.outcome(name, told, c, f.Call(in))
		}
		return
	}
	require.FailNow(s.t, "no such method: "+what)
}

// call returns the call of that name. The first time, it makes it, with its ctx.
func (s *scenario) call(id string, options map[string]string) *scenarioCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[id]; c != nil && id != "" {
		return c
	}
	c := &scenarioCall{returns: make(chan struct{})}
	ctx := context.WithValue(s.t.Context(), callers{}, id)
	for outer := range strings.FieldsFuncSeq(options["under"], func(r rune) bool { return r == ',' }) {
		lease, cancel := s.calls[strings.TrimSuffix(outer, "!")].lease.Context(ctx)
		s.t.Cleanup(cancel)
		if ctx = lease; strings.HasSuffix(outer, "!") {
			ctx = context.WithoutCancel(ctx) //nolint:fatcontext // the leases are nested
		}
	}
	c.ctx, c.cancel = context.WithTimeout(ctx, s.duration(cmp.Or(options["timeout"], hang.String())))
	s.t.Cleanup(c.cancel)
	s.calls[id] = c
	return c
}

func (s *scenario) number(word string) int {
	n, err := strconv.Atoi(word)
	require.NoError(s.t, err)
	return n
}

// options returns those that all kinds of locks have.
func (s *scenario) options(words map[string]string) (all []fairlock.Option) {
	for key, value := range words {
		switch key {
		case "ttl":
			all = append(all, fairlock.WithTTL(s.duration(value)))
		case "maxwait":
			all = append(all, fairlock.WithMaxWait(s.duration(value)))
		case "maxoutage":
			all = append(all, fairlock.WithMaxOutage(s.duration(value)))
		case "max":
			all = append(all, fairlock.WithMaxWaiters(s.number(value)))
		}
	}
	return all
}

// lock returns a lock of a client.
func (s *scenario) lock(a *actor, word string, options map[string]string) any {
	all := s.options(options)
	var holds []fairlock.HoldOption
	var shared, keys []fairlock.KeyOption
	for key, value := range options {
		switch key {
		case "limit":
			keys = append(keys, fairlock.WithKeyLimit(s.number(value)))
		case "line":
			keys = append(keys, fairlock.WithMaxWaiters(s.number(value)))
		case "minhold":
			holds = append(holds, fairlock.WithMinHold(s.duration(value)))
		}
	}
	for _, o := range all {
		holds, shared = append(holds, o), append(shared, o)
	}
	switch kind, name, permits := lockIn(word); kind {
	case fairlock.KindKeyedSemaphore:
		return a.KeyedSemaphore("keyed", permits, shared...).Key(name, keys...)
	case fairlock.KindRWMutex:
		return a.RWMutex(name, all...)
	case fairlock.KindSemaphore:
		return a.Semaphore(name, permits, holds...)
	default:
		return a.Mutex(name, holds...)
	}
}

func (s *scenario) lockUnderTest(word string) (fairlocktest.Lock, fairlock.ID) {
	kind, name, permits := lockIn(word)
	id := fairlock.ID{Kind: kind, Name: name}
	switch kind {
	case fairlock.KindKeyedSemaphore:
		id.Name = "keyed"
		return s.server.KeyedSemaphore(id.Name, permits).Key(name), id
	case fairlock.KindRWMutex:
		return s.server.RWMutex(name), id
	case fairlock.KindSemaphore:
		return s.server.Semaphore(name, permits), id
	default:
		return s.server.Mutex(name), id
	}
}

// lockIn returns which lock a word means.
func lockIn(word string) (kind fairlock.Kind, name string, permits int) {
	what, name, ok := strings.Cut(word, ":")
	switch {
	case !ok:
		return fairlock.KindMutex, word, 0
	case what == "rw":
		return fairlock.KindRWMutex, name, 0
	case strings.HasPrefix(what, "key"):
		permits, _ = strconv.Atoi(strings.TrimPrefix(what, "key"))
		return fairlock.KindKeyedSemaphore, name, permits
	default:
		permits, _ = strconv.Atoi(strings.TrimPrefix(what, "sem"))
		return fairlock.KindSemaphore, name, cmp.Or(permits, 3)
	}
}

// arguments are those of a call of a method.
func (s *scenario) arguments(
	f reflect.Type, c *scenarioCall, name string, args []string, options map[string]string,
) (in []reflect.Value) {
	next := func() string {
		require.NotEmpty(s.t, args, "%s needs an argument", name)
		word := args[0]
		args = args[1:]
		return word
	}
	for i := range f.NumIn() {
		var value any
		switch t := f.In(i); t {
		case reflect.TypeFor[context.Context]():
			value = c.ctx
		case reflect.TypeFor[fairlock.ID]():
			_, value = s.lockUnderTest(name)
		case reflect.TypeFor[fairlock.Handle]():
			value = s.call(next(), nil).lease.Handle()
		case reflect.TypeFor[time.Duration]():
			value = s.duration(next())
		case reflect.TypeFor[int](), reflect.TypeFor[float64]():
			value = reflect.ValueOf(s.number(next())).Convert(t).Interface()
		case reflect.TypeFor[[]string]():
			value = strings.Split(next(), ",")
		case reflect.TypeFor[[]fairlock.Option]():
			for _, o := range s.options(options) {
				in = append(in, reflect.ValueOf(o))
			}
			continue
		case reflect.TypeFor[string]():
			if value = strings.Join(args, " "); i < f.NumIn()-1 {
				value = next()
			}
		default:
			value = func(ctx context.Context) error { s.work(ctx, c, name); return nil }
		}
		in = append(in, reflect.ValueOf(value))
	}
	return in
}

// work is the function that Do calls.
func (s *scenario) work(ctx context.Context, c *scenarioCall, name string) {
	s.note(name, "runs")
	s.mu.Lock()
	c.lease, c.inner = leaseIn(ctx), ctx
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		s.note(name, "its ctx has ended: %s", described(context.Cause(ctx)))
	case <-c.returns:
	}
}

// outcome notes what a method has returned. If it is a lease, its end will be noted, unless it is unlocked.
func (s *scenario) outcome(name, method string, c *scenarioCall, out []reflect.Value) {
	var words []string
	for _, v := range out {
		switch x := v.Interface().(type) {
		case *fairlock.Lease:
			if x == nil {
				continue
			}
			s.mu.Lock()
			c.lease = x
			s.mu.Unlock()
			words = append(words, "held")
			go func() {
				if <-x.Done(); !errors.Is(x.Err(), fairlock.ErrUnlocked) {
					s.note(name, "ended: %s", described(x.Err()))
				}
			}()
		case error:
			words = append(words, described(x))
		case int, uint64:
			words = append(words, fmt.Sprint(x))
		case fairlock.Stats:
			words = append(words, fmt.Sprintf("leases %d, waiters %d, requests %d", x.Leases, x.Waiters, x.Requests))
			if !x.OutageSince.IsZero() || !x.RefusedSince.IsZero() {
				words = append(words, "not served")
			}
		case string:
			words = append(words, x)
		case admin.State:
			words = append(words, stateOf(x))
		case time.Time:
			words = append(words, x.Sub(s.begin).Round(time.Millisecond).String())
		}
	}
	if len(out) > 0 {
		s.note(name, "%s%s", method, cmp.Or(strings.Join(words, ", "), "ok"))
	}
}

// described has the text of an error and what errors.Is finds.
func described(err error) string {
	return fmt.Sprintf("%s [%s]", strings.ReplaceAll(err.Error(), "\n", "; "), fairlock.ErrorType(err))
}

// stateOf returns the holders and the waiters of a lock as text.
func stateOf(st admin.State) string {
	var held, queued []string
	for _, h := range st.Holders {
		held = append(held, h.Client+map[bool]string{true: " (released)"}[h.Released])
	}
	for _, w := range st.Waiters {
		queued = append(queued, w.Client)
	}
	text := fmt.Sprintf("held by [%s], queued [%s]", short(held), short(queued))
	for _, k := range st.Keys {
		text += fmt.Sprintf(", key %s holds %d of %d, %d wait", k.Key, k.Held, k.Limit, k.Waiting)
		if k.AtLimit {
			text += ", at its limit"
		}
	}
	if len(st.Others) > 0 {
		text += fmt.Sprintf(", %d of %d permits, others %v", st.Used, st.Permits, st.Others)
	}
	return text
}

// replica is a replica of a server, which has what the server had at Copy.
type replica struct {
	s     *fairlocktest.Server
	at    time.Time
	texts map[string]string
	sets  map[string]map[string]float64
	left  map[string]time.Duration
}

// Copy copies all data of the server.
func (r *replica) Copy() {
	r.s.StepClock(0) // TTLs are those of now
	m := r.s.Miniredis
	r.at, r.texts = r.s.Now(), map[string]string{}
	r.sets, r.left = map[string]map[string]float64{}, map[string]time.Duration{}
	for _, key := range m.Keys() {
		if r.left[key] = m.TTL(key); m.Type(key) == "string" {
			r.texts[key], _ = m.Get(key)
		} else {
			set, _ := m.SortedSet(key)
			r.sets[key] = maps.Clone(set) // of the server's own
		}
	}
}

// TakeOver has the replica take the place of the server.
func (r *replica) TakeOver() {
	m := r.s.Miniredis
	r.s.Stop()
	r.s.LoseData()
	r.s.StepClock(0)
	for key, text := range r.texts {
		_ = m.Set(key, text)
	}
	for key, set := range r.sets {
		for member, score := range set {
			_, _ = m.ZAdd(key, score, member)
		}
	}
	for key, d := range r.left {
		m.SetTTL(key, d-r.s.Now().Sub(r.at))
	}
	r.s.Start()
}
