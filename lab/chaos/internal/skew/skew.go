// Package skew gives a program a clock that a test can step while the program runs. It needs a C compiler and a program
// that is linked dynamically. (Debian's libfaketime cannot be used: it and jemalloc, which redis-server is built with,
// call each other without end.)
package skew

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

//go:embed src/skew.c
var source []byte

// Clock is the time of day of the programs that are started with its Env. It is safe for concurrent use.
type Clock struct {
	library, path string

	mu   sync.Mutex
	file *os.File      // guarded by mu
	by   time.Duration // guarded by mu
}

// New makes a clock that is not off yet. It puts its files into dir.
func New(dir string) (*Clock, error) {
	c := &Clock{library: filepath.Join(dir, "skew.so"), path: filepath.Join(dir, "skew")}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	text := filepath.Join(dir, "skew.c")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", c.library, text).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	var err error
	if c.file, err = os.Create(c.path); err != nil {
		return nil, err
	}
	return c, c.Step(0)
}

// Env is what the environment of a program must hold: names and values.
func (c *Clock) Env() map[string]string {
	return map[string]string{"LD_PRELOAD": c.library, "CHAOS_SKEW": c.path}
}

// Step moves the clock, at once.
func (c *Clock) Step(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += by
	var ns [8]byte
	binary.NativeEndian.PutUint64(ns[:], uint64(c.by))
	_, err := c.file.WriteAt(ns[:], 0)
	return err
}

// Off returns by how much it is off.
func (c *Clock) Off() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by
}

// Close releases what it uses. Programs that use it go on with the time they have.
func (c *Clock) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.file.Close(), os.Remove(c.library))
}
