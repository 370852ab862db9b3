package wait

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/task"
)

// A subscription is replaced when 290 ms have passed after evidence, unless a message has arrived since the heartbeat
// was sent, or it was replaced shortly before. The pause doubles from a second to a minute, until a minute passes
// without evidence. The first one is logged: the reason can be that others may not publish.
//
//fairlock:fault The user lacks rights
func TestSubscriber_Evidence(t *testing.T) {
	for events, want := range map[string]string{ // ms, and what happens: evidence, or a message
		"0 message":                                "",
		"1000 evidence":                            "1290 1s",
		"1000 evidence, 1289 message":              "",
		"999 message, 1000 evidence":               "1290 1s logged", // of the message, which is none
		"1000 evidence, 1100 evidence":             "1290 1s",
		"1000 evidence, 1100 down":                 "",
		"1000 evidence, 2289 evidence":             "1290 1s",
		"1000 evidence, 2290 evidence":             "1290 1s, 2580 2s logged",
		"0 evidence, 1290 evidence, 3579 evidence": "290 1s, 1580 2s logged",
		"0 evidence, 1290 evidence, 3580 evidence, 7870 evidence, 16160 evidence, 32450 evidence, 64740 evidence, 125030 evidence, 185320 evidence": "290 1s, 1580 2s logged, 3870 4s, 8160 8s, 16450 16s, 32740 32s, 65030 1m0s, 125320 1m0s, 185610 1m0s",
		"1000 evidence, 62000 evidence": "1290 1s, 62290 2s logged", // the evidence went on
		"1000 evidence, 62001 evidence": "1290 1s, 62291 1s",        // it had stopped for a minute
	} {
		f := newFake(t)
		s := &f.subscriber
		s.catchUp = func(task.Task) {}
		var log strings.Builder
		f.env.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.cancel = func(err error) {
			wasUp, long := s.wentDown(err, true)
			s.report(err, wasUp, long)
			var silent silentError
			require.ErrorAs(t, err, &silent)
			f.note("%v%s", silent.pause, map[bool]string{true: " logged"}[log.Len() > 0])
			log.Reset()
			s.cameUp(task.Task{})
		}
		for event := range strings.SplitSeq(events, ", ") {
			ms, what, _ := strings.Cut(event, " ")
			n, _ := strconv.Atoi(ms)
			f.AfterFunc(at(n).Sub(begin), func() {
				switch what {
				case "evidence":
					s.missed(s.up(), f.Now())
				case "message":
					s.received("no notification")
				case "down":
					s.wentDown(nil, true)
				}
			})
		}
		f.pass(at(200_000))
		assert.Equal(t, want, f.happened(), events)
	}
}
