package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Read returns the events of logs, sorted by time; those of one process that have the same time in the order in which
// they were written. A path is that of a log, or of a directory whose logs are read. The last line of a log may be
// torn; anything else that is malformed is an error, and so are two logs of one process, and no log at all.
func Read(paths ...string) ([]Event, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if filepath.Ext(entry.Name()) == ext {
				files = append(files, filepath.Join(path, entry.Name()))
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no logs in %q", paths)
	}
	var all []Event
	whose := map[int]string{}
	for _, file := range files {
		events, err := readFile(file)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			continue // its process was killed before it did anything
		}
		if other, ok := whose[events[0].Process]; ok {
			return nil, fmt.Errorf("%s: process %d has another log, %s", file, events[0].Process, other)
		}
		whose[events[0].Process] = file
		all = append(all, events...)
	}
	slices.SortStableFunc(all, byTime)
	return all, nil
}

func byTime(a, b Event) int { return cmp.Compare(a.At, b.At) }

func readFile(name string) ([]Event, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var events []Event
	for n := 1; len(text) > 0; n++ {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		text = rest
		e, err := parse(line)
		if !whole && errors.Is(err, io.ErrUnexpectedEOF) {
			break // torn
		}
		if err == nil && len(events) > 0 && e.Process != events[0].Process {
			err = fmt.Errorf("process %d in the log of process %d", e.Process, events[0].Process)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		events = append(events, e)
	}
	return events, nil
}

func parse(line []byte) (e Event, err error) {
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&e); err != nil {
		return e, err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("more than one event in a line")
	}
	return e, e.check()
}
