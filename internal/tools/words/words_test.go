package words_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/internal/tools/words"
	"github.com/fairlock/fairlock-go/leader"
	locktoken "github.com/fairlock/fairlock-go/token"
)

func TestMain(m *testing.M) {
	redistest.Silence()
	m.Run()
}

// all are the words of the package, by the names of their constants.
func all(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "words.go", nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			spec := spec.(*ast.ValueSpec)
			if text, ok := spec.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING && spec.Type == nil {
				found[spec.Names[0].Name], err = strconv.Unquote(text.Value)
				require.NoError(t, err)
			}
		}
	}
	return found
}

// said is everything that is said of a lock beside these that are in use, one phrase a line.
func said(l inspect.Lock, used []inspect.ID) string {
	lines := []string{
		words.Use(l).Text, words.Waiting(l), words.BesideAlone(l), words.Expired(l), words.OldestWait(l), words.HasLeft(l),
		words.Rest(l,
			1), words.Summary(l), words.Verdict(l).Text, words.Why(l), words.Beside(l), words.BesideInTable(l),
		words.LongestHeld(l), words.RenewedOfAll(l).Text, words.Meant(l.Meant(used)),
	}
	for _, h := range l.Holders {
		lines = append(lines, words.Who(h.Token.Client()), words.HeldFor(h), words.Left(h),
			words.Renewed(h).Text, words.Heir(l, h))
	}
	for _, w := range l.Living() {
		lines = append(lines, words.Waiter(w).Text)
	}
	for i, k := range l.State.Keys {
		lines = append(lines, words.OfKey(i, k).Text)
	}
	return strings.Join(lines, "\n")
}

// Each word is said of a lock in a state that makes it true, and of no lock in a state that does not. The states are
// those of a Redis, as the clients of this library make them. A word without a state fails, so none is left behind.
func TestWords_EachHasAState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		s := inspect.On(m.Link().Redis(), "fairlock")
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 8)
		wait := func(f func()) {
			go func() { f(); ended <- struct{}{} }()
			time.Sleep(time.Millisecond)
		}

		c := m.Client(fairlock.Config{Name: "web-1"})
		m.Mutex("crashed").CrashHolding("web-9", 10*time.Second)
		m.Mutex("queue").CrashHolding("web-9", time.Second)
		m.Mutex("queue").CrashQueued("web-8", time.Minute)
		m.Mutex("renewed").HoldAs("web-1")
		m.Mutex("renewed").CrashQueued("web-3", 9*time.Second)
		time.Sleep(8 * time.Second)
		m.Mutex("granted").HoldAs("web-1")
		m.Mutex("granted").CrashQueued("web-2", time.Minute)
		m.Mutex("dead").CrashHolding("web-9", 100*time.Millisecond)
		m.Mutex("dead").CrashQueued("web-9", 200*time.Millisecond)
		for i := range 2 {
			e := leader.New(m.Client(fairlock.Config{Name: fmt.Sprint("node-", i)}).Client, "election", leader.Config{})
			wait(func() { _ = e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) })
		}
		lease, err := c.Mutex("released", fairlock.WithMinHold(time.Hour)).Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
		require.NoError(t, admin.New(c.Redis, "").Resize(ctx, fairlock.ID{Kind: fairlock.KindSemaphore, Name: "resized"}, 7))
		lease, err = c.Mutex("lately").Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
		m.RWMutex("readers").ReadAs("web-1")
		m.RWMutex("writer").HoldAs("web-1")
		k := m.KeyedSemaphore("gpu", 4)
		k.Key("a").HoldAs("web-1")
		keyed := c.KeyedSemaphore("gpu", 4)
		wait(func() { _, _ = keyed.Key("a", fairlock.WithKeyLimit(1)).Acquire(ctx, 1) })
		wait(func() { _, _ = keyed.Key("b", fairlock.WithKeyLimit(4)).Acquire(ctx, 4) })
		m.KeyedSemaphore("limits", 4).Key("a").HoldAs("web-1")
		m.KeyedSemaphore("limits", 4).Key("b").HoldAs("web-1")
		limits := c.KeyedSemaphore("limits", 4)
		wait(func() { _, _ = limits.Key("a", fairlock.WithKeyLimit(1)).Acquire(ctx, 1) })
		wait(func() { _, _ = limits.Key("b", fairlock.WithKeyLimit(1)).Acquire(ctx, 1) })
		m.Semaphore("wide", 4).HoldPermitsAs("web-1", 2)
		wait(func() { _, _ = c.Semaphore("wide", 4).Acquire(ctx, 3) })
		m.Semaphore("pool", 4).HoldAs("web-1")
		m.Semaphore("pool", 4).HoldAs("web-2")
		require.NoError(t, m.Miniredis.Set(script.KeysOf("mutex", "fairlock", "theirs").Part("lock"), "a secret"))
		time.Sleep(300 * time.Millisecond)

		locks := map[string]string{}
		used, _, err := s.Used(ctx, "")
		require.NoError(t, err)
		read := func(kind fairlock.Kind, names ...string) {
			found, err := s.Read(ctx, inspect.Most, inspect.IDs(names, kind)...)
			require.NoError(t, err)
			for _, l := range found {
				locks[l.Name] = said(l, used)
			}
		}
		read(fairlock.KindMutex, "crashed", "queue", "renewed", "granted", "dead", "election", "released", "theirs", "unused",
			"GPU", "lately")
		read(fairlock.KindSemaphore, "resized", "wide", "pool")
		read(fairlock.KindRWMutex, "readers", "writer")
		read(fairlock.KindKeyedSemaphore, "gpu", "limits")
		locks["unreadable"] = said(inspect.Lock{ID: inspect.ID{Kind: fairlock.KindMutex, Name: "x"}, Err: errors.New("no")},
			used)
		many, err := s.Read(ctx, inspect.Most, inspect.ID{Kind: fairlock.KindRWMutex, Name: "readers"})
		require.NoError(t, err)
		many[0].Used += 5000 // more than are listed
		locks["many"] = said(many[0], used)

		states := map[string][]string{ // in which locks a word is said; no other says it
			"Unknown": {"theirs", "unreadable", "released", "many", "GPU"}, // also at the end of a question
			"None":    nil, "Stranger": {"theirs"},
			"unreadable": {"unreadable"}, "free": nil, // also of what somebody else gets
			"held":  nil, // also of permits
			"leads": {"election"}, "released": {"released"}, "writer": {"writer"}, "reader": {"readers", "many"},
			"granted": nil, "renewed": {"renewed", "theirs", "released"},
			"alive": {"granted", "queue", "election", "wide", "gpu", "limits", "many", "theirs"}, "candidate": {"election"},
			"silent": {"renewed"}, "expired": {"dead"}, "dropped": {"dead"}, "missed": {"crashed", "pool", "limits"},
			"noneMissed": {"pool", "limits"}, "atLeast": {"many"},
			"neverEnds": {"theirs"}, "next": nil, "atLimit": {"gpu", "limits"}, "atLimits": {"limits"}, "full": {"gpu",
				"limits"}, "limitsInUse": {"gpu", "limits"}, "notUsed": {"unused", "GPU"}, "setByResize": {"resized"},
			"notInUse": {"resized"}, "noWaiters": nil, "grantedNext": {"queue"}, "DidYouMean": {"GPU"},
			"LastNumber": {"lately", "dead"},
		}
		for name, word := range all(t) {
			where, known := states[name]
			require.True(t, known, "no state is named that makes %q true", word)
			in := 0
			for lock, text := range locks {
				if strings.Contains(text, word) {
					in++
					assert.True(t, where == nil || slices.Contains(where, lock), "%q is said of %s:\n%s", word, lock, text)
				}
			}
			assert.Positive(t, in, "%q is never said", word)
		}
		cancel()
		for range 7 {
			<-ended
		}
	})
}

// Waiters are counted once: those behind the ones that are shown, by client as far as they are listed.
func TestRest(t *testing.T) {
	t.Parallel()
	l := inspect.Lock{State: admin.State{Waiting: 5, Waiters: []admin.Waiter{{TTL: 1}, {TTL: 1}, {TTL: 1}}}}
	require.Equal(t, "4 more: 2 (not fairlock's), and 2 that are not listed", words.Rest(l, 1))
	require.Equal(t, "2 more that are not listed", words.Rest(l, 3))
	l.Waiting = 3
	require.Equal(t, "1 more: 1 (not fairlock's)", words.Rest(l, 2))
	require.Empty(t, words.Rest(l, 3))
}

// Why the first waits is said of the states in which it waits for more than its turn, and follows from the state alone.
func TestWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		s := inspect.On(m.Link().Redis(), "fairlock")
		defer s.Close()
		c := m.Client(fairlock.Config{Name: "web-1"})
		ctx, cancel := context.WithCancel(t.Context())
		waiting := 0
		ended := make(chan struct{}, 20)
		wait := func(acquire func(context.Context, int) (*fairlock.Lease, error), permits int) {
			waiting++
			go func() { _, _ = acquire(ctx, permits); ended <- struct{}{} }()
			time.Sleep(time.Millisecond)
		}
		says := func(id inspect.ID, why, beside string) {
			t.Helper()
			read, err := s.Read(ctx, inspect.Most, id)
			require.NoError(t, err)
			require.NoError(t, read[0].Err)
			require.Equal(t, []string{why, beside}, []string{words.Why(read[0]), words.Beside(read[0])}, id.Name)
			require.Contains(t, words.Verdict(read[0]).Text, why)
			require.Contains(t, words.Summary(read[0]), beside)
		}

		sem := inspect.ID{Kind: fairlock.KindSemaphore, Name: "sem"}
		m.Semaphore("sem", 4).HoldPermitsAs("web-2", 2)
		says(sem, "", "")
		wait(c.Semaphore("sem", 4).Acquire, 3)
		says(sem, "The first waiter wants 3 permits, and 2 are free.", "")
		wait(c.Semaphore("sem", 4).Acquire, 1)
		says(sem, "The first waiter wants 3 permits, and 2 are free: those behind it wait for their turn.", "")
		m.Semaphore("full", 1).HoldAs("web-2")
		wait(c.Semaphore("full", 1).Acquire, 1)
		says(inspect.ID{Kind: fairlock.KindSemaphore, Name: "full"}, "", "")
		m.Semaphore("fuller", 4).HoldPermitsAs("web-2", 4)
		wait(c.Semaphore("fuller", 4).Acquire, 2)
		says(inspect.ID{Kind: fairlock.KindSemaphore, Name: "fuller"}, "The first waiter wants 2 permits, and none is free.",
			"")
		m.Semaphore("less", 4).HoldPermitsAs("web-2", 3)
		wait(c.Semaphore("less", 2).Acquire, 1)
		says(inspect.ID{Kind: fairlock.KindSemaphore, Name: "less"},
			"The first waiter wants 1 permit and uses a limit of 2, and 3 are held.", "")
		m.Semaphore("wider", 8).HoldPermitsAs("web-2", 3)
		wait(c.Semaphore("wider", 5).Acquire, 3)
		wait(c.Semaphore("wider", 8).Acquire, 1)
		says(inspect.ID{Kind: fairlock.KindSemaphore, Name: "wider"},
			"The first waiter wants 3 permits and uses a limit of 5, and 3 are held: those behind it wait for their turn.", "")

		gpu := inspect.ID{Kind: fairlock.KindKeyedSemaphore, Name: "gpu"}
		key := func(name string, o ...fairlock.KeyOption) func(context.Context, int) (*fairlock.Lease, error) {
			return c.KeyedSemaphore("gpu", 4).Key(name, o...).Acquire
		}
		m.KeyedSemaphore("gpu", 4).Key("a").HoldAs("web-2")
		wait(key("a", fairlock.WithKeyLimit(1)), 1)
		const full = "Key a is at its limit: its first waiter waits for holders of the key."
		says(gpu, full, "a key at its limit")
		wait(key("b b"), 4)
		const wide = ` The first waiter of key "b b", which is next, wants 4 permits, and 3 are free`
		says(gpu, full+wide+".", "a key at its limit")
		wait(key("c"), 4)
		says(gpu, full+wide+": the keys behind it wait for their turn.", "a key at its limit")
		m.KeyedSemaphore("two", 4).Key("a").HoldAs("web-2")
		m.KeyedSemaphore("two", 4).Key("d").HoldAs("web-2")
		wait(c.KeyedSemaphore("two", 4).Key("a", fairlock.WithKeyLimit(1)).Acquire, 1)
		wait(c.KeyedSemaphore("two", 4).Key("d", fairlock.WithKeyLimit(1)).Acquire, 1)
		says(inspect.ID{Kind: fairlock.KindKeyedSemaphore, Name: "two"},
			"Keys a and d are at their limits: their first waiters wait for holders of their own keys.", "keys at their limits")
		m.KeyedSemaphore("turns", 1).Key("a").HoldAs("web-2")
		wait(c.KeyedSemaphore("turns", 1).Key("b").Acquire, 1)
		says(inspect.ID{Kind: fairlock.KindKeyedSemaphore, Name: "turns"}, "", "")
		m.KeyedSemaphore("fewer", 4).Key("a").HoldPermitsAs("web-2", 3)
		wait(c.KeyedSemaphore("fewer", 2).Key("b").Acquire, 1)
		says(inspect.ID{Kind: fairlock.KindKeyedSemaphore, Name: "fewer"},
			"The first waiter of key b, which is next, wants 1 permit and uses a limit of 2, and 3 are held.", "")
		cancel()
		for range waiting {
			<-ended
		}
	})
}

// What is said of a lock changes when the lock does. Two clients renew semaphores for which they use different limits,
// so the order in which their leases end changes all the while.
func TestSummary_ChangesOnlyWithTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		s := inspect.On(m.Link().Redis(), "fairlock")
		defer s.Close()
		read := func() inspect.Lock {
			read, err := s.Read(t.Context(), inspect.Most, inspect.ID{Kind: fairlock.KindSemaphore, Name: "x"})
			require.NoError(t, err)
			return read[0]
		}
		for range 2 {
			m.Semaphore("x", 5).HoldAs("web-1")
			time.Sleep(time.Second)
		}
		last := m.Semaphore("x", 8).HoldAs("web-2")
		m.Semaphore("x", 2).CrashQueued("web-3", time.Second) // that of an expired waiter does not count
		const later = "3 of 8 permits held, other clients use a limit of 5, no waiters, 1 expired"
		for time.Sleep(2 * time.Second); read().At.Second() < 40; time.Sleep(300 * time.Millisecond) {
			l := read()
			require.Equal(t, later, words.Summary(l))
			require.Equal(t, "3 of 8 (others: 5)", words.Use(l).Text)
		}
		m.Semaphore("x", 3).CrashQueued("web-3", time.Hour)
		require.Equal(t, "3 of 3 permits held, other clients use limits of 5 to 8, 1 waiting", words.Summary(read()),
			"that of the first waiter counts")
		require.NoError(t, last.Unlock(t.Context()))
	})
}

// Whether a holder lives shows at its next renewal. With a long TTL that is minutes later, and until then no more is
// said than what is known.
func TestRenewed_OfALongTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		s := inspect.On(m.Link().Redis(), "fairlock")
		defer s.Close()
		m.Mutex("x").CrashHolding("web-1", 10*time.Minute)
		says := func(renewed string) {
			t.Helper()
			read, err := s.Read(t.Context(), inspect.Most, inspect.ID{Kind: fairlock.KindMutex, Name: "x"})
			require.NoError(t, err)
			require.Equal(t, renewed, words.Renewed(read[0].Holder()).Text)
		}
		time.Sleep(199 * time.Second)
		says("granted 3m19s ago, every 3m20s")
		time.Sleep(30 * time.Second)
		says("not for 3m49s, 1 missed")
	})
}

// A lock under a minimum hold is not free before that is over, and the time until then is said wherever that of a lease
// is.
func TestLeft_OfAMinimumHold(t *testing.T) {
	h := admin.Holder{Released: true, TTL: 23 * time.Hour, Renewed: -1}
	require.Equal(t, "23h0m", words.Left(h))
	require.Equal(t, "released, free in 23h0m", words.Renewed(h).Text)
}

// Two clients that lock two locks in opposite order are named at both locks. Nothing is said of a queue alone, of a
// wait that began before the lock was granted, or of a semaphore that others hold, too.
func TestCrossing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		s := inspect.On(m.Link().Redis(), "fairlock")
		defer s.Close()
		says := func(kind fairlock.Kind, name, want string) {
			t.Helper()
			id := inspect.ID{Kind: kind, Name: name}
			read, err := s.Read(t.Context(), inspect.Most, id)
			require.NoError(t, err)
			have := ""
			if c, crosses := s.Crossing(t.Context(), read[0]); crosses {
				have = words.Crossing(read[0], c)
			}
			require.Equal(t, want, have, id)
		}
		m.Mutex("a").HoldAs("web-1")
		m.RWMutex("b").HoldAs("web-2")
		m.Mutex("a").CrashQueued("web-3", time.Hour)
		m.Mutex("a").CrashQueued("web-2", time.Hour)
		says(fairlock.KindMutex, "a", "")
		m.RWMutex("b").CrashQueued("web-1", time.Hour)
		says(fairlock.KindMutex, "a", "web-1 holds it and waits for rwmutex b; web-2 holds that and waits for mutex a. "+
			"If one task of each does both, that is a deadlock.")
		says(fairlock.KindRWMutex, "b", "web-2 holds it and waits for mutex a; web-1 holds that and waits for rwmutex b. "+
			"If one task of each does both, that is a deadlock.")

		m.Semaphore("c", 2).HoldAs("web-4")
		m.Semaphore("c", 2).HoldAs("web-6")
		m.Mutex("d").HoldAs("web-5")
		m.Semaphore("c", 2).CrashQueued("web-5", time.Hour)
		m.Mutex("d").CrashQueued("web-4", time.Hour)
		says(fairlock.KindSemaphore, "c", "")
		says(fairlock.KindMutex, "d", "")

		m.Mutex("f").HoldAs("web-7")
		m.Mutex("f").CrashQueued("web-8", time.Hour)
		time.Sleep(time.Second)
		m.Mutex("e").HoldAs("web-8")
		m.Mutex("e").CrashQueued("web-7", time.Hour)
		says(fairlock.KindMutex, "e", "")
		says(fairlock.KindMutex, "f", "")
	})
}

// What is said of all holders of a lock is true of each: none is left out because its lease ends late, or because
// others are named.
func TestOfAll(t *testing.T) {
	tok, err := locktoken.Parse("web-1:2.00007ps0t001" + strings.Repeat("S", 17) + "A")
	require.NoError(t, err)
	holder := func(held time.Duration, missed int) admin.Holder {
		return admin.Holder{Token: tok, Fence: 1, Age: held, TTL: time.Minute, Weight: 1, Renewed: time.Second,
			Missed: missed}
	}
	unknown, released := holder(time.Second, 0), holder(time.Second, 0)
	unknown.Renewed, released.Renewed, released.Released = -1, -1, true
	for _, c := range []struct {
		holders          []admin.Holder
		unlisted         int
		held, state, say string
	}{
		{nil, 0, "–", "–", "Free"},
		{[]admin.Holder{holder(time.Hour, 2)}, 0, "1h0m", "not for 1s, 2 missed", "has missed 2 renewals"},
		{[]admin.Holder{holder(time.Hour, 0), holder(time.Minute, 0)}, 0, "1h0m", "none missed", "held."},
		{[]admin.Holder{holder(time.Hour, 0), holder(time.Minute, 2)}, 0, "1h0m", "missed by 1 of 2",
			"One has missed renewals"},
		{[]admin.Holder{holder(time.Hour, 1), holder(time.Minute, 2)}, 0, "1h0m", "missed by 2 of 2",
			"All have missed renewals"},
		{[]admin.Holder{holder(time.Hour, 1), unknown}, 0, "1h0m", "missed by ≥1", "One has missed renewals"},
		{[]admin.Holder{holder(time.Hour, 0), unknown}, 0, "1h0m", "?", "It is unknown whether all are alive."},
		{[]admin.Holder{holder(time.Hour, 0), released}, 0, "1h0m", "none missed", "One has released"},
		{[]admin.Holder{released, released}, 0, "–", "released", "All have released"},
		{[]admin.Holder{holder(time.Hour, 0)}, 5, "≥1h0m", "?", "It is unknown whether all are alive."},
		{[]admin.Holder{holder(time.Hour, 1)}, 5, "≥1h0m", "missed by ≥1", "1 or more have missed renewals"},
		{[]admin.Holder{released}, 5, "?", "?", "1 or more have released"},
	} {
		l := inspect.Lock{ID: inspect.ID{Kind: fairlock.KindSemaphore, Name: "x"}}
		l.Holders, l.Permits, l.Used = c.holders, 9000, len(c.holders)+c.unlisted
		require.Equal(t, []string{c.held, c.state}, []string{words.LongestHeld(l), words.RenewedOfAll(l).Text}, c)
		require.Contains(t, words.Verdict(l).Text, c.say)
		require.Equal(t, strings.Contains(c.state, "missed by") || strings.Contains(c.state, "2 missed"),
			words.RenewedOfAll(l).Level == words.Bad)
	}
}

// The page has no words for a lock of its own: neither its templates nor its script.
func TestWords_ThePageHasNone(t *testing.T) {
	for _, file := range []string{"../../../ui/pages.tmpl", "../../../ui/assets/page.js"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for name, word := range all(t) {
			switch name {
			// parts of other words and of names there
			case "Unknown", "None", "free", "held", "reader", "writer", "released", "granted", "renewed", "missed", "next",
				"expired",
				"atLeast":
				continue
			}
			assert.NotContains(t, string(text), word, file)
		}
		for _, phrase := range []string{"Held by", "held by", " ago, every", "Its lease was", "whose process lives",
			"set by resize",
			"waits for heartbeat"} {
			assert.NotContains(t, string(text), phrase, file)
		}
	}
}
