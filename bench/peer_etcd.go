package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var etcdPeer = peer{
	name: "etcd", module: "go.etcd.io/etcd/client/v3", onEtcd: true,
	settings: "`concurrency.Mutex`, one client for each process; one node, which does not wait for its disk " +
		"(`UnsafeNoFsync`); messages of gRPC count as commands",
	look: "`Done` of its session", fence: "its revision, compared by `fence.Postgres`",
	open: func(addr string, ttl time.Duration) (session, error) { return etcd.open(addr, ttl) },
}

// etcd is nil without the build tag nightly, because the modules of etcd take minutes to compile.
var etcd *etcdModules

// etcdModules is what needs the modules of etcd.
type etcdModules struct {
	version string
	open    func(addr string, ttl time.Duration) (session, error)
	serve   func(etcdServer) (ready <-chan struct{}, stop func(), err error)
}

// etcdServer is an etcd of one node, which a child runs.
type etcdServer struct{ Dir, Client, Peer string }

func (e *etcdServer) run() error {
	up, stop, err := etcd.serve(*e)
	if err != nil {
		return err
	}
	defer stop()
	select {
	case <-up:
		return stay(nil)
	case <-time.After(time.Minute):
		return fmt.Errorf("etcd is not ready")
	}
}

func startEtcd(ctx context.Context) (*server, error) {
	if etcd == nil {
		return nil, errors.New("this program is built without etcd; run it with -tags nightly")
	}
	dir, err := os.MkdirTemp("", "fairlock-bench")
	if err != nil {
		return nil, err
	}
	what := etcdServer{Dir: dir}
	client, errClient := freeAddr()
	peer, errPeer := freeAddr()
	if err := errors.Join(errClient, errPeer); err != nil {
		return nil, err
	}
	what.Client, what.Peer = client, peer
	s := &server{title: "etcd " + etcd.version, addr: client, dir: dir}
	if s.cmd, _, err = (child{Etcd: &what}).command(); err != nil {
		return nil, err
	}
	if err := startChild(ctx, s.cmd, nil); err != nil {
		s.stop()
		return nil, fmt.Errorf("etcd did not start: %w", err)
	}
	return s, nil
}

func (s *server) etcdUsage(ctx context.Context) (u usage, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/metrics", nil)
	if err != nil {
		return usage{}, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return usage{}, err
	}
	defer func() { _ = reply.Body.Close() }()
	lines := bufio.NewScanner(reply.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
		switch {
		case strings.HasPrefix(name, "grpc_server_msg_received_total{"):
			u.commands += n
		case name == "process_cpu_seconds_total":
			u.cpu = n
		}
	}
	return u, lines.Err()
}
