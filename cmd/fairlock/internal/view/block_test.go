package view

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// inUTC has local times be those of the samples.
func inUTC(t *testing.T) {
	t.Helper()
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
}

func TestABlockTellsWhoHoldsAndWhoWaits(t *testing.T) {
	inUTC(t)
	require.Equal(t, `mutex billing:42: held, 3 waiting
  HOLDER       HELD FOR  LEASE LEFT  FENCE             SINCE
  web-1:t001…  12.4s     8.1s        1795175987600000  2026-11-20 11:59:47
  #  WAITER       WAITS FOR  STATE
  1  web-2:t002…  11.2s      alive, keeps its place for 5.1s
  2  web-3:t003…  11.1s      alive, keeps its place for 5.1s
  3  web-4:t004…  11.1s      silent, its patience ran out 3.0s ago
`, text(mutexOf(held(3)).Block(Paint{}, All)))
	require.Equal(t, `semaphore api: 4 of 8 permits held, 1 waiting
  HOLDER       PERMITS  HELD FOR  LEASE LEFT  FENCE             SINCE
  job-0:t000…  2        12.4s     1.0s        1795175987600000  2026-11-20 11:59:47
  job-1:t001…  2        12.3s     2.0s        1795175987600001  2026-11-20 11:59:47
  #  WAITER       PERMITS  WAITS FOR  STATE
  1  web-2:t002…  3        11.2s      alive, keeps its place for 5.1s
`, text(shared(Semaphore, 2, 1).Block(Paint{}, All)))
	require.Equal(t, `rw api: held by 1 reader, 1 waiting
  HOLDER       TO    HELD FOR  LEASE LEFT  FENCE             SINCE
  job-0:t000…  read  12.4s     1.0s        1795175987600000  2026-11-20 11:59:47
  #  WAITER       TO     WAITS FOR  STATE
  1  web-2:t002…  write  11.2s      alive, keeps its place for 5.1s
`, text(shared(RW, 1, 1).Block(Paint{}, All)))
}

func TestABlockOfWhatNobodyHolds(t *testing.T) {
	free := held(1)
	free.Holders, free.Used = nil, 0
	shown := func() string { return text(mutexOf(free).Block(Paint{}, All)) }
	require.Contains(t, shown(), "mutex billing:42: free, 1 waiting: the first who is alive")
	free.Waiters, free.Waiting = nil, 0
	require.Equal(t, "mutex billing:42: free, last granted 12.4s ago (fence 1795175987600000)\n", shown())
	free.Fence = us(noon) + 1
	require.Equal(t, "mutex billing:42: free, last fence 1795176000000001\n", shown())
	free.Fence = 0
	require.Equal(t, "mutex billing:42: free, not used for a day\n", shown())
	rests := held(0)
	rests.Holders[0].Token = lua.Quarantined
	require.Equal(t, "mutex billing:42: rests for another 8.1s because Redis had lost its data, nobody waits\n",
		text(mutexOf(rests).Block(Paint{}, All)))
}

func TestWhatIsNotOursIsNotShown(t *testing.T) {
	snap := held(1)
	snap.Holders[0].Token, snap.Holders[0].Left = "their\x1bsecret", -time.Millisecond
	snap.Waiters[0].Token = "their\x1bsecret"
	l := mutexOf(snap)
	for _, shown := range []string{text(l.Block(Paint{}, All)), text(Table(Paint{}, []Lock{l})), l.Line(), l.JSON()} {
		require.NotContains(t, shown, "secret")
		require.NotContains(t, shown, "\x1b")
	}
	require.Contains(t, text(l.Block(Paint{}, All)), "(not a token of ours)  12.4s     never ends")
	require.Contains(t, text(Table(Paint{}, []Lock{l})), "(not ours)  12.4s     never ends")
	require.Contains(t, l.JSON(), `"client":null,"id":null,`)
	require.Contains(t, l.JSON(), `"lease_left_ms":null`)
}

func TestNoTokenIsShownWhole(t *testing.T) {
	for _, l := range []Lock{mutexOf(held(3)), shared(Semaphore, 2, 2), shared(RW, 2, 2)} {
		for _, shown := range []string{text(l.Block(Paint{}, All)), text(Table(Paint{}, []Lock{l})), l.Line(), l.JSON()} {
			require.Regexp(t, "web-|job-", shown)
			require.NotContains(t, shown, "SSSS")
		}
	}
}

var (
	more       = regexp.MustCompile(`… and \d+ more`)
	holderHead = regexp.MustCompile(`^  HOLDER `)
	waiterHead = regexp.MustCompile(`^  # +WAITER `)
)

func TestABlockFitsAndCountsWhatHasNoRoom(t *testing.T) {
	for _, l := range []Lock{
		mutexOf(held(0)), mutexOf(held(1)), mutexOf(held(2)), mutexOf(held(99)), mutexOf(held(2500)),
		shared(RW, 1, 0), shared(RW, 9, 1), shared(RW, 99, 0), shared(RW, 9, 8), shared(RW, 2500, 99),
	} {
		for rows := range 25 {
			lines := l.Block(Paint{}, rows)
			require.LessOrEqual(t, len(lines), rows, l.ID)
			if len(lines) == 0 {
				require.Zero(t, rows)
				continue
			}
			if len(lines) == 1 {
				require.Equal(t, l.Line(), lines[0], "a line has to do")
				require.Less(t, rows, 7)
				continue
			}
			// Of the holders and of the waiters: those that are shown and those that are counted are all.
			for _, section := range []struct {
				head *regexp.Regexp
				all  int
			}{{holderHead, l.Used}, {waiterHead, l.Waiting}} {
				shown, inside := 0, false
				for _, line := range lines[1:] {
					switch {
					case holderHead.MatchString(line), waiterHead.MatchString(line):
						inside = section.head.MatchString(line)
					case inside && more.MatchString(line):
						var n int
						_, err := fmt.Sscanf(line, "  … and %d more", &n)
						require.NoError(t, err)
						require.Greater(t, n, 1, "one more would have had that room")
						shown += n
					case inside:
						shown++
					}
				}
				require.Equal(t, section.all, shown, "%v in %d rows:\n%s", l.ID, rows, text(lines))
			}
		}
		if l.Waiting <= Most && l.Used <= Most {
			all := l.Block(Paint{}, All)
			require.Equal(t, all, l.Block(Paint{}, len(all)), "there is room for all")
		}
	}
	require.Contains(t, text(mutexOf(held(2500)).Block(Paint{}, All)), "\n  … and 1500 more\n")
	require.Contains(t, text(mutexOf(held(999)).Block(Paint{}, 7)), "\n  … and 997 more\n")
}

func TestHoldersAndWaitersShareTheRoom(t *testing.T) {
	for _, c := range []struct{ holders, waiters, rows, want int }{
		{99, 99, 13, 4}, {99, 1, 13, 8}, {2, 99, 13, 2}, {99, 99, 12, 3}, {99, 0, 13, 10},
	} {
		shown := text(shared(RW, c.holders, c.waiters).Block(Paint{}, c.rows))
		require.Equal(t, c.want, strings.Count(shown, "job-"), "%v\n%s", c, shown)
		require.Len(t, strings.Split(shown, "\n"), c.rows+1)
	}
}

func TestTheRestOfASemaphoresHoldersIsCountedInPermits(t *testing.T) {
	l := shared(Semaphore, 4, 0)
	l.Holders = l.Holders[:3]
	require.Contains(t, text(l.Block(Paint{}, All)), "  … and more, with 2 permits\n")
	require.Contains(t, text(l.Block(Paint{}, 4)), "  … and more, with 6 permits\n")
}

func TestATableHasALineForEachLock(t *testing.T) {
	wide := mutexOf(held(0))
	wide.Name = strings.Repeat("日", 500)
	odd := mutexOf(held(0))
	odd.Name = "\x1b[31mred"
	queue := held(3)
	queue.Holders, queue.Used = nil, 0
	rests := held(0)
	rests.Holders[0].Token = lua.Quarantined
	writer := held(0)
	writer.Used, writer.Capacity, writer.Holders[0].Weight = lua.WriterWeight, lua.WriterWeight, lua.WriterWeight
	long := held(0)
	long.Holders[0].Token = tokenOf(strings.Repeat("h", 60)+"-4711-Yx3a", 1)
	some := shared(Semaphore, 4, 2)
	some.Holders = some.Holders[:3]
	many := shared(RW, 2500, 2)
	many.Holders = many.Holders[:10]
	require.Equal(t, `KIND       IN USE        HOLDER                                    HELD FOR  LEASE LEFT  WAITING  NAME
mutex      held          web-1                                     12.4s     8.1s        0        `+wide.Name+`
mutex      held          web-1                                     12.4s     8.1s        0        "\x1b[31mred"
mutex      free          -                                         -         -           3        billing:42
mutex      rests         -                                         -         -           0        billing:42
rw         writer        web-1                                     12.4s     8.1s        0        billing:42
mutex      held          hhhhhhhhhhhhhhhhhhhh…hhhhhhhhh-4711-Yx3a  12.4s     8.1s        0        billing:42
semaphore  6/8           job-0 +2                                  12.4s     1.0s        2        api
semaphore  8/8           job-0 +2…                                 12.4s     1.0s        2        api
rw         2500 readers  job-0 +2499                               12.4s     1.0s        2        api
`, text(Table(Paint{}, []Lock{
		wide, odd, mutexOf(queue), mutexOf(rests), lockOf(ID{RW, "billing:42"}, writer), mutexOf(long),
		shared(Semaphore, 3, 2), some, many,
	})))
}

func TestColoursDoNotShiftColumns(t *testing.T) {
	rests := held(0)
	rests.Holders[0].Token = lua.Quarantined
	locks := []Lock{mutexOf(held(0)), mutexOf(rests)}
	plain, coloured := Table(Paint{}, locks), Table(Paint{On: true}, locks)
	require.NotEqual(t, plain, coloured)
	for i := range plain {
		require.Equal(t, lipgloss.Width(plain[i]), lipgloss.Width(coloured[i]))
	}
}
