package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
)

// guard is a process that kills CMD's group if this one cannot: when it has been killed, or has been stopped for so
// long that the lease is about to end. CMD does not outlive the lease then either.
type guard struct {
	cmd   *exec.Cmd
	to    io.Writer
	limit time.Time // until when it lets the group live
	late  bool      // that had passed when a later one was to be told: the group is dead
	ended chan struct{}
}

const guardName = "run-guard"

// startGuard starts it; it does nothing until watch is called. The caller calls stop.
func startGuard() (*guard, error) {
	self, err := ourselves()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, guardName)
	cmd.Args[0] = os.Args[0]
	cmd.Env = []string{} // it needs none, least of all a password
	apart(cmd)
	to, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	g := &guard{cmd: cmd, to: to, ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(g.ended)
		_ = cmd.Wait()
	}()
	return g, nil
}

// revive starts another one if somebody has killed it. If that cannot be, it is tried again the next time.
func (g *guard) revive(group int) {
	select {
	case <-g.ended:
	default:
		return
	}
	if g.struck() {
		return
	}
	if fresh, err := startGuard(); err == nil {
		*g = *fresh
		g.watch(group)
	}
}

// ourselves is this program, as it is running: what bears its name may be another by now, or nothing, if it was replaced
// while we waited.
func ourselves() (string, error) {
	const running = "/proc/self/exe" // Linux
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// watch names the group.
func (g *guard) watch(group int) { g.tell(int64(group)) }

// until says when the group must be dead at the latest. It may be called often.
func (g *guard) until(t time.Time) {
	g.late = g.late || g.struck()
	g.limit = t
	g.tell(int64(time.Until(t)))
}

// struck reports whether the guard has killed the group, though the lease may have been renewed since: who is stopped
// and goes on between the two has lost CMD and not the lock.
func (g *guard) struck() bool { return g.late || !g.limit.IsZero() && time.Now().After(g.limit) }

// tell sends a number. If nobody hears it, the guard has done its work. One that has been stopped, by whomever, and reads
// no more is of no use, and is killed; revive starts another.
func (g *guard) tell(n int64) {
	const hearing = time.Second // a busy machine may take a while to let us write; that is no reason to kill it
	if pipe, ok := g.to.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		_ = pipe.SetWriteDeadline(time.Now().Add(hearing))
	}
	if err := binary.Write(g.to, binary.NativeEndian, n); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = g.cmd.Process.Kill()
	}
}

// stop ends the guard, and nothing else.
func (g *guard) stop() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// guardCommand is how run starts the guard.
func guardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guardName,
		Short:  "Kill CMD if run cannot",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(forwarded...)
			return withCode(exitFailure, watchOver(cmd.InOrStdin()))
		},
	}
}

// watchOver reads the group, and then, again and again, how many nanoseconds it may still live. It kills the group
// when they have passed, and when there is nobody any more who could say so.
func watchOver(in io.Reader) error {
	var group int64
	err := binary.Read(in, binary.NativeEndian, &group)
	if err == nil && group < 2 {
		err = errors.New("its number is wrong") // 1 would be everybody
	}
	if err != nil {
		return fmt.Errorf("no group (this command is started by run): %w", err)
	}
	left := make(chan time.Duration)
	go func() {
		defer close(left)
		for {
			var n int64
			if binary.Read(in, binary.NativeEndian, &n) != nil {
				return
			}
			left <- time.Duration(n)
		}
	}()
	var end <-chan time.Time
	for {
		select {
		case d, ok := <-left:
			if !ok {
				return killGroup(int(group))
			}
			end = time.After(d)
		case <-end:
			return killGroup(int(group))
		}
	}
}
