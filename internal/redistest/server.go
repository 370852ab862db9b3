// Package redistest starts private redis-servers for tests, and links to them that fail on demand. Nothing here skips:
// a test that needs redis-server fails where there is none.
package redistest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server of the test's own, on a Unix socket or a free port. It dies with the test process.
type Server struct {
	tb      testing.TB
	network string
	addr    string
	args    []string
	log     string

	mu  sync.Mutex
	cmd *exec.Cmd // guarded by mu; nil while stopped
}

// Start starts a redis-server on a Unix socket, without persistence unless args say otherwise.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	dir := tempDir(tb)
	socket := filepath.Join(dir, "s")
	return start(tb, dir, "unix", socket, append([]string{"--port", "0", "--unixsocket", socket}, args...))
}

// StartTCP starts one on a free port of the loopback interface.
func StartTCP(tb testing.TB, args ...string) *Server {
	tb.Helper()
	port := FreePort(tb)
	args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1"}, args...)
	return start(tb, tempDir(tb), "tcp", local(port), args)
}

// tempDir is short: the path of a Unix socket may have 107 bytes, and tb.TempDir holds the test's name.
func tempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "fairlock") //nolint:usetesting // tb.TempDir holds the test's name, see above
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func start(tb testing.TB, dir, network, addr string, args []string) *Server {
	tb.Helper()
	base := []string{"--save", "", "--appendonly", "no", "--dir", dir, "--loglevel", "warning", "--logfile", "log"}
	s := &Server{tb: tb, network: network, addr: addr, args: append(base, args...), log: filepath.Join(dir, "log")}
	tb.Cleanup(s.Kill)
	s.Run()
	return s
}

// Run starts the server again after Kill or Shutdown, and waits until it answers.
func (s *Server) Run() {
	s.tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatalf("these tests need redis-server (Debian: apt-get install redis-server): %v", err)
	}
	cmd := exec.Command(path, s.args...)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's ^C is for the tests
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
	rdb := redis.NewClient(s.Options())
	defer func() { _ = rdb.Close() }()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // no event tells
		err := rdb.Ping(context.Background()).Err()
		if err == nil {
			info, err := rdb.Info(context.Background(), "server").Result() // a test may have taken INFO away
			if err == nil && !strings.Contains(info, "process_id:"+strconv.Itoa(cmd.Process.Pid)+"\r\n") {
				s.tb.Fatalf("%s answers, and is another's:\n%s", s.addr, info)
			}
			return
		}
		if time.Now().After(until) {
			log, _ := os.ReadFile(s.log)
			s.tb.Fatalf("redis-server did not come up: %v\n%s", err, log)
		}
	}
}

// Options are how a client reaches the server.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Network: s.network, Addr: s.addr}
}

// Client returns a client of its own, closed when the test ends.
func (s *Server) Client() *redis.Client {
	rdb := redis.NewClient(s.Options())
	s.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Addr is the socket's path or the host and port.
func (s *Server) Addr() string { return s.addr }

// Network is "unix" or "tcp".
func (s *Server) Network() string { return s.network }

// Kill ends the server without a word, as a crash does.
func (s *Server) Kill() { s.stop(syscall.SIGKILL) }

// Shutdown ends it in order: it saves what it is configured to save.
func (s *Server) Shutdown() { s.stop(syscall.SIGTERM) }

func (s *Server) stop(sig syscall.Signal) {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	_ = cmd.Process.Signal(sig)
	_ = cmd.Wait()
}

// Running reports whether it was started and not ended.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd != nil
}

// Pause stops the process where it is: it accepts connections and bytes, and answers nothing.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.tb.Fatal("the server does not run")
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Fatal(err)
	}
}

// Info returns one field of INFO.
func Info(tb testing.TB, rdb redis.Cmdable, section, field string) string {
	tb.Helper()
	text, err := rdb.Info(context.Background(), section).Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	tb.Fatalf("INFO %s has no %s", section, field)
	return ""
}
