package history_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// seen reads what a witness saw: a line is "<µs> <sight> [<token> [ticket, or until, of Heard]]" of lock "x".
func seen(t *testing.T, text string) []history.Witness {
	t.Helper()
	var all []history.Witness
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		number := func(i int) (n int64) {
			if i < len(words) {
				var err error
				n, err = strconv.ParseInt(words[i], 10, 64)
				require.NoError(t, err, line)
			}
			return n
		}
		w := history.Witness{At: number(0), Op: history.Sight(words[1]), Lock: "x"}
		if len(words) > 2 {
			w.Token = words[2]
		}
		if w.Op == history.Heard {
			w.Until = number(3)
		} else {
			w.Ticket = uint64(number(3))
		}
		all = append(all, w)
	}
	return all
}

func TestTheWitnessSeesTheQueueServedInOrder(t *testing.T) {
	none := story(t, "0 1 ask lock=y \n 1 1 granted lock=y fence=1 until=1000")
	server := []history.Rule{history.Server}
	for _, c := range []struct {
		name, seen string
		broken     []history.Rule
		why        string
	}{
		{name: "in order", seen: "1 given a \n 2 joins b 2 \n 3 joins c 3 \n 4 given b \n 5 given c \n 6 given d"},
		{name: "to one behind the head", seen: "1 given a \n 2 joins b 2 \n 3 joins c 3 \n 4 given c", broken: server},
		{name: "to one who is not there", seen: "1 given a \n 2 joins b 2 \n 4 given c", broken: server},
		{
			name: "to one behind the head, who left",
			seen: "1 given a \n 2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 given c",
		},
		{
			name: "to one behind the head, whose patience had run out",
			seen: "1 given a \n 2 joins b 2 \n 2 heard b 6000 \n 3 joins c 3 \n 5000 dropped b \n 5001 given c",
		},
		{
			name: "to one behind the head, whose patience had not run out", broken: server,
			seen: "1 given a \n 2 joins b 2 \n 2 heard b 6000 \n 3 joins c 3 \n 4999 dropped b \n 5001 given c",
		},
		{
			name: "to one behind the head, who was heard of again", broken: server,
			seen: `
				1    given a
				2    joins b 2
				2    heard b 6000
				3    heard b 7000
				3    joins c 3
				5500 dropped b
				5501 given c`,
		},
		{
			name: "to one behind the head, who was never heard of", why: "was not seen to be heard of",
			seen: "1 given a \n 2 joins b 2 \n 3 joins c 3 \n 4999 dropped b \n 5001 given c",
		},
		{
			name: "heard of by the end of its token", broken: server,
			seen: "2 joins client:123456789012345678 2 \n 2 heard 56789012345678 6000 \n 4999 dropped client:123456789012345678",
		},
		{
			name: "buried, which is no word of it", why: "was not seen to be heard of",
			seen: "2 joins b 2 \n 2 heard b -6000 \n 4999 dropped b",
		},
		{name: "dropped when it is not there", seen: "2 heard b 6000 \n 3 dropped b \n 4 leaves c"},
		{name: "in its old place", seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 joins b 2 \n 6 given b \n 7 given c"},
		{
			name: "not in its old place",
			seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 joins b 2 \n 7 given c", broken: server,
		},
		{name: "joins again where it is", seen: "2 joins b 2 \n 3 joins c 3 \n 4 joins b 2 \n 6 given b \n 7 given c"},
		{name: "joins again elsewhere", seen: "2 joins b 2 \n 3 joins c 3 \n 4 joins b 4 \n 6 given c", broken: server},
		{
			name: "comes back without its ticket",
			seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 joins b 5 \n 6 given c \n 7 given b",
		},
		{
			name: "comes back with another one",
			seen: "2 joins b 2 \n 3 joins c 3 \n 4 leaves b \n 5 joins b 1 \n 6 given b", broken: server,
		},
		{
			name: "comes back to find its ticket given to one of a lesser name",
			seen: "2 joins c 2 \n 3 leaves c \n 4 joins b 2 \n 5 joins c 2 \n 6 given b \n 7 given c",
		},
		{
			name: "comes back to find its ticket given to one of a greater name",
			seen: "2 joins b 2 \n 3 leaves b \n 4 joins c 2 \n 5 joins b 2 \n 6 given c", broken: server,
		},
		{name: "joins before others", seen: "3 joins b 3 \n 4 joins c 2", broken: server},
		{name: "joins with the ticket of another", seen: "3 joins b 3 \n 4 joins c 3", broken: server},
		{
			name: "joins before others, and something was missed",
			seen: "2 joins a 2 \n 3 blind \n 3 joins b 3 \n 4 joins c 2", why: "may come back",
		},
		{
			name: "to one who is not there, and something was missed",
			seen: "2 joins a 2 \n 3 blind \n 3 joins b 3 \n 4 given c", why: "was not seen to join",
		},
		{name: "to one who waited before something was missed", seen: "2 joins a 2 \n 3 blind \n 4 joins b 4 \n 5 given a"},
		{
			name: "to one who waited before something was missed, behind the head", broken: server,
			seen: "2 joins a 2 \n 3 joins b 3 \n 3 blind \n 4 joins a 2 \n 5 given b",
		},
		{
			name: "to one who is not there, and who waited before may have left unseen",
			seen: "2 joins a 2 \n 3 blind \n 4 given c",
		},
		{
			name: "to one behind the head, and something was missed",
			seen: "2 blind \n 3 joins b 3 \n 4 joins c 4 \n 5 given c", broken: server,
		},
		{
			name: "all is gone",
			seen: "2 joins b 2 \n 3 wiped \n 4 given c \n 5 joins d 5 \n 6 joins b 2 \n 7 given b \n 8 given d",
		},
		{
			name: "all is gone, and one joins before others",
			seen: "2 joins b 2 \n 3 wiped \n 5 joins d 5 \n 6 joins b 1", broken: server,
		},
		{name: "it rests", seen: "2 joins b 2 \n 3 given nobody:resting \n 4 given b"},
		{name: "another lock", seen: "2 joins b 2 \n 3 given a", broken: server},
		{name: "no such thing", seen: "2 sleeps b", broken: server},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := history.Witness{At: 1, Op: history.Given, Lock: "y", Token: token("1")}
			run := history.Run{Witness: append(seen(t, c.seen), other)}
			report := judged(t, none, run, c.broken...)
			if c.why != "" {
				exempted(t, report, history.Server, 1, c.why)
			} else {
				assert.Empty(t, report.Exempted[history.Server])
			}
		})
	}
}

func TestTheWitnessKnowsLocksApart(t *testing.T) {
	text := story(t, "0 1 ask lock=y \n 1 1 granted lock=y fence=1 until=1000")
	run := history.Run{Witness: []history.Witness{
		{Op: history.Joins, Lock: "x", Token: "a", Ticket: 2},
		{Op: history.Given, Lock: "y", Token: token("1")},
		{Op: history.Wiped, Lock: "y"},
	}}
	judged(t, text, run)
	run.Witness = append(run.Witness, history.Witness{Op: history.Given, Lock: "x", Token: "b"})
	judged(t, text, run, history.Server)
	run.Witness[2].Lock = "x"
	judged(t, text, run)
	run.Witness[2].Lock = ""
	judged(t, text, run)
}

func TestClientsTellWhatTheWitnessSaw(t *testing.T) {
	text := `
		0   1 ask
		1   1 granted fence=1000 until=890
		10  2 ask
		11  2 queued ticket=10000
		500 1 unlock
		502 1 released
		501 2 granted ticket=10000 fence=501000 until=1390
	`
	one, two := token("1"), token("2")
	server := []history.Rule{history.Server}
	for _, c := range []struct {
		name, seen string
		broken     []history.Rule
		why, says  string
	}{
		{name: "all", seen: "1 given %[1]s \n 2 joins %[2]s 10000 \n 3 given %[2]s"},
		{
			name: "a grant more, not heard of",
			seen: "1 given a \n 1 given %[1]s \n 2 joins %[2]s 10000 \n 3 given %[2]s \n 4 given %[2]s",
		},
		{name: "no grant", seen: "1 given %[1]s \n 2 joins %[2]s 10000", broken: server},
		{
			name: "no grant to the first", broken: server,
			seen: "2 joins %[2]s 10000 \n 3 given %[2]s \n 3 given a",
		},
		{
			name: "no grant, and something was missed",
			seen: "1000 given %[1]s \n 1001 joins %[2]s 10000 \n 1002 blind", why: "a grant may have been missed",
		},
		{name: "another order", seen: "2 joins %[2]s 10000 \n 3 given %[2]s \n 3 given %[1]s", broken: server},
		{name: "another ticket", seen: "1 given %[1]s \n 2 joins %[2]s 10001 \n 3 given %[2]s", broken: server},
		{
			name: "all, and it was wiped in between",
			seen: "1 given %[1]s \n 2 joins %[2]s 10000 \n 3 wiped \n 3 given %[2]s",
		},
		{
			name: "another ticket, and it was wiped",
			seen: "1 given %[1]s \n 2 joins %[2]s 10001 \n 3 wiped \n 3 given %[2]s", broken: server,
		},
		{name: "no ticket", seen: "1 given %[1]s \n 3 given %[2]s", broken: server, says: "did not see"},
		{
			name: "no ticket, and something was missed",
			seen: "0 blind \n 1000 given %[1]s \n 501000 given %[2]s", why: "coming may have been missed",
		},
		{
			name: "an earlier grant, and something was missed",
			seen: "2 joins %[2]s 10000 \n 3 given %[2]s \n 1000 given %[1]s \n 1001 blind", why: "a grant may have been missed",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := history.Run{Witness: seen(t, fmt.Sprintf(c.seen, one, two))}
			report := judged(t, story(t, text), run, c.broken...)
			if c.why != "" {
				exempted(t, report, history.Server, 1, c.why)
			}
			if c.says != "" {
				require.ErrorContains(t, report.Err(), c.says)
			}
		})
	}
}
