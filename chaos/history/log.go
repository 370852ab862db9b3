package history

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
)

// ext is how the names of logs end.
const ext = ".jsonl"

// Log is what one process writes. It is safe for concurrent use.
type Log struct {
	process int
	file    *os.File
}

// Create begins the log of a process in a directory. The number of the process must be new there.
func Create(dir string, process int) (*Log, error) {
	name := filepath.Join(dir, strconv.Itoa(process)+ext)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Log{process: process, file: file}, nil
}

// Write writes one line, in one write(2): a process that is killed loses no line that was written, and at most half of
// the one it was writing. Process is set, and At to Now if it is 0.
func (l *Log) Write(e Event) error {
	e.Process = l.process
	if e.At == 0 {
		e.At = Now()
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(text, '\n'))
	return err
}

// Close closes the file. What was written is there, whether it is called or not.
func (l *Log) Close() error { return l.file.Close() }
