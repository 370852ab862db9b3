package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/sample"
	"github.com/fairlock/fairlock-go/token"
)

func TestMain(m *testing.M) {
	logging.Disable() // connections break here
	time.Local = time.UTC
	m.Run()
}

// noon is the moment at which the samples are looked at.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// tokenOf is the n-th token of a client, with a TTL of 10 s.
func tokenOf(client string, n int) token.Token {
	t, err := token.Parse(fmt.Sprintf("%s:2.00007ps0t%03d", client, n) + strings.Repeat("S", 17) + "A")
	if err != nil {
		panic(err)
	}
	return t
}

// lock is a lock that so many hold and so many wait for.
func lock(kind fairlock.Kind, name string, holders, waiters int) inspect.Lock {
	l := inspect.Lock{ID: inspect.ID{Kind: kind, Name: name}}
	l.At, l.Fence, l.Waiting, l.Used, l.Waiters = noon, 1, waiters, holders, []admin.Waiter{}
	for i := range holders {
		token := tokenOf(fmt.Sprintf("web-%d", i+1), i+1)
		l.Holders = append(l.Holders, admin.Holder{Client: token.Client(), Token: token, Fence: uint64(i + 1),
			Age: 12400 * time.Millisecond, TTL: 8100 * time.Millisecond, Weight: 1, Renewed: 1900 * time.Millisecond})
	}
	for i := range waiters {
		token := tokenOf(fmt.Sprintf("job-%d", i), i)
		l.Waiters = append(l.Waiters, admin.Waiter{Client: token.Client(), Token: token, Ticket: uint64(i + 9),
			Age: 11200 * time.Millisecond, TTL: 5100 * time.Millisecond, Weight: 1})
	}
	return l
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// Each lock of the sample as status, watch and --json show it, and all of them as list does. The fields of the JSON are
// a promise to scripts: they are not renamed, nor do they change their meaning.
func TestLock_Golden(t *testing.T) {
	inBubble(t, func(t *testing.T, m *fairlocktest.Server, s *inspect.Server, _ *fairlocktest.Link) {
		ids, end := sample.Locks(t, m)
		defer end()
		all, err := s.Read(t.Context(), 100, ids...)
		require.NoError(t, err)
		var b strings.Builder
		for _, l := range all {
			fmt.Fprintf(&b, "%s%s\n", text(Block(Paint{}, l, 3)), Line(l))
			l.Waiters = l.Waiters[:min(4, len(l.Waiters))] // of the crowd
			fmt.Fprintf(&b, "%s\n\n", JSON(l))
			var d struct {
				Base64 []byte `json:"name_base64"`
			}
			require.NoError(t, json.Unmarshal([]byte(JSON(l)), &d))
			require.True(t, d.Base64 == nil || string(d.Base64) == l.Name)
		}
		for _, width := range []int{0, 120, 80, 60, 40} {
			fmt.Fprintf(&b, "%d columns:\n%s\n", width, text(Table(Paint{Width: width}, all)))
			for _, l := range all {
				if l.Name == "key at its limit" {
					fmt.Fprintf(&b, "%s\n", text(Block(Paint{Width: width}, l, 9)))
				}
			}
		}
		golden.Equal(t, "locks.txt", sample.Stable(b.String()))
		plain, coloured := Table(Paint{}, all), Table(Paint{Colours: true}, all)
		require.NotEqual(t, plain, coloured)
		for i := range plain {
			require.Equal(t, lipgloss.Width(plain[i]), lipgloss.Width(strings.TrimRight(coloured[i], " ")),
				"colours do not shift columns")
		}
		require.Equal(t, "[\n"+JSON(all[0])+",\n"+JSON(all[1])+"\n]\n", Array(all[:2]))
		require.Equal(t, "[]\n", Array(nil))
	})
}

// On no terminal is a line too wide, each lock has one, and a long name takes no column away: it is cut in the middle,
// to a third.
func TestTable_Fits(t *testing.T) {
	long := []inspect.Lock{
		lock(fairlock.KindMutex, "billing:customer:0001:invoice", 1, 1),
		lock(fairlock.KindSemaphore, "billing:customer:0002:invoice", 3, 1),
		lock(fairlock.KindMutex, strings.Repeat("long/", 200)+"end", 1, 0),
		lock(fairlock.KindMutex, strings.Repeat("日", 300), 1, 0),
	}
	for i := range long {
		long[i].Holders[0].Token = tokenOf(strings.Repeat("h", 60)+"-4711@web-3", 1)
	}
	long[1].Holders[0].Missed = 3
	for _, width := range []int{120, 80, 70, 60, 50, 40, 25, 9} {
		p := Paint{Width: width, Colours: width == 80}
		lines := Table(p, long)
		require.Len(t, lines, 1+len(long), "%d columns", width)
		for _, line := range slices.Concat(lines, Block(p, long[1], 9)) {
			require.LessOrEqual(t, lipgloss.Width(line), width, "%q", line)
		}
		if width >= 70 {
			require.NotEqual(t, lines[1], lines[2], "names that differ at the end are told apart")
			require.Contains(t, lines[3], "…")
			require.Contains(t, lines[3], "/end")
		}
	}
}

// Of each name, the locks in use and a resized semaphore are shown, and if there are none the one that was used last.
func TestWorth(t *testing.T) {
	used, free := lock(fairlock.KindMutex, "x", 1, 0), lock(fairlock.KindSemaphore, "x", 0, 0)
	resized := free
	resized.Permits, resized.Resized = 7, true
	never := inspect.Lock{ID: inspect.ID{Kind: fairlock.KindRWMutex, Name: "x"}}
	unused := inspect.Lock{ID: inspect.ID{Name: "x"}}
	other, faulty := lock(fairlock.KindMutex, "b", 0, 0), inspect.Lock{ID: never.ID, Err: errors.New("no")}
	type locks = []inspect.Lock
	for _, c := range []struct{ all, want locks }{
		{nil, nil}, {locks{used, free, never}, locks{used}}, {locks{never, free}, locks{free}},
		{locks{never}, locks{never}}, {locks{never, never}, locks{unused}},
		{locks{other, used, free, used}, locks{other, used, used}}, {locks{free, faulty}, locks{faulty}},
		{locks{used, resized, never}, locks{used, resized}}, {locks{resized, never}, locks{resized}},
	} {
		require.Equal(t, c.want, Worth(c.all))
	}
}

func TestChanges(t *testing.T) {
	var c Changes
	one, two := lock(fairlock.KindMutex, "x", 1, 1), lock(fairlock.KindMutex, "x", 1, 2)
	free, other, never := lock(fairlock.KindMutex, "x", 0, 0), lock(fairlock.KindRWMutex, "y", 1,
		0), inspect.Lock{ID: inspect.ID{Kind: fairlock.KindRWMutex, Name: "x"}}
	kept := two
	kept.Holders = slices.Clone(two.Holders)
	kept.Holders[0].Released = true
	away := Glance{Err: errors.New("away")}
	glance := func(all ...inspect.Lock) Glance { return Glance{Locks: all} }
	for _, step := range []struct {
		glance Glance
		want   []inspect.Lock
		why    string
	}{
		{away, nil, "nothing was seen"},
		{glance(one, never, other), []inspect.Lock{one, other}, "at first, all that are worth it"},
		{glance(one, never, other), nil, "nothing has changed"},
		{glance(two, never, other), []inspect.Lock{two}, "another waiter"},
		{glance(kept, never, other), []inspect.Lock{kept}, "its holder has released it"},
		{glance(free, never, other), []inspect.Lock{free}, "it was shown before"},
		{away, nil, ""},
		{Glance{Locks: []inspect.Lock{two}, Err: away.Err}, []inspect.Lock{two}, "one server of several is away"},
		{Glance{Locks: []inspect.Lock{two}, Err: away.Err}, nil, "it was shown before"},
		{glance(two, never, other), nil, "the others are as they were before"},
		{glance(other), nil, "this one is not looked at any more"},
		{glance(free, other), nil, "it is free and new"},
	} {
		require.Equal(t, step.want, c.Of(step.glance), step.why)
	}
	require.Empty(t, (&Changes{}).Of(Glance{Locks: []inspect.Lock{never}, Err: away.Err}), "another kind may be in use")

	// A script is told what a line has no room for: that the last waiter is another one.
	script, lines := Changes{JSON: true}, Changes{}
	l := lock(fairlock.KindMutex, "x", 1, 6)
	for _, c := range []struct {
		last          string
		script, lines int
	}{{"a", 1, 1}, {"b", 1, 0}, {"b", 0, 0}} {
		l.Waiters = slices.Clone(l.Waiters)
		l.Waiters[5].Token = tokenOf(c.last, 5)
		require.Len(t, script.Of(glance(l)), c.script)
		require.Len(t, lines.Of(glance(l)), c.lines)
	}
}

// watched runs a Watch until the test ends. The returned function returns the next glance, and when it was had.
func looking(t *testing.T, w Watch) (next func() (Glance, time.Duration)) {
	t.Helper()
	type seen struct {
		Glance
		at time.Duration
	}
	began, glances := time.Now(), make(chan seen, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Run(ctx, func(g Glance) { glances <- seen{g, time.Since(began)} })
	}()
	t.Cleanup(func() { cancel(); <-over })
	return func() (Glance, time.Duration) {
		s := <-glances
		return s.Glance, s.at
	}
}

// inBubble runs a test in simulated time, on a server in memory.
func inBubble(t *testing.T, test func(t *testing.T, m *fairlocktest.Server, s *inspect.Server,
	link *fairlocktest.Link)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		link := m.Link()
		s := inspect.On(link.Redis(), "fairlock")
		t.Cleanup(s.Close)
		test(t, m, s, link)
	})
}

// While Redis hangs, it is said at once, and again and again, that the values are old.
func TestWatch_NamedLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *fairlocktest.Server, s *inspect.Server, link *fairlocktest.Link) {
		ids := inspect.IDs([]string{"x", "y"}, fairlock.KindMutex, fairlock.KindRWMutex)
		next := looking(t, Watch{Server: s, IDs: ids, Every: 400 * time.Millisecond})
		glance := func(at time.Duration, fault error) []inspect.Lock {
			g, took := next()
			require.Equal(t, []any{at, fault}, []any{took, g.Err})
			require.True(t, fault != nil || len(g.Locks) == 4, "free ones, too")
			return InUse(g.Locks)
		}
		require.Empty(t, glance(0, nil))
		m.Mutex("x").HoldAs("a")
		require.Equal(t, "a", glance(400*time.Millisecond, nil)[0].Holder().Client)
		link.Hang()
		glance(1300*time.Millisecond, errSilent)
		glance(1800*time.Millisecond, errSilent)
		link.Mend()
		require.Len(t, glance(1800*time.Millisecond, nil), 1)

		// Of many locks, each costs a pause.
		next = looking(t, Watch{Server: s, IDs: slices.Repeat(ids[:1], 120), Every: MinInterval})
		for i := range 3 {
			_, at := next()
			require.Equal(t, time.Duration(i)*120*time.Millisecond, at)
		}
	})
}

func TestWatch_AllLocksInUse(t *testing.T) {
	inBubble(t, func(t *testing.T, m *fairlocktest.Server, s *inspect.Server, _ *fairlocktest.Link) {
		lease := m.Mutex("x").HoldAs("a")
		m.Mutex("other").HoldAs("a")
		m.Semaphore("x", 1).HoldAs("a")
		next := looking(t, Watch{Server: s, Want: inspect.Want{Prefix: "x",
			Kinds: []fairlock.Kind{fairlock.KindMutex, fairlock.KindRWMutex}}, Every: 500 * time.Millisecond})
		glance := func() (names []string) {
			g, _ := next()
			require.NoError(t, g.Err)
			for _, l := range g.Locks {
				require.Nil(t, l.Waiters)
				names = append(names, fmt.Sprint(l.ID, l.Held()))
			}
			return names
		}
		require.Equal(t, []string{"mutex x true"}, glance())
		m.RWMutex("xy").HoldAs("a")
		for range 3 { // until the next search, after 2 s
			require.Equal(t, []string{"mutex x true"}, glance())
		}
		require.Equal(t, []string{"mutex x true", "rwmutex xy true"}, glance())
		require.NoError(t, lease.Unlock(t.Context()))
		require.Equal(t, []string{"mutex x false", "rwmutex xy true"}, glance(), "it is seen to be free")
		require.Equal(t, []string{"rwmutex xy true"}, glance())
	})
}

// on is a screen of so many columns and rows that has seen these glances, a second apart.
func on(named bool, width, height int, glances ...Glance) tea.Model {
	l := Live{Title: func(seen time.Time) string { return "title " + seen.Format(time.TimeOnly) }}
	if named {
		l.IDs = []inspect.ID{{}}
		l.Notes = func() []string { return []string{"a note"} }
	}
	m := l.Model()
	m, _ = m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for i, g := range glances {
		m, _ = m.Update(sight{g, noon.Add(time.Duration(i) * time.Second)})
	}
	return m
}

func many(n int) (all []inspect.Lock) {
	for i := range n {
		all = append(all, lock(fairlock.KindMutex, fmt.Sprintf("job:%04d", i), 1, 0))
	}
	return all
}

// What was seen last stays when Redis does not answer any more, and is called old. A long queue leaves room for other
// locks.
func TestScreen(t *testing.T) {
	silent := Glance{Err: errSilent}
	free := lock(fairlock.KindMutex, "free", 0, 0)
	var b strings.Builder
	for _, m := range []tea.Model{
		on(false, 80, 7), on(false, 80, 7, silent), on(false, 80, 7, Glance{Locks: []inspect.Lock{free}}),
		on(false, 60, 7, Glance{None: "no locks in this namespace; namespaces with locks: fairlock, billing"}),
		on(false, 80, 8, Glance{Locks: append(many(2), free)}, silent, silent), on(false, 80, 8,
			Glance{Locks: many(9)}), on(false, 30, 8, Glance{Locks: many(2)}),
		on(true, 100, 24, Glance{Locks: []inspect.Lock{lock(fairlock.KindMutex, "x", 1, 99),
			lock(fairlock.KindRWMutex, "y", 1, 0), {ID: inspect.ID{Name: "none"}}}}),
	} {
		require.True(t, m.View().AltScreen)
		b.WriteString(m.View().Content + "\n----\n")
	}
	golden.Equal(t, "screen.txt", b.String())
	wide := append(many(30), lock(fairlock.KindRWMutex, strings.Repeat("日", 300), 30, 30))
	for _, named := range []bool{false, true} {
		for _, size := range [][2]int{{0, 0}, {1, 1}, {80, 1}, {1, 5}, {80, 6}, {40, 24}, {120, 60}} {
			lines := strings.Split(on(named, size[0], size[1], Glance{Locks: wide}, silent).View().Content, "\n")
			require.LessOrEqual(t, len(lines), max(size[1], 1))
			for _, line := range lines {
				require.LessOrEqual(t, lipgloss.Width(line), size[0])
			}
		}
	}
}

func TestScreen_Keys(t *testing.T) {
	model := on(false, 80, 24, Glance{Locks: many(50)})
	for _, step := range []struct {
		key  rune
		want int // the first lock that is shown then
	}{
		{tea.KeyUp, 0}, {tea.KeyDown, 1}, {'j', 2}, {'k', 1}, {tea.KeyPgDown, 20}, {tea.KeyPgUp, 1}, {' ', 20},
		{tea.KeyPgDown, 39}, {tea.KeyPgDown, 49}, {tea.KeyHome, 0},
	} {
		var cmd tea.Cmd
		model, cmd = model.Update(tea.KeyPressMsg{Code: step.key})
		require.Nil(t, cmd)
		lines := strings.Split(model.View().Content, "\n")
		require.Contains(t, lines[2], "NAME", "the head stays")
		require.Contains(t, lines[3], fmt.Sprintf("job:%04d", step.want))
	}
	for _, quit := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: tea.KeyEscape}, {Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := model.Update(quit)
		require.Equal(t, tea.Quit(), cmd())
	}
}
