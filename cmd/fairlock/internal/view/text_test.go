package view

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with that of a file.
func golden(t *testing.T, file, text string) {
	t.Helper()
	path := "testdata/" + file
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
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
	golden(t, "locks.txt", b.String()+text(Table(Paint{}, locks)))
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
