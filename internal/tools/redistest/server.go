// Package redistest starts private redis-servers for tests, and links to them that fail on demand. A test that needs
// redis-server fails, and is not skipped, where it is not installed.
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

// Silence keeps go-redis from reporting each connection that fails.
func Silence() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Server is a redis-server for one test, on a Unix socket or a free port. It is killed with the test process.
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

// StartTCP starts a redis-server on a free port of the loopback interface.
func StartTCP(tb testing.TB, args ...string) *Server {
	tb.Helper()
	port := FreePort(tb)
	args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1"}, args...)
	return start(tb, tempDir(tb), "tcp", local(port), args)
}

// tempDir returns a directory with a short path: that of a Unix socket is limited to 107 bytes, and tb.TempDir contains
// the test's name.
func tempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "fairlock") //nolint:usetesting // tb.TempDir contains the test's name, see above
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

const missing = "this test needs redis-server (Debian: apt-get install redis-server)"

// Run starts the server again after Kill or Shutdown, and waits until it replies.
func (s *Server) Run() {
	s.tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal(missing)
	}
	cmd := exec.Command(path, s.args...)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
	rdb := redis.NewClient(s.Options())
	defer func() { _ = rdb.Close() }()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // no event says so
		err := rdb.Ping(context.Background()).Err()
		if err == nil {
			info, err := rdb.Info(context.Background(), "server").Result() // a test may have denied INFO
			if err == nil && !strings.Contains(info, "process_id:"+strconv.Itoa(cmd.Process.Pid)+"\r\n") {
				s.tb.Fatalf("another server replies at %s:\n%s", s.addr, info)
			}
			return
		}
		if time.Now().After(until) {
			log, _ := os.ReadFile(s.log)
			s.tb.Fatalf("redis-server did not start: %v\n%s", err, log)
		}
	}
}

// Options returns the options of a client of the server.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Network: s.network, Addr: s.addr}
}

// Client returns a new client, closed when the test ends.
func (s *Server) Client() *redis.Client {
	rdb := redis.NewClient(s.Options())
	s.tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// User gives a user these rights, and returns the options of its clients. Its password is "secret".
func (s *Server) User(name string, rules ...string) *redis.Options {
	s.tb.Helper()
	args := []any{"acl", "setuser", name, "reset", "resetchannels", "on", ">secret"} // 6.2 gives all channels
	for _, rule := range rules {
		args = append(args, rule)
	}
	o := s.Options()
	rdb := redis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	if err := rdb.Do(context.Background(), args...).Err(); err != nil {
		s.tb.Fatal(err)
	}
	o = s.Options()
	o.Username, o.Password = name, "secret"
	return o
}

// Before7 says whether the server is older than Redis 7, which has EVAL_RO, and rules for keys that are only read.
func (s *Server) Before7() bool {
	s.tb.Helper()
	rdb := redis.NewClient(s.Options())
	defer func() { _ = rdb.Close() }()
	info, err := rdb.InfoMap(context.Background(), "server").Result()
	if err != nil {
		s.tb.Fatal(err)
	}
	return info["Server"]["redis_version"] < "7" // of two digits is none
}

// Addr is the socket's path or the host and port.
func (s *Server) Addr() string { return s.addr }

// Network is "unix" or "tcp".
func (s *Server) Network() string { return s.network }

// Kill kills the server, as a crash does.
func (s *Server) Kill() { s.stop(syscall.SIGKILL) }

// Shutdown stops the server in order: it saves its data as configured.
func (s *Server) Shutdown() { s.stop(syscall.SIGTERM) }

func (s *Server) stop(sig syscall.Signal) {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(sigContinue)
	_ = cmd.Process.Signal(sig)
	_ = cmd.Wait()
}

// Pause suspends the process: the system accepts connections and data for it, and it does not reply.
func (s *Server) Pause() { s.signal(sigStop) }

// Continue ends a Pause.
func (s *Server) Continue() { s.signal(sigContinue) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.tb.Fatal("the server is not running")
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Fatal(err)
	}
}

// Replicated waits until each replica has what the server has written so far. It compares offsets: WAIT knows only what
// its own connection has written, and a node of a cluster may refuse a write of ours.
func (s *Server) Replicated(replicas ...*Server) {
	s.tb.Helper()
	field := func(of *Server, name string) string {
		rdb := redis.NewClient(of.Options())
		defer func() { _ = rdb.Close() }()
		return Info(s.tb, rdb, "replication", name)
	}
	offset := func(of *Server, name string) int64 {
		n, err := strconv.ParseInt(field(of, name), 10, 64)
		if err != nil {
			s.tb.Fatal(err)
		}
		return n
	}
	written := offset(s, "master_repl_offset")
	for _, r := range replicas {
		for until := time.Now().Add(30 * time.Second); field(r, "master_link_status") != "up" ||
			offset(r, "slave_repl_offset") < written; {
			if time.Now().After(until) {
				s.tb.Fatalf("the replica %s has not caught up", r.Addr())
			}
			time.Sleep(10 * time.Millisecond) // no event says so
		}
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
