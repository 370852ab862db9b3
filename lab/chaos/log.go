//go:build unix

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// now is the time of an event: ns of CLOCK_MONOTONIC, which all processes of a machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // Linux has it
	}
	return t.Nano()
}

// nanos converts a time with a monotonic reading into ns of CLOCK_MONOTONIC, exact to less than a microsecond.
func nanos(t time.Time) int64 { return origin.at + int64(t.Sub(origin.time)) }

// origin is one moment by both clocks: the closest of some readings, for the processor may be taken away in between.
var origin = func() (o struct {
	time time.Time
	at   int64
}) {
	best := int64(-1)
	for range 100 {
		before := now()
		t := time.Now()
		if took := now() - before; best < 0 || took < best {
			best, o.time, o.at = took, t, before+took/2
		}
	}
	return o
}()

// writeEvent appends an event in one write(2). If the process is killed, half of its last line is lost at most.
func writeEvent(log *os.File, e history.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = log.Write(append(text, '\n'))
	return err
}

// readEvents reads the logs in a directory. The last line of a log may be torn.
func readEvents(dir string) (all []history.Event, err error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var e history.Event
			if err := json.Unmarshal(line, &e); err != nil && bytes.HasSuffix(line, []byte("\n")) {
				return nil, fmt.Errorf("%s: %w: %s", name, err, line)
			} else if err == nil {
				all = append(all, e)
			}
		}
	}
	return all, err
}
