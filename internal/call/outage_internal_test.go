package call

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/clock"
)

// An outage begins with a failure that another one follows a second or more later. It is over 5 s after the latest
// failure if a request has succeeded since (on a Cluster one for the lock whose request failed last). Otherwise it is
// over a minute after that failure. The next request logs that.
//
//fairlock:fault Redis is down for a while: the log has one line when that is known, a second after it begins, and one with the first request that finds that it is over, whatever requests fail
func TestOutage_BeginsAndEnds(t *testing.T) {
	const (
		begins = "outage begins: Redis does not serve this client"
		served = "outage is over: Redis serves this client again"
	)
	type lines = map[int]string                 // by ms
	for events, want := range map[string]lines{ // ms, what happens, and the lock
		"0 fails x, 10 succeeds x, 20 is 0":                                                  nil,
		"0 fails x, 999 fails x, 1000 succeeds x, 2000 is 0":                                 nil,
		"0 fails x, 1000 fails x, 1500 began 0, 3000 fails x, 3000 succeeds y, 7999 began 0": {1000: begins},
		"0 fails x, 1000 fails x, 3000 succeeds y, 6000 is 0, 6000 succeeds y, 7000 is 0": {1000: begins, 6000: served +
			" 1s"},
		"0 fails x, 1000 fails x, 20000 succeeds x, 20000 is 0": {1000: begins, 20000: served +
			" 1s"},
		"0 fails x, 1000 fails x, 60999 began 0, 61000 is 0, 70000 fails x, 70500 succeeds x": {1000: begins},
		"0 fails x, 1000 fails x, 2000 succeeds x, 5999 fails x, 11000 succeeds x": {
			1000: begins, 11000: served + " 5.999s"},
		"0 fails x, 1000 fails x, 2000 succeeds x, 8000 fails x, 8500 is 0": {1000: begins, 8000: served + " 1s"},
		"0 fails x, 1 succeeds x, 4999 fails x, 5000 began 0":               {4999: begins},
		"0 fails x, 1 succeeds x, 5000 fails x, 5999 fails x, 6000 is 0":    nil,
		"0 fails x, 59000 fails x, 59000 succeeds x, 64000 succeeds x":      {59000: begins, 64000: served + " 59s"},
		"0 fails x, 60000 fails x, 60001 is 0":                              nil,
		"cluster: 0 fails y, 1000 fails x, 1000 succeeds y, 7000 began 0, 8000 succeeds x, 8000 is 0": {
			1000: begins, 8000: served + " 1s"},
	} {
		fake := clock.NewFake(time.Unix(0, 0))
		var log lines
		o := account{clock: fake, begins: begins, over: served,
			log: slog.New(noting{slog.DiscardHandler, func(r slog.Record) {
				text := r.Message
				r.Attrs(func(a slog.Attr) bool {
					if a.Key == "lasted" {
						text += " " + a.Value.String()
					}
					return true
				})
				if log == nil {
					log = lines{}
				}
				log[int(fake.Now().UnixMilli())] = text
			}})}
		text, cluster := strings.CutPrefix(events, "cluster: ")
		o.oneLock = cluster
		for event := range strings.SplitSeq(text, ", ") {
			var at int64
			var what, of string
			_, err := fmt.Sscan(event, &at, &what, &of)
			assert.NoError(t, err, event)
			assert.Nil(t, fake.Next(time.UnixMilli(at)), "there are no timers")
			switch since, err := o.now(); what {
			case "fails":
				o.failed(of, errors.New("failed"))
			case "succeeds":
				o.succeeded(of)
			case "began":
				assert.Equal(t, of, fmt.Sprint(since.UnixMilli()), events)
				assert.Error(t, err, events)
			case "is":
				assert.Zero(t, since, events)
			}
		}
		assert.Equal(t, want, log, events)
	}
}

// noting is a slog.Handler that calls a function.
type noting struct {
	slog.Handler
	note func(slog.Record)
}

func (n noting) Enabled(context.Context, slog.Level) bool { return true }

func (n noting) Handle(_ context.Context, r slog.Record) error {
	n.note(r)
	return nil
}
