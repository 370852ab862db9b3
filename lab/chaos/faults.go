//go:build unix

package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/tools/history"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/lab/chaos/internal/proxy"
)

// Faults of processes.

// idle returns a slot to whose process nothing is being done, locked.
func (t *trial) idle(d dice) *slot {
	for {
		if s := t.slots[d.IntN(len(t.slots))]; s.mu.TryLock() {
			return s
		}
		time.Sleep(ms) // all of them are busy
	}
}

// killProcess kills a process. Another one takes its place.
func killProcess(t *trial, d dice) error {
	s := t.idle(d)
	defer s.mu.Unlock()
	t.kill(s)
	t.count("process killed")
	return t.startLocked(s)
}

// kill kills the process in a slot.
func (t *trial) kill(s *slot) {
	span := history.Span{Process: s.process.cfg.Process, From: now()}
	s.process.kill()
	span.To = now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run.Kills = append(t.run.Kills, span)
}

// stopProcess stops a process for up to two TTLs.
func stopProcess(t *trial, d dice) error {
	s := t.idle(d)
	defer s.mu.Unlock()
	if err := s.process.stop(); err != nil {
		return err
	}
	span := history.Span{Process: s.process.cfg.Process, From: now()}
	t.sleep(d.between(ttl/10, 2*ttl))
	span.To = now()
	if err := s.process.resume(); err != nil {
		return err
	}
	t.mu.Lock()
	t.run.Pauses = append(t.run.Pauses, span)
	t.mu.Unlock()
	t.happened("process stopped", span.From)
	if span.To-span.From > int64(ttl) {
		t.count("process stopped for longer than TTL")
	}
	return nil
}

// Faults of the network.

// worsen makes the network of one slot worse for up to two TTLs.
func worsen(what string, how func(*proxy.Faults)) func(*trial, dice) error {
	return func(t *trial, d dice) error {
		return t.disturb(d, what, func(faults proxy.Faults, set func(proxy.Faults)) {
			how(&faults)
			set(faults)
			t.sleep(d.between(ttl/5, 2*ttl))
		})
	}
}

// slowThenHang lets one slot get all replies late for most of a TTL, and then nothing for longer than a TTL. So a lease
// must be counted from its request.
func slowThenHang(t *trial, d dice) error {
	return t.disturb(d, "network slow, then hung", func(faults proxy.Faults, set func(proxy.Faults)) {
		faults.Slow = ttl / 4
		set(faults)
		t.sleep(d.between(ttl/2, ttl))
		faults.Hung = true
		set(faults)
		t.sleep(ttl + ttl/4)
	})
}

// disturb changes the network of one slot for a while. Its processes count as unreachable then, for longer than
// necessary if only notifications are lost.
func (t *trial) disturb(d dice, what string, change func(proxy.Faults, func(proxy.Faults))) error {
	s := t.slots[d.IntN(len(t.slots))]
	if !s.disturbed.TryLock() {
		return nil
	}
	defer s.disturbed.Unlock()
	from, mute := now(), false
	change(*t.scenario.net, func(f proxy.Faults) {
		mute = f.Mute
		s.proxy.Set(f)
	})
	s.proxy.Set(*t.scenario.net)
	t.happened(what, from)
	if !mute {
		t.mu.Lock()
		s.unreachable = append(s.unreachable, history.Span{From: from, To: now() + int64(probing)})
		t.mu.Unlock()
	}
	return nil
}

// resetConnections resets all connections of a slot.
func resetConnections(t *trial, d dice) error {
	t.happened("connections of a process reset", now())
	t.slots[d.IntN(len(t.slots))].proxy.Reset()
	return nil
}

// Faults of redis-server.

// probing is how long go-redis may take to notice that a server is back: it tries once a second.
const probing = sec + 100*ms

// restart ends the server, does something, and starts it again after a while.
func (t *trial) restart(what string, d dice, end func(), meanwhile func() error) error {
	t.serving.Lock()
	defer t.serving.Unlock()
	from := now()
	end()
	var err error
	if meanwhile != nil {
		err = meanwhile()
	}
	if d.Float64() < 0.7 {
		t.sleep(d.upTo(ttl / 2))
	} else {
		t.sleep(d.upTo(2 * ttl))
	}
	t.server.Run()
	t.unreachable(from, now()+int64(probing))
	t.happened(what, from)
	return err
}

// killServer kills redis-server and starts it again. With appendfsync always it loses nothing that it has answered.
func killServer(t *trial, d dice) error {
	return t.restart("redis-server killed", d, t.server.Kill, nil)
}

func shutDownServer(t *trial, d dice) error {
	return t.restart("redis-server shut down", d, t.server.Shutdown, nil)
}

// stopServer stops redis-server for a time.
func stopServer(what string, d time.Duration) func(*trial, dice) error {
	return func(t *trial, _ dice) error {
		t.serving.Lock()
		defer t.serving.Unlock()
		from := now()
		t.server.Pause()
		t.sleep(d)
		t.server.Continue()
		t.unreachable(from, now())
		if now()-from >= int64(d) { // not cut short by the end
			t.happened(what, from)
		}
		return nil
	}
}

// flushScripts lets redis-server forget all scripts.
func flushScripts(t *trial, _ dice) error {
	t.serving.Lock()
	defer t.serving.Unlock()
	t.happened("SCRIPT FLUSH", now())
	return t.rdb.ScriptFlush(context.Background()).Err()
}

// killSubscribers lets redis-server reset all subscriptions.
func killSubscribers(t *trial, _ dice) error {
	t.serving.Lock()
	defer t.serving.Unlock()
	t.happened("CLIENT KILL TYPE pubsub", now())
	return t.rdb.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err()
}

// killClients lets redis-server reset all connections but subscriptions and the monitor's.
func killClients(t *trial, _ dice) error {
	t.serving.Lock()
	defer t.serving.Unlock()
	ctx := context.Background()
	t.happened("CLIENT KILL TYPE normal", now())
	list, err := t.rdb.ClientList(ctx).Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if slices.Contains(fields, "flags=N") {
			_, id, _ := strings.Cut(fields[0], "=") // it may be gone, or our own
			_ = t.rdb.ClientKillByFilter(ctx, "ID", id, "SKIPME", "yes").Err()
		}
	}
	return nil
}

// Losses of data.

// loseEverything kills redis-server, which comes back empty. The first request may be granted a lock whose holder has
// not noticed yet.
func loseEverything(t *trial, d dice) error {
	from := now()
	err := t.restart("redis-server empty", d, t.server.Kill, nil)
	t.lose(from)
	return err
}

// lose notes that Redis may have lost data since then: those of some locks, or of all if none is named.
func (t *trial) lose(since int64, locks ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(locks) == 0 {
		locks = []string{""}
	}
	for _, name := range locks {
		t.run.Losses = append(t.run.Losses, history.Loss{Lock: name, From: since, To: now()})
	}
}

// loseLastSecond kills redis-server, which comes back without its writes of the last second or less, as after a crash
// of the machine with appendfsync everysec.
func loseLastSecond(t *trial, d dice) error {
	from := now()
	file, size, err := t.appendOnlyFile()
	if err != nil {
		return err
	}
	t.sleep(d.upTo(sec))
	err = t.restart("redis-server without its last second", d, t.server.Kill,
		func() error { return os.Truncate(file, size) })
	t.lose(from)
	return err
}

// appendOnlyFile returns the name and the size of the server's append-only file.
func (t *trial) appendOnlyFile() (name string, size int64, err error) {
	t.serving.Lock()
	defer t.serving.Unlock()
	dir, err := t.rdb.ConfigGet(context.Background(), "dir").Result()
	if err != nil {
		return "", 0, err
	}
	all, err := filepath.Glob(filepath.Join(dir["dir"], "appendonlydir", "*.incr.aof"))
	if err != nil || len(all) != 1 {
		return "", 0, fmt.Errorf("want one append-only file, have %q: %w", all, err)
	}
	info, err := os.Stat(all[0])
	if err != nil {
		return "", 0, err
	}
	return all[0], info.Size(), nil
}

// Failovers, and slots that move.

// killPrimary kills a primary whose replica takes over, and which comes back as a replica. Every second one, about, has
// accepted no more writes since its replicas had all: nothing is lost then.
func killPrimary(t *trial, d dice) error {
	t.serving.Lock()
	defer t.serving.Unlock()
	old, err := t.primary()
	if err != nil {
		return err
	}
	from, what := now(), "primary killed"
	if d.IntN(2) == 0 {
		what = "primary killed, its replicas have everything"
		if err := t.freeze(old); err != nil {
			return err
		}
	}
	old.Kill()
	t.count("failovers")
	if err := t.succession(old); err != nil {
		return err
	}
	if what == "primary killed" {
		t.lose(from, t.losable...)
	}
	t.unreachable(from, now()+int64(probing))
	t.happened(what, from)
	t.sleep(d.upTo(t.run.TTL / 3)) // its locks go on without it
	old.Run()
	_, err = t.primary()
	return err
}

// failOver has the sentinels promote a replica. The old primary goes on, for clients that do not know yet, until the
// sentinels make it a replica, which takes them about 10 s. What it has written meanwhile is lost.
func failOver(t *trial, _ dice) error {
	t.serving.Lock()
	defer t.serving.Unlock()
	old, err := t.primary()
	if err != nil {
		return err
	}
	from := now()
	if err := await("the failover", func() bool {
		return t.sentinels[0].Failover(context.Background(),
			t.master).Err() == nil
	}); err != nil {
		return err
	}
	if err := t.succession(old); err != nil {
		return err
	}
	t.unreachable(from, now()+int64(probing))
	_, err = t.primary()
	t.lose(from)
	t.happened("planned failover", from)
	return err
}

// moveSlot moves the slot of a lock to another master, and back. It is open for some seconds. Only one moves at a time:
// two masters that send each other keys wait for each other.
func moveSlot(t *trial, d dice) error {
	name := t.locks[d.IntN(len(t.locks))]
	home, away := t.homes[name], t.servers[d.IntN(len(t.servers))]
	if away == home {
		return nil
	}
	open := func() { t.sleep(d.upTo(2 * sec)) }
	move := func(from, to *redistest.Server) {
		began := now()
		t.cluster.Move("{"+name+"}", from, to, open, open)
		t.happened("slot moved", began)
	}
	move(home, away)
	move(away, home)
	return nil
}

// Faults of the server's clock.

// stepBack steps the server's clock back by up to half a TTL.
func stepBack(t *trial, d dice) error { return t.step(-d.between(ttl/100, ttl/2)) }

// step steps the server's clock by up to two TTLs, forward or back, and never far away from the right time.
func step(t *trial, d dice) error {
	by := d.between(ttl/100, 2*ttl)
	if t.clock.Off() > 0 {
		by = -by
	}
	return t.step(by)
}

func (t *trial) step(by time.Duration) error {
	t.serving.Lock()
	defer t.serving.Unlock()
	from := now()
	if err := t.clock.Step(by); err != nil {
		return err
	}
	before := time.Now()
	is, err := t.rdb.Time(context.Background()).Result()
	if is = is.Add(-t.clock.Off()); err != nil || is.Before(before.Add(-100*ms)) || is.After(time.Now().Add(100*ms)) {
		return fmt.Errorf("the clock of redis-server should be off by %v, and is off by more: %v, %w", t.clock.Off(), is, err)
	}
	t.mu.Lock()
	t.steps = append(t.steps, clockStep{before, by})
	t.mu.Unlock()
	what := "clock stepped back"
	if by > 0 {
		t.lose(from)
		what = "clock stepped forward"
	}
	t.happened(what, from)
	return nil
}
