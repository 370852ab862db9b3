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

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/inspect"
	"github.com/fairlock/fairlock-go/internal/redistest"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/words"
	"github.com/fairlock/fairlock-go/leader"
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
		words.Use(l).Text, words.Waiting(l), words.Expired(l), words.OldestWait(l), words.HasLeft(l), words.Rest(l, 1), words.Summary(l), words.Verdict(l).Text,
		words.Meant(l.Meant(used)),
	}
	for _, h := range l.Holders {
		lines = append(lines, words.Who(h.Token.Client()), words.HeldFor(h), words.Left(h), words.State(h).Text, words.Renewed(h).Text, words.Heir(l, h))
	}
	for _, w := range l.Living() {
		lines = append(lines, words.Waiter(w).Text)
	}
	for i, k := range l.State.Keys {
		lines = append(lines, words.OfKey(i, k).Text)
	}
	return strings.Join(lines, "\n")
}

// Each word is said of a lock in a state that makes it true, and of no lock in a state that does not. The states are those of a Redis,
// as the clients of this library make them. A word without a state fails, so none is left behind.
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
			e := leader.New(m.Client(fairlock.Config{Name: fmt.Sprint("node-", i)}).Client, "election", leader.Options{})
			wait(func() { _ = e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) })
		}
		lease, err := c.Mutex("released", fairlock.WithMinHold(time.Hour)).Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(ctx))
		require.NoError(t, c.Semaphore("resized", 5).Resize(ctx, 7))
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
		m.Semaphore("wide", 4).HoldPermitsAs("web-1", 2)
		wait(func() { _, _ = c.Semaphore("wide", 4).Acquire(ctx, 3) })
		require.NoError(t, m.Miniredis.Set(script.MutexKeys("fairlock", "theirs").Lock, "a secret"))
		time.Sleep(300 * time.Millisecond)

		locks := map[string]string{}
		used, err := s.Used(ctx)
		require.NoError(t, err)
		read := func(kind fairlock.Kind, names ...string) {
			found, err := s.Read(ctx, inspect.Most, inspect.IDs(names, kind)...)
			require.NoError(t, err)
			for _, l := range found {
				locks[l.Name] = said(l, used)
			}
		}
		read(fairlock.KindMutex, "crashed", "queue", "renewed", "granted", "dead", "election", "released", "theirs", "unused", "GPU", "lately")
		read(fairlock.KindSemaphore, "resized", "wide")
		read(fairlock.KindRWMutex, "readers", "writer")
		read(fairlock.KindKeyedSemaphore, "gpu")
		locks["unreadable"] = said(inspect.Lock{ID: inspect.ID{Kind: fairlock.KindMutex, Name: "x"}, Err: errors.New("no")}, used)

		states := map[string][]string{ // in which locks a word is said; no other says it
			"Unknown": {"theirs", "unreadable", "released", "GPU"}, // also at the end of a question
			"None":    nil, "Stranger": {"theirs"},
			"unreadable": {"unreadable"}, "free": nil, // also of what somebody else gets
			"held":  nil, // also of permits
			"leads": {"election"}, "released": {"released"}, "writer": {"writer"}, "reader": {"readers"},
			"alive": {"renewed", "granted", "queue", "election", "wide", "gpu"}, "candidate": {"election"}, "silent": {"renewed"}, "expired": {"dead"},
			"dropped": {"dead"}, "notRenewed": {"granted", "election", "readers", "writer", "gpu", "wide"}, "missed": {"crashed"},
			"neverEnds": {"theirs"}, "next": nil, "atLimit": {"gpu"}, "twoLimits": {"gpu"}, "notUsed": {"unused", "GPU"}, "setByResize": {"resized"},
			"nobodyUses": {"resized"}, "nobodyWaits": nil, "grantedNext": {"queue"}, "DidYouMean": {"GPU"}, "LastNumber": {"lately", "dead"},
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
		for range 5 {
			<-ended
		}
	})
}

// The page has no words for a lock of its own: neither its templates nor its script.
func TestWords_ThePageHasNone(t *testing.T) {
	for _, file := range []string{"../../ui/pages.tmpl", "../../ui/assets/page.js"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for name, word := range all(t) {
			switch name {
			case "Unknown", "None", "free", "held", "reader", "writer", "released", "missed", "next", "expired": // parts of other words and of names there
				continue
			}
			assert.NotContains(t, string(text), word, file)
		}
		for _, phrase := range []string{"Held by", "held by", " ago, every", "whose process lives", "set by resize", "waits for heartbeat"} {
			assert.NotContains(t, string(text), phrase, file)
		}
	}
}
