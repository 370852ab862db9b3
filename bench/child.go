package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// child says what a process of this program does that another one has started.
type child struct {
	Etcd  *etcdServer `json:",omitempty"` // it is a server
	Locks *lockHolder `json:",omitempty"` // it holds locks until it is killed

	Updates *updater `json:",omitempty"` // it updates a counter under a lock
}

// lockHolder holds locks of a peer. Its word for its parent is since when, as []time.Time.
type lockHolder struct {
	Peer, Addr string
	TTL        time.Duration
	Names      []string
}

const childVariable = "FAIRLOCK_BENCH_CHILD"

// command returns a process that does it, and its standard input. It ends when its parent ends: then its standard input
// does.
func (c child) command() (*exec.Cmd, io.Writer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	what, err := json.Marshal(c)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(what))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	return cmd, in, err
}

// runChild does what this process was started for, and does not return, if another one has started it.
func runChild() {
	what := os.Getenv(childVariable)
	if what == "" {
		return
	}
	var c child
	err := json.Unmarshal([]byte(what), &c)
	switch {
	case err != nil:
	case c.Etcd != nil:
		err = c.Etcd.run()
	case c.Updates != nil:
		err = c.Updates.run()
	default:
		err = c.Locks.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ready is what a child writes when it does what it is there for.
const ready = "ready"

// stay tells the parent, with a word for it, and waits until it ends.
func stay(word any) error {
	text, err := json.Marshal(word)
	if err != nil {
		return err
	}
	fmt.Println(ready, string(text))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (h *lockHolder) run() error {
	p, err := peerNamed(h.Peer)
	if err != nil {
		return err
	}
	s, err := p.open(h.Addr, h.TTL)
	if err != nil {
		return err
	}
	since := make([]time.Time, len(h.Names))
	for i, name := range h.Names {
		if _, err := s.lock(context.Background(), name); err != nil {
			return err
		}
		since[i] = time.Now()
	}
	return stay(since)
}
