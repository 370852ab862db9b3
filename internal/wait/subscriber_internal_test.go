package wait

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/task"
)

// A subscription that was up when a lock was granted, and has not brought the notification, is made again. That happens
// at most once a minute, because the reason can be a missing right of others to publish.
//
//fairlock:fault The user lacks rights
func TestSubscriber_Miss(t *testing.T) {
	for events, want := range map[string]string{ // ms, and what happens
		"":                                   "",
		"1000 miss":                          "1000 ended",
		"1000 miss, 1000 miss":               "1000 ended",
		"1000 down, 1001 miss":               "",
		"1000 again, 1001 late miss":         "", // of the subscription before
		"1000 miss, 60999 miss":              "1000 ended",
		"1000 miss, 61000 miss, 121000 miss": "1000 ended, 61000 ended, 121000 ended",
	} {
		f := newFake(t)
		s := &f.subscriber
		s.catchUp = func(task.Task) {}
		s.cancel = func(err error) {
			f.note("ended")
			wasUp, long := s.wentDown(err, true)
			s.report(err, wasUp, long)
			s.cameUp(task.Task{})
		}
		for event := range strings.SplitSeq(events, ", ") {
			ms, what, _ := strings.Cut(event, " ")
			n, _ := strconv.Atoi(ms)
			f.AfterFunc(at(n).Sub(begin), func() {
				switch what {
				case "miss":
					s.miss(s.count)
				case "late miss":
					s.miss(s.count - 1)
				case "down":
					s.wentDown(nil, true)
				case "again":
					s.wentDown(nil, true)
					s.cameUp(task.Task{})
				}
			})
		}
		f.pass(at(200_000))
		assert.Equal(t, want, f.happened(), events)
	}
}
