//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/token"
)

// guard is a process that kills CMD's group if this one cannot. It does so when this one was killed, or was stopped for
// so long that the lease is about to end. So CMD never outlives the lease. If this process has died, the guard also
// releases the lock.
type guard struct {
	cmd   *exec.Cmd
	to    io.Writer
	ward  ward
	limit time.Time // when it kills the group
	late  bool      // limit had passed when a later one was set: the group is dead
	ended <-chan struct{}
}

const guardName = "run-guard"

// ward is the lease that a guard releases. The guard gets it over a pipe, which no other process can read.
type ward struct {
	Redis     string // the URL, with its password
	TLS       tlsFiles
	Namespace string
	ID        inspect.ID
	Token     string
	Fence     uint64
	TTL       time.Duration // of its renewals; the token has the minimum hold if that is longer
	Kept      time.Time     // the lock stays taken until then; zero if there is no minimum hold
}

// order is a message to the guard. It has the time when it was sent, because the guard may read it late.
type order struct {
	Ward  *ward         `json:",omitempty"` // in the first
	Group int           // 0: there is none yet
	Left  time.Duration // how long the group may still live
	Sent  time.Time
}

// startGuard starts a guard. It kills nothing before until is called. The caller calls stop.
func startGuard(w ward) (*guard, error) {
	self, err := ourselves()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, guardName)
	cmd.Args[0] = os.Args[0]
	cmd.Env = []string{} // without the password
	// signals to our group, such as those of a terminal, are not for it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	to, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	ended, err := started.start(cmd, func(int) { _ = cmd.Wait() })
	if err != nil {
		return nil, err
	}
	g := &guard{cmd: cmd, to: to, ward: w, ended: ended}
	g.tell(order{Ward: &w})
	return g, nil
}

// revive starts another guard if this one was killed. If that fails, the next call tries again.
func (g *guard) revive() {
	select {
	case <-g.ended:
		if fresh, err := startGuard(g.ward); err == nil && !g.struck() {
			*g = *fresh
		}
	default:
	}
}

// ourselves returns the path of this running program. While we waited, the file of its name may have been replaced or
// removed.
func ourselves() (string, error) {
	const running = "/proc/self/exe" // Linux
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// until sets the time at which the group must be dead. It may be called often.
func (g *guard) until(t time.Time, group int) {
	g.late = g.late || g.struck()
	g.limit = t
	g.tell(order{Group: group, Left: time.Until(t), Sent: time.Now()})
}

// struck reports whether the guard has killed the group. The lease may have been renewed since: a process that was
// stopped and continued after the kill has lost CMD but not the lock.
func (g *guard) struck() bool { return g.late || !g.limit.IsZero() && time.Now().After(g.limit) }

// tell sends an order. If nobody reads it, the guard has done its work. A guard that was stopped and reads nothing is
// killed, and revive starts another.
func (g *guard) tell(o order) {
	const hearing = time.Second // on a busy machine, a write may take a while
	if pipe, ok := g.to.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		_ = pipe.SetWriteDeadline(time.Now().Add(hearing))
	}
	if err := json.NewEncoder(g.to).Encode(o); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = g.cmd.Process.Kill()
	}
}

// stop ends the guard. CMD goes on.
func (g *guard) stop() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// guardCommand is the hidden command by which run starts the guard.
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

// watchOver reads orders. It kills the group when the time of the last order has passed, or when the process that sends
// orders has died.
func watchOver(in io.Reader) error {
	orders, read := make(chan order), json.NewDecoder(in)
	var first order
	err := read.Decode(&first)
	if err == nil && first.Ward == nil {
		err = errors.New("the first order has none")
	}
	if err != nil {
		return fmt.Errorf("no lease (this command is started by run): %w", err)
	}
	go func() {
		defer close(orders)
		for {
			var o order
			if read.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	slack := first.Ward.TTL / 80 // a guard that got no CPU for a while reads the pending orders first
	last, late, end := order{}, false, time.NewTimer(0)
	end.Stop()
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				return first.Ward.leave(last)
			}
			last, late = o, false
			end.Reset(o.left())
		case <-end.C:
			if late {
				return killGroup(last.Group)
			}
			late = true
			end.Reset(slack)
		}
	}
}

// left returns how long the group may still live.
func (o order) left() time.Duration {
	return o.Left - max(time.Since(o.Sent), 0) // a clock that was set back must not add time
}

// leave kills the group of a process that has died, and releases its lock once all of the group has ended.
func (w *ward) leave(last order) error {
	if err := killGroup(last.Group); err != nil || !emptied(last.Group, last.left()) {
		return errors.Join(err, errors.New("CMD still runs"))
	}
	t, err := token.Parse(w.Token)
	if err != nil {
		return err
	}
	terms := t.Terms()
	terms.Flags = tokens.Released
	rest, err := token.Parse(tokens.New(t.Client(), terms))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.TTL()) // then the lease has ended by itself
	defer cancel()
	c := connection{redis: w.Redis, namespace: w.Namespace, tls: w.TLS}
	rdb, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	lock, _ := script.Of(dispatch.NewDirect(rdb), string(w.ID.Kind), w.Namespace, w.ID.Name)
	kept := min(time.Until(w.Kept), t.TTL()) // a clock that was set back must not keep it longer
	h, err := lock.Release(ctx, t, w.Fence, script.Rest{Left: kept, By: rest})
	for more := h.More; more && err == nil; {
		more, err = lock.Admit(ctx)
	}
	return err
}
