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

// order is what the guard is told, again and again. It knows when that was, for it may come to read it late.
type order struct {
	Group int64
	Left  int64 // ns that the group may still live
	Sent  int64 // Unix time in ns
}

// startGuard starts it; it does nothing until until is called. The caller calls stop.
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
func (g *guard) revive() {
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

// until says when the group must be dead at the latest. It may be called often.
func (g *guard) until(t time.Time, group int) {
	g.late = g.late || g.struck()
	g.limit = t
	now := time.Now()
	g.tell(order{Group: int64(group), Left: int64(t.Sub(now)), Sent: now.UnixNano()})
}

// struck reports whether the guard has killed the group, though the lease may have been renewed since: who is stopped
// and goes on between the two has lost CMD and not the lock.
func (g *guard) struck() bool { return g.late || !g.limit.IsZero() && time.Now().After(g.limit) }

// tell sends an order. If nobody hears it, the guard has done its work. One that has been stopped, by whomever, and reads
// no more is of no use, and is killed; revive starts another.
func (g *guard) tell(o order) {
	const hearing = time.Second // a busy machine may take a while to let us write; that is no reason to kill it
	if pipe, ok := g.to.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		_ = pipe.SetWriteDeadline(time.Now().Add(hearing))
	}
	if err := binary.Write(g.to, binary.NativeEndian, o); errors.Is(err, os.ErrDeadlineExceeded) {
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

// watchOver reads orders. It kills the group when the time of the last one has passed, and when there is nobody any more
// who could give another.
func watchOver(in io.Reader) error {
	var first order
	err := binary.Read(in, binary.NativeEndian, &first)
	if err == nil && first.Group < 2 {
		err = errors.New("its number is wrong") // 1 would be everybody
	}
	if err != nil {
		return fmt.Errorf("no group (this command is started by run): %w", err)
	}
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if binary.Read(in, binary.NativeEndian, &o) != nil {
				return
			}
			orders <- o
		}
	}()
	end := time.NewTimer(first.left())
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				return killGroup(int(first.Group))
			}
			end.Reset(o.left())
		case <-end.C:
			return killGroup(int(first.Group))
		}
	}
}

// left is how long the group may still live.
func (o order) left() time.Duration {
	age := time.Since(time.Unix(0, o.Sent))
	return time.Duration(o.Left) - max(age, 0) // a clock that has been set back gives nobody more
}
