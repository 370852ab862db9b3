package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is one that this program has started.
type server struct {
	title string // its name and version
	addr  string
	dir   string
	cmd   *exec.Cmd
	redis *redis.Client // nil: etcd
}

// usage is what a server has done since it was started.
type usage struct {
	commands float64
	cpu      float64 // seconds
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func startRedis(ctx context.Context, program string) (*server, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("bench needs redis-server (Debian: apt-get install redis-server): %w", err)
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fairlock-bench")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.CommandContext(ctx, path, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "",
		"--appendonly", "no",
		"--loglevel", "warning")
	cmd.Stderr = os.Stderr
	s := &server{addr: addr, dir: dir, cmd: cmd, redis: redis.NewClient(&redis.Options{Addr: addr})}
	if err := cmd.Start(); err != nil {
		s.stop()
		return nil, err
	}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // no event says so
		info, err := s.redis.InfoMap(ctx, "server").Result()
		if err == nil {
			s.title = "redis-server " + info["Server"]["redis_version"]
			if version := info["Server"]["valkey_version"]; version != "" {
				s.title = "valkey-server " + version
			}
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(until) {
			s.stop()
			return nil, fmt.Errorf("redis-server did not start: %w", err)
		}
	}
}

// has reports whether the Redis server has a command.
func (s *server) has(ctx context.Context, command string) bool {
	reply, err := s.redis.Do(ctx, "command", "info", command).Slice()
	return err == nil && len(reply) == 1 && reply[0] != nil
}

// startChild starts a child, waits until it is ready, and stores its word.
func startChild(ctx context.Context, cmd *exec.Cmd, word any) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	line := bufio.NewScanner(out)
	line.Scan()
	text, found := strings.CutPrefix(line.Text(), ready+" ")
	if !found {
		return errors.Join(fmt.Errorf("it wrote %q", line.Text()), line.Err(), ctx.Err())
	}
	return json.Unmarshal([]byte(text), &word)
}

func (s *server) stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it was killed
	}
	if s.redis != nil {
		_ = s.redis.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// clean makes a server forget what earlier cells have left. etcd keeps it; its names are never used again.
func (s *server) clean(ctx context.Context) error {
	if s.redis == nil {
		return nil
	}
	return s.redis.FlushAll(ctx).Err()
}

// usage counts only what the clients of a peer send.
func (s *server) usage(ctx context.Context, sends []string) (usage, error) {
	if s.redis == nil {
		return s.etcdUsage(ctx)
	}
	info, err := s.redis.InfoMap(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return usage{}, err
	}
	var u usage
	for key, value := range info["Commandstats"] {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, "cmdstat_"), "|")
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if n, err := strconv.ParseFloat(calls, 64); err == nil && slices.Contains(sends, name) {
			u.commands += n
		}
	}
	for _, key := range []string{"used_cpu_sys", "used_cpu_user"} {
		n, err := strconv.ParseFloat(info["CPU"][key], 64)
		if err != nil {
			return usage{}, err
		}
		u.cpu += n
	}
	return u, nil
}
