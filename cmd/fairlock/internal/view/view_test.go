package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/golden"
	"github.com/fairlock/fairlock-go/lua"
)

func TestMain(m *testing.M) {
	logging.Disable() // connections break here
	time.Local = time.UTC
	m.Run()
}

// noon is the moment at which the samples are looked at.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func us(t time.Time) uint64 { return uint64(t.UnixMicro()) }

// tokenOf is the n-th token of a client.
func tokenOf(client string, n int) string {
	return fmt.Sprintf("%s:1.00000010000.t%03d", client, n) + strings.Repeat("S", 17) + "A"
}

// held is a mutex that web-1 has held for 12.4 s and that so many wait for. Every third waiter has expired.
func held(waiters int) lua.Snapshot {
	fence := us(noon.Add(-12400 * time.Millisecond))
	s := lua.Snapshot{
		Now: noon, Fence: fence, Used: 1, Capacity: 1, Waiting: waiters,
		Holders: []lua.Holder{{Token: tokenOf("web-1", 1), Fence: fence, Left: 8100 * time.Millisecond, Weight: 1}},
	}
	for i := range min(waiters, Most) {
		left := 5100 * time.Millisecond
		if i%3 == 2 {
			left = -3 * time.Second
		}
		s.Waiters = append(s.Waiters, lua.Waiter{
			Token: tokenOf(fmt.Sprintf("web-%d", i+2), i+2), Weight: 1, Expires: noon.Add(left),
			Ticket: lua.Ticket(us(noon.Add(-11200*time.Millisecond)) + uint64(i)),
		})
	}
	return s
}

// mutexOf is that mutex after a change.
func mutexOf(s lua.Snapshot, change ...func(*lua.Snapshot)) Lock {
	for _, f := range change {
		f(&s)
	}
	return lockOf(ID{Mutex, "billing:42"}, s)
}

func released(s *lua.Snapshot) { s.Holders, s.Used = nil, 0 }

func quarantined(s *lua.Snapshot) { s.Holders, s.Used, s.Quarantine = nil, 0, s.Holders[0].Left }

// shared is a semaphore of 8 permits, of which each holder has two, or a read-write lock that so many read.
func shared(kind Kind, holders, waiters int) Lock {
	s := held(waiters)
	weight, capacity, wants := 2, 8, 3
	if kind == RW {
		weight, capacity, wants = 1, lua.WriterWeight, lua.WriterWeight
	}
	s.Holders, s.Used, s.Capacity = nil, holders*weight, capacity
	for i := range min(holders, Most) {
		s.Holders = append(s.Holders, lua.Holder{
			Token: tokenOf(fmt.Sprintf("job-%d", i), i), Fence: s.Fence + uint64(i),
			Left: time.Duration(i+1) * time.Second, Weight: weight,
		})
	}
	for i := range s.Waiters {
		s.Waiters[i].Weight = wants
	}
	return lockOf(ID{kind, "api"}, s)
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// Each lock as status, watch and --json show it, and all of them as list does. The fields of the JSON are a promise to
// scripts: they are not renamed, nor do they change their meaning.
func TestLock_Texts(t *testing.T) {
	locks := []Lock{
		mutexOf(held(0)),
		mutexOf(held(6)), // two of the waiters have expired
		mutexOf(held(2), func(s *lua.Snapshot) { s.Now = noon.In(time.FixedZone("elsewhere", 3600)); s.Waiters = nil }),
		mutexOf(held(1), func(s *lua.Snapshot) { // nothing is known: there is no fence, or the server's clock has stepped back
			s.Holders[0] = lua.Holder{Token: "their\x1bsecret", Left: -time.Millisecond, Weight: 1}
			s.Waiters[0] = lua.Waiter{Token: "their\x1bsecret", Ticket: lua.Ticket(us(noon) + 1), Expires: time.UnixMicro(0), Weight: 1}
		}),
		mutexOf(held(0), func(s *lua.Snapshot) { s.Holders[0].Token = tokenOf(strings.Repeat("h", 60)+"-4711-Yx3a", 1) }),
		mutexOf(held(0), quarantined),
		mutexOf(held(1), released),
		mutexOf(held(0), released),
		mutexOf(held(0), released, func(s *lua.Snapshot) { s.Fence = us(noon) + 1 }),
		mutexOf(held(0), released, func(s *lua.Snapshot) { s.Fence = 0 }),
		shared(Semaphore, 1, 1), shared(Semaphore, 3, 0), shared(Semaphore, 3, 0), shared(RW, 1, 1),
		shared(RW, 2500, 2), mutexOf(held(0)), mutexOf(held(0)),
	}
	locks[12].Used, locks[14].Holders = 8, locks[14].Holders[:2]
	locks[15].Name, locks[16].Name = strings.Repeat("日", 9), "\x1b[31m\xff"
	writer := held(1)
	writer.Used, writer.Capacity, writer.Holders[0].Weight = lua.WriterWeight, lua.WriterWeight, lua.WriterWeight
	locks = append(locks, lockOf(ID{RW, "x"}, writer))
	var b strings.Builder
	for _, l := range locks {
		fmt.Fprintf(&b, "%s%s\n%s\n\n", text(l.Block(Paint{}, All)), l.Line(), l.JSON())
	}
	golden.Equal(t, "locks.txt", b.String()+text(Table(Paint{}, locks)))
	plain, coloured := Table(Paint{}, locks), Table(Paint{On: true}, locks)
	require.NotEqual(t, plain, coloured)
	for i := range plain {
		require.Equal(t, lipgloss.Width(plain[i]), lipgloss.Width(coloured[i]), "colours do not shift columns")
	}
	later := mutexOf(held(3), func(s *lua.Snapshot) { s.Now = noon.Add(time.Second); s.Holders[0].Left -= time.Second })
	require.Equal(t, mutexOf(held(3)).Line(), later.Line(), "it does not change with time")
	require.Contains(t, text(mutexOf(held(2500)).Block(Paint{}, All)), "\n  … and 1500 more\n")
	require.Equal(t, "[\n"+later.JSON()+",\n"+later.JSON()+"\n]\n", JSON([]Lock{later, later}))
}

// What has no room is counted, and holders and waiters share the room.
func TestLock_BlockFits(t *testing.T) {
	for _, l := range []Lock{
		mutexOf(held(0)), mutexOf(held(1)), mutexOf(held(2)), mutexOf(held(30)), shared(RW, 1, 0), shared(RW, 9, 1),
		shared(RW, 30, 0), shared(RW, 9, 8), shared(RW, 30, 30),
	} {
		for rows := range 25 {
			lines := l.Block(Paint{}, rows)
			require.LessOrEqual(t, len(lines), rows, l.ID)
			if len(lines) < 2 {
				require.Equal(t, []string{l.Line()}[:min(rows, 1)], lines, "a line has to do")
				require.Less(t, rows, 7)
				continue
			}
			counts := map[bool]int{} // of holders and, true, of waiters: those that are shown and those that are counted
			waiters := false
			for _, line := range lines[1:] {
				var n int
				switch _, err := fmt.Sscanf(line, "  … and %d more", &n); {
				case strings.HasPrefix(line, "  HOLDER "), strings.HasPrefix(line, "  #"):
					waiters = strings.HasPrefix(line, "  #")
				case err == nil:
					require.Greater(t, n, 1, "one more would have had that room")
					counts[waiters] += n
				default:
					counts[waiters]++
				}
			}
			require.Equal(t, []int{l.Used, l.Waiting}, []int{counts[false], counts[true]}, "%v in %d rows:\n%s", l.ID, rows, text(lines))
		}
		all := l.Block(Paint{}, All)
		require.Equal(t, all, l.Block(Paint{}, len(all)), "there is room for all")
	}
	for _, c := range []struct{ holders, waiters, rows, want int }{
		{30, 30, 13, 4}, {30, 1, 13, 8}, {2, 30, 13, 2}, {30, 30, 12, 3}, {30, 0, 13, 10},
	} {
		require.Equal(t, c.want, strings.Count(text(shared(RW, c.holders, c.waiters).Block(Paint{}, c.rows)), "job-"), c)
	}
}

func TestPlain(t *testing.T) {
	for _, name := range append([]string{"<&>", "\u009b31m", "\u202eevil", "\U000e0001tag", "\u2028", "a\x7fb", `"\`}, names...) {
		l := Lock{ID: ID{Mutex, name}}
		require.False(t, strings.ContainsFunc(l.JSON()+Plain(name), hides), "it would control a terminal")
		var d struct {
			Name   string `json:"name"`
			Base64 []byte `json:"name_base64"`
		}
		require.NoError(t, json.Unmarshal([]byte(l.JSON()), &d))
		if d.Base64 != nil {
			d.Name = string(d.Base64)
		}
		require.Equal(t, name, d.Name)
	}
	for text, want := range map[string]string{"a*{}%日本語": "a*{}%日本語", "": `""`, "a b": `"a b"`, "\u202e\x9b": `"\u202e\x9b"`, `\"`: `"\\\""`} {
		require.Equal(t, want, Plain(text))
	}
	for d, want := range map[time.Duration]string{
		0: "0ms", 999999 * time.Microsecond: "999ms", time.Second: "1.0s", 59999 * time.Millisecond: "59.9s", time.Minute: "1m00s",
		3599 * time.Second: "59m59s", 3*time.Hour + 5*time.Minute: "3h05m", 49 * time.Hour: "2d01h", -1500 * time.Millisecond: "-1.5s",
	} {
		require.Equal(t, want, span(d))
	}
}

// Of each name, the locks in use are shown, and if there are none the one that was used last.
func TestWorth(t *testing.T) {
	used, free, never := mutexOf(held(0)), Lock{ID: ID{Semaphore, "billing:42"}, Fence: 5}, Lock{ID: ID{RW, "billing:42"}}
	unused, other := Lock{ID: ID{"", "billing:42"}}, Lock{ID: ID{Mutex, "b"}, Fence: 1}
	waited := mutexOf(held(1), released, func(s *lua.Snapshot) { s.Waiters[0].Expires = noon }) // its WaiterTTL ends now
	require.False(t, waited.Waiters[0].Alive())
	for _, c := range []struct{ locks, want []Lock }{
		{nil, nil}, {[]Lock{used, free, never}, []Lock{used}}, {[]Lock{never, free}, []Lock{free}}, {[]Lock{never}, []Lock{never}},
		{[]Lock{never, never}, []Lock{unused}}, {[]Lock{other, used, free, used}, []Lock{other, used, used}}, {[]Lock{waited, free}, []Lock{waited}},
	} {
		require.Equal(t, c.want, Worth(c.locks))
	}
}

func TestChanges(t *testing.T) {
	var c Changes
	one, two := mutexOf(held(1)), mutexOf(held(2))
	free := lockOf(one.ID, lua.Snapshot{Now: noon, Fence: one.Fence})
	other, never := shared(RW, 1, 0), Lock{ID: ID{Semaphore, "billing:42"}}
	away := Glance{Err: errors.New("away\n\x1b!?x")}
	glance := func(locks ...Lock) Glance { return Glance{Locks: locks} }
	for _, step := range []struct {
		glance Glance
		want   []Lock
		fault  string
		why    string
	}{
		{glance(one, never, other), []Lock{one, other}, "", "at first, all that are worth it"},
		{glance(one, never, other), nil, "", "nothing has changed"},
		{glance(two, never, other), []Lock{two}, "", "another waiter"},
		{glance(free, never, other), []Lock{free}, "", "it was shown before"},
		{away, nil, "away  !?x", ""},
		{away, nil, "", "it was told"},
		{glance(two, never, other), []Lock{two}, "", "the others are as they were before"},
		{glance(other), nil, "", "this one is not looked at any more"},
		{glance(free, other), nil, "", "it is free and new"},
		{away, nil, "away  !?x", "again"},
	} {
		require.Equal(t, step.want, c.Of(step.glance), step.why)
		require.Equal(t, step.fault, c.Fault(step.glance), step.why)
	}
	require.Empty(t, (&Changes{}).Of(Glance{Locks: []Lock{{ID: ID{RW, "x"}}}, Err: away.Err}), "another kind may be in use")

	// A script is told what a line has no room for: that the last waiter has expired.
	full, lines := Changes{Full: true}, Changes{}
	l := mutexOf(held(6), func(s *lua.Snapshot) { s.Waiters[5].Expires = noon.Add(time.Second) })
	for _, c := range []struct {
		left        time.Duration
		full, lines int
	}{{time.Second, 1, 1}, {0, 1, 0}, {-time.Second, 0, 0}} {
		l.Waiters = slices.Clone(l.Waiters)
		l.Waiters[5].Patience = c.left
		require.Len(t, full.Of(glance(l)), c.full)
		require.Len(t, lines.Of(glance(l)), c.lines)
	}
}

func shows(table bool, locks ...Lock) screen {
	s := screen{every: time.Second, table: table, width: 80, height: 24}
	s.see(sight{Glance{Locks: locks}, noon})
	return s
}

// many are so many mutexes that are held.
func many(n int) []Lock {
	locks := make([]Lock, n)
	for i := range locks {
		locks[i] = mutexOf(held(0))
		locks[i].Name = fmt.Sprintf("job:%04d", i)
	}
	return locks
}

func TestScreen_FitsTheTerminal(t *testing.T) {
	wide := mutexOf(held(5))
	wide.Name = strings.Repeat("日", 300)
	locks := append([]Lock{wide, mutexOf(held(30)), shared(RW, 30, 3), shared(Semaphore, 3, 30)}, many(9)...)
	for _, on := range []bool{false, true} {
		for _, table := range []bool{false, true} {
			s := shows(table, locks...)
			s.paint.On, s.err = on, errors.New(strings.Repeat("long ", 100))
			for _, height := range []int{0, 1, 5, 6, 7, 24, 60} {
				for _, width := range []int{0, 1, 80} {
					lines := strings.Split(s.draw(width, height), "\n")
					require.LessOrEqual(t, len(lines), max(height, 1))
					for _, line := range lines {
						require.LessOrEqual(t, lipgloss.Width(line), width, "%dx%d: %q", width, height, line)
						require.True(t, on || !strings.Contains(line, "\x1b"))
					}
				}
			}
		}
	}
	for _, table := range []bool{false, true} {
		for height := 6; height < 60; height += 7 {
			picture, hidden := shows(table, many(50)...).draw(80, height), 0
			if _, rest, found := strings.Cut(picture, "… and "); found {
				_, err := fmt.Sscan(rest, &hidden)
				require.NoError(t, err)
			}
			require.Equal(t, 50, strings.Count(picture, "job:")+hidden, "%d rows:\n%s", height, picture)
		}
	}
}

func TestScreen_ShowsNamedLocksInFullAsFarAsThereIsRoom(t *testing.T) {
	s := shows(false, mutexOf(held(999)), shared(RW, 1, 0), Lock{ID: ID{"", "none"}})
	golden.Equal(t, "screen.txt", s.draw(80, 17)+"\n\n"+s.draw(80, 11)+"\n\n"+s.draw(80, 7)+"\n\n"+s.draw(80, 6)+"\n")
	s = shows(false, mutexOf(held(70)), shared(RW, 1, 70), shared(Semaphore, 1, 0))
	for height := 20; height < 60; height += 7 {
		lines := strings.Split(s.draw(80, height), "\n")
		require.Len(t, lines, height)
		require.NotEmpty(t, lines[height-3], "all the room is used, in %d rows", height)
	}
}

// What was seen last stays.
func TestScreen_Errors(t *testing.T) {
	s := screen{every: time.Second, table: true}
	away := errors.New("away\x1b")
	pictures := s.draw(80, 5)
	for _, g := range []Glance{
		{Err: away}, {}, {Locks: append(many(1), Lock{ID: ID{Mutex, "free"}, Fence: 1})},
		{Err: away}, {Locks: many(2), Err: away}, {Locks: many(2)},
	} {
		s.see(sight{g, noon})
		pictures += "\n\n" + s.draw(80, 7)
	}
	golden.Equal(t, "errors.txt", pictures+"\n")
}

func TestScreen_Keys(t *testing.T) {
	var model tea.Model = shows(true, many(50)...)
	first := func() string { return regexp.MustCompile(`job:\d+`).FindString(model.View().Content) }
	require.True(t, model.View().AltScreen)
	for _, step := range []struct {
		key  tea.KeyPressMsg
		want string
	}{
		{tea.KeyPressMsg{Code: tea.KeyUp}, "job:0000"}, {tea.KeyPressMsg{Code: tea.KeyDown}, "job:0001"},
		{tea.KeyPressMsg{Code: 'j', Text: "j"}, "job:0002"}, {tea.KeyPressMsg{Code: 'k', Text: "k"}, "job:0001"},
		{tea.KeyPressMsg{Code: tea.KeyPgDown}, "job:0019"}, {tea.KeyPressMsg{Code: tea.KeyPgUp}, "job:0001"},
		{tea.KeyPressMsg{Code: ' ', Text: " "}, "job:0019"}, {tea.KeyPressMsg{Code: tea.KeyPgDown}, "job:0037"},
		{tea.KeyPressMsg{Code: tea.KeyPgDown}, "job:0049"},
	} {
		var cmd tea.Cmd
		model, cmd = model.Update(step.key)
		require.Nil(t, cmd)
		require.Equal(t, step.want, first(), step.key)
	}
	require.Contains(t, model.View().Content, "50 locks in use, from number 50")
	model, _ = model.Update(sight{Glance{Locks: many(10)}, noon})
	require.Equal(t, "job:0009", first(), "there are fewer now")
	model, _ = model.Update(tea.KeyPressMsg{Code: tea.KeyHome})
	model, _ = model.Update(tea.WindowSizeMsg{Width: 30, Height: 8})
	require.Len(t, strings.Split(model.View().Content, "\n"), 8)
	require.Contains(t, model.View().Content, "… and 8 more locks")
	for _, quit := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: tea.KeyEscape}, {Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := model.Update(quit)
		require.Equal(t, tea.Quit(), cmd())
	}
}
