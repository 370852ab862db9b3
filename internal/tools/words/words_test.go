package words_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/internal/tools/sample"
	"github.com/fairlock/fairlock-go/internal/tools/words"
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

// said is everything that is said of a lock beside those that are in use, by topic. What is empty is left out.
func said(l inspect.Lock, used []inspect.ID) string {
	var b strings.Builder
	add := func(topic string, phrases ...any) {
		texts := make([]string, len(phrases))
		for i, p := range phrases {
			if texts[i] = fmt.Sprint(p); p == (words.Phrase{}) {
				texts[i] = ""
			}
		}
		if strings.Join(texts, "") != "" {
			fmt.Fprintf(&b, "  %s: %s\n", topic, strings.Join(texts, " | "))
		}
	}
	add("use", words.Use(l), words.Summary(l))
	add("verdict", words.Verdict(l))
	add("queue", words.Waiting(l), words.WaitingAlone(l), words.BesideAlone(l), words.BesideInTable(l), words.OldestWait(l))
	add("rest", words.Rest(l, 1))
	add("all listed", words.Rest(l, 100))
	add("expired", words.HasLeft(l))
	add("holders", words.LongestHeld(l), words.RenewedOfAll(l), words.RenewedInTable(l))
	for _, h := range l.Holders {
		add("holder", words.Who(h.Token.Client()), words.HeldFor(h), words.Left(h), words.Renewed(h), words.Heir(l, h),
			words.IsReleased(h))
	}
	for _, w := range l.Waiters[:min(4, len(l.Waiters))] {
		add("waiter", words.Who(w.Token.Client()), words.Wants(l.Kind, w.Weight, w.Writer), words.Waiter(w))
	}
	for i, k := range l.State.Keys {
		add("key "+k.Key, words.OfKey(i, k))
	}
	add("meant", words.Meant(l.Meant(used)))
	return b.String()
}

// What is said of each lock of the sample, which has each word in it.
func TestWords_Golden(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		s := inspect.On(m.Link().Redis(), "fairlock")
		defer s.Close()
		ids, end := sample.Locks(t, m)
		defer end()
		used, _, err := s.Used(t.Context(), "")
		require.NoError(t, err)
		locks, err := s.Read(t.Context(), 100, ids...)
		require.NoError(t, err)
		var b strings.Builder
		for _, l := range locks {
			fmt.Fprintf(&b, "%s\n%s\n", l.ID, said(l, used))
			if l.Held() && inspect.HasPermits(l.Kind) {
				l.Used, l.Permits = l.Used+5, l.Permits+5
				fmt.Fprintf(&b, "%s, and 5 holders that are not listed\n%s\n", l.ID, said(l, used))
			}
		}
		golden.Equal(t, "words.txt", b.String())
		for name, word := range all(t) {
			if !strings.Contains(b.String(), word) {
				t.Errorf("no lock of the sample has %s", name)
			}
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
