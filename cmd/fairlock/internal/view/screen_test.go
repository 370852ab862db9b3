package view

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"
)

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
	golden(t, "screen.txt", s.draw(80, 17)+"\n\n"+s.draw(80, 11)+"\n\n"+s.draw(80, 7)+"\n\n"+s.draw(80, 6)+"\n")
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
	golden(t, "errors.txt", pictures+"\n")
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
