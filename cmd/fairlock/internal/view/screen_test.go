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

func TestThePictureFitsTheTerminal(t *testing.T) {
	wide := mutexOf(held(5))
	wide.Name = strings.Repeat("日", 300)
	locks := append([]Lock{wide, mutexOf(held(99)), shared(RW, 70, 3), shared(Semaphore, 3, 40)}, many(20)...)
	for _, on := range []bool{false, true} {
		for _, table := range []bool{false, true} {
			s := shows(table, locks...)
			s.paint.On = on
			s.err = errors.New(strings.Repeat("long ", 100))
			for _, height := range []int{0, 1, 2, 5, 6, 7, 13, 24, 60} {
				for _, width := range []int{0, 1, 10, 80, 200} {
					lines := strings.Split(s.draw(width, height), "\n")
					require.LessOrEqual(t, len(lines), max(height, 1))
					for _, line := range lines {
						require.LessOrEqual(t, lipgloss.Width(line), width, "%dx%d: %q", width, height, line)
						require.Equal(t, on && width > 0, on && width > 0 || strings.Contains(line, "\x1b"))
					}
				}
			}
		}
	}
}

var moreLocks = regexp.MustCompile(`… and (\d+) more locks?`)

func TestThePictureCountsTheLocksThatHaveNoRoom(t *testing.T) {
	for _, table := range []bool{false, true} {
		for height := 6; height < 70; height++ {
			picture := shows(table, many(50)...).draw(80, height)
			hidden := 0
			if found := moreLocks.FindStringSubmatch(picture); found != nil {
				_, err := fmt.Sscan(found[1], &hidden)
				require.NoError(t, err)
			}
			require.Equal(t, 50, strings.Count(picture, "job:")+hidden, "%d rows:\n%s", height, picture)
		}
	}
}

func TestNamedLocksAreShownInFullAsFarAsThereIsRoom(t *testing.T) {
	inUTC(t)
	s := shows(false, mutexOf(held(999)), shared(RW, 1, 0), Lock{ID: ID{"", "none"}})
	require.Equal(t, `fairlock watch                                                every 1s  12:00:00

mutex billing:42: held, 999 waiting
  HOLDER       HELD FOR  LEASE LEFT  FENCE             SINCE
  web-1:t001…  12.4s     8.1s        1795175987600000  2026-11-20 11:59:47
  #    WAITER                 WAITS FOR  STATE
  1    web-2:t002…            11.2s      alive, keeps its place for 5.1s
  2    web-3:t003…            11.1s      alive, keeps its place for 5.1s
  … and 997 more

rw api: held by 1 reader, nobody waits
  HOLDER       TO    HELD FOR  LEASE LEFT  FENCE             SINCE
  job-0:t000…  read  12.4s     1.0s        1795175987600000  2026-11-20 11:59:47

none: free, not used for a day

q ends it`, s.draw(80, 17))
	require.Equal(t, `fairlock watch                                                every 1s  12:00:00

mutex billing:42: held by web-1:t001…, fence 1795175987600000, 999 waiting: web…

rw api: held by 1 reader, nobody waits
  HOLDER       TO    HELD FOR  LEASE LEFT  FENCE             SINCE
  job-0:t000…  read  12.4s     1.0s        1795175987600000  2026-11-20 11:59:47

none: free, not used for a day

q ends it`, s.draw(80, 11))
	require.Equal(t, `fairlock watch                                                every 1s  12:00:00

mutex billing:42: held by web-1:t001…, fence 1795175987600000, 999 waiting: web…
rw api: held by job-0:t000… to read, fence 1795175987600000
none: free, not used for a day

q ends it`, s.draw(80, 7))
	require.Equal(t, `fairlock watch                                                every 1s  12:00:00

mutex billing:42: held by web-1:t001…, fence 1795175987600000, 999 waiting: web…
… and 2 more locks

q ends it`, s.draw(80, 6))
}

func TestNamedLocksUseAllTheRoomThereIs(t *testing.T) {
	s := shows(false, mutexOf(held(99)), shared(RW, 1, 99), shared(Semaphore, 1, 0))
	for height := 20; height < 60; height++ {
		lines := strings.Split(s.draw(80, height), "\n")
		require.Len(t, lines, height)
		require.NotEmpty(t, lines[height-3], "above the foot and an empty line, in %d rows", height)
	}
}

func TestThePictureBeforeAndAfterAnError(t *testing.T) {
	s := screen{every: time.Second, table: true}
	require.Contains(t, s.draw(80, 24), "looking …")
	s.see(sight{Glance{Err: errors.New("away\x1b")}, noon})
	require.NotContains(t, s.draw(80, 24), "looking …")
	require.Contains(t, s.draw(80, 24), "\naway ")
	s.see(sight{Glance{}, noon})
	require.Contains(t, s.draw(80, 24), "no lock is in use")
	s.see(sight{Glance{Locks: many(1)}, noon})
	s.see(sight{Glance{Err: errors.New("away")}, noon.Add(time.Hour)})
	require.Contains(t, s.draw(80, 24), "job:0000", "what was seen last stays")
	require.Contains(t, s.draw(80, 24), "since 12:00:00: away")
	s.see(sight{Glance{Locks: many(2), Err: errors.New("a part is away")}, noon})
	require.Contains(t, s.draw(80, 24), "job:0001")
	require.Contains(t, s.draw(80, 24), "a part is away")
	s.see(sight{Glance{Locks: many(2)}, noon})
	require.Contains(t, s.draw(80, 24), "q ends it")
}

func TestATableHasOnlyLocksInUse(t *testing.T) {
	s := shows(true, append(many(2), Lock{ID: ID{Mutex, "free"}, Fence: 1})...)
	require.NotContains(t, s.draw(80, 24), "NAME\nfree")
	require.Contains(t, s.draw(80, 24), "2 locks in use")
}

func TestKeysScrollAndEndIt(t *testing.T) {
	var model tea.Model = shows(true, many(50)...)
	press := func(code rune) tea.Cmd {
		var cmd tea.Cmd
		model, cmd = model.Update(tea.KeyPressMsg{Code: code, Text: printed(code)})
		return cmd
	}
	first := func() string { return regexp.MustCompile(`job:\d+`).FindString(model.View().Content) }
	require.True(t, model.View().AltScreen)
	require.Equal(t, "job:0000", first())
	for _, step := range []struct {
		key  rune
		want string
	}{
		{tea.KeyUp, "job:0000"}, {tea.KeyDown, "job:0001"}, {'j', "job:0002"}, {'k', "job:0001"},
		{tea.KeyPgDown, "job:0019"}, {tea.KeyPgUp, "job:0001"}, {tea.KeyPgDown, "job:0019"}, {' ', "job:0037"},
		{tea.KeyPgDown, "job:0049"}, {'x', "job:0049"},
	} {
		require.Nil(t, press(step.key))
		require.Equal(t, step.want, first())
	}
	require.Contains(t, model.View().Content, "50 locks in use, from number 50")
	model, _ = model.Update(sight{Glance{Locks: many(10)}, noon})
	require.Equal(t, "job:0009", first(), "there are fewer now")
	press(tea.KeyHome)
	require.Equal(t, "job:0000", first())

	model, _ = model.Update(tea.WindowSizeMsg{Width: 30, Height: 8})
	require.Len(t, strings.Split(model.View().Content, "\n"), 8)
	require.Contains(t, model.View().Content, "… and 8 more locks")

	for _, quit := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: tea.KeyEscape}, {Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := model.Update(quit)
		require.NotNil(t, cmd)
		require.Equal(t, tea.Quit(), cmd())
	}
}

func printed(code rune) string {
	if code < tea.KeyExtended && code != tea.KeyEscape {
		return string(code)
	}
	return ""
}
