package chaos_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/chaos/history"
	"github.com/fairlock/fairlock-go/chaos/internal/proxy"
	"github.com/fairlock/fairlock-go/lua"
)

// What goes wrong with processes.

// free returns a slot to whose process nothing is being done, locked.
func (w *world) free(d dice) *slot {
	for {
		if s := w.slots[d.IntN(len(w.slots))]; s.mu.TryLock() {
			return s
		}
		time.Sleep(time.Millisecond) // all of them are busy
	}
}

// killProcess kills a process. Another takes its place.
func killProcess(w *world, d dice) error {
	s := w.free(d)
	defer s.mu.Unlock()
	from := history.Now()
	s.process.kill()
	to := history.Now()
	w.mu.Lock()
	w.run.Kills = append(w.run.Kills, history.Span{Process: s.process.cfg.Process, From: from, To: to})
	w.mu.Unlock()
	w.happened("process killed", from, to)
	return w.start(s)
}

// stopProcess stops a process for up to two TTLs.
func stopProcess(w *world, d dice) error {
	s := w.free(d)
	defer s.mu.Unlock()
	if err := s.process.stop(); err != nil {
		return err
	}
	from := history.Now()
	w.sleep(d.between(ttl/10, 2*ttl))
	to := history.Now()
	if err := s.process.resume(); err != nil {
		return err
	}
	w.mu.Lock()
	w.run.Stops = append(w.run.Stops, history.Span{Process: s.process.cfg.Process, From: from, To: to})
	w.mu.Unlock()
	w.happened("process stopped", from, to)
	if to-from > int64(ttl) {
		w.count("process stopped for longer than TTL")
	}
	return nil
}

// What goes wrong with the network.

// hang lets nothing pass between one slot and Redis for up to two TTLs. Then it arrives.
func hang(w *world, d dice) error {
	return w.worsen(d, "network hung", func(f *proxy.Faults) { f.Hung = true })
}

// cut cuts one slot off for up to two TTLs.
func cut(w *world, d dice) error {
	return w.worsen(d, "network cut", func(f *proxy.Faults) { f.Cut = true })
}

// deafen has one slot hear nothing of what is published, for up to two TTLs, without a word.
func deafen(w *world, d dice) error {
	return w.worsen(d, "subscription deaf", func(f *proxy.Faults) { f.Deaf = true })
}

// slowThenHang has one slot hear everything late for most of a TTL, and then nothing for longer than a TTL: whoever
// holds a lock must reckon from when he asked.
func slowThenHang(w *world, d dice) error {
	s := w.slots[d.IntN(len(w.slots))]
	if !s.storm.TryLock() {
		return nil
	}
	defer s.storm.Unlock()
	faults := *w.kind.net
	from := history.Now()
	faults.Slow = ttl / 4
	s.proxy.Set(faults)
	w.sleep(d.between(ttl/2, ttl))
	faults.Hung = true
	s.proxy.Set(faults)
	w.sleep(ttl + ttl/4)
	s.proxy.Set(*w.kind.net)
	to := history.Now()
	w.happened("network slow, then hung", from, to)
	w.unheard(s, from, to)
	return nil
}

// unheard notes that a slot's processes could not be heard.
func (w *world) unheard(s *slot, from, to int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.deaf = append(s.deaf, history.Span{From: from, To: to + int64(probing)})
}

func (w *world) worsen(d dice, what string, how func(*proxy.Faults)) error {
	s := w.slots[d.IntN(len(w.slots))]
	if !s.storm.TryLock() {
		return nil
	}
	defer s.storm.Unlock()
	faults := *w.kind.net
	how(&faults)
	from := history.Now()
	s.proxy.Set(faults)
	w.sleep(d.between(ttl/5, 2*ttl))
	s.proxy.Set(*w.kind.net)
	to := history.Now()
	w.happened(what, from, to)
	if !faults.Deaf {
		w.unheard(s, from, to)
	}
	return nil
}

// resetConnections resets all connections of a slot.
func resetConnections(w *world, d dice) error {
	now := history.Now()
	w.slots[d.IntN(len(w.slots))].proxy.Reset()
	w.happened("all connections of a process reset", now, now)
	return nil
}

// What goes wrong with Redis.

// probing is how long go-redis may take to find out that a server is there again: it tries once a second.
const probing = time.Second + 100*time.Millisecond

// down does something while the server is not there for a while, and notes that nobody could reach it.
func (w *world) down(what string, end func(), meanwhile func() error, d dice) error {
	w.serving.Lock()
	defer w.serving.Unlock()
	from := history.Now()
	end()
	err := meanwhile()
	if d.chance(0.7) {
		w.sleep(d.upTo(ttl / 2))
	} else {
		w.sleep(d.upTo(2 * ttl))
	}
	w.server.Run()
	to := history.Now()
	w.silence(history.Span{Process: history.Everybody, From: from, To: to + int64(probing)})
	w.happened(what, from, to)
	return err
}

func nothing() error { return nil }

// killServer kills redis-server and starts it again. With appendfsync always it forgets nothing that it has answered.
func killServer(w *world, d dice) error {
	return w.down("redis-server killed", w.server.Kill, nothing, d)
}

// shutDown ends redis-server in order and starts it again.
func shutDown(w *world, d dice) error {
	return w.down("redis-server shut down", w.server.Shutdown, nothing, d)
}

// stopServerShortly stops redis-server for half of the TTL.
func stopServerShortly(w *world, _ dice) error {
	return w.stopServer("redis-server stopped for half of TTL", ttl/2)
}

// stopServerForLong stops it for twice the TTL.
func stopServerForLong(w *world, _ dice) error {
	return w.stopServer("redis-server stopped for twice the TTL", 2*ttl)
}

func (w *world) stopServer(what string, long time.Duration) error {
	w.serving.Lock()
	defer w.serving.Unlock()
	from := history.Now()
	w.server.Pause()
	w.sleep(long)
	w.server.Continue()
	to := history.Now()
	w.silence(history.Span{Process: history.Everybody, From: from, To: to})
	if to-from >= int64(long) { // not cut short by the end
		w.happened(what, from, to)
	}
	return nil
}

// flushScripts has redis-server forget all scripts.
func flushScripts(w *world, _ dice) error {
	w.serving.Lock()
	defer w.serving.Unlock()
	now := history.Now()
	w.happened("SCRIPT FLUSH", now, now)
	return w.rdb.ScriptFlush(context.Background()).Err()
}

// killSubscribers has redis-server reset all subscriptions.
func killSubscribers(w *world, _ dice) error {
	w.serving.Lock()
	defer w.serving.Unlock()
	now := history.Now()
	w.happened("CLIENT KILL TYPE pubsub", now, now)
	return w.rdb.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err()
}

// killClients has redis-server reset all connections but subscriptions and the witness's.
func killClients(w *world, _ dice) error {
	w.serving.Lock()
	defer w.serving.Unlock()
	ctx, now := context.Background(), history.Now()
	w.happened("CLIENT KILL TYPE normal", now, now)
	list, err := w.rdb.ClientList(ctx).Result()
	if err != nil {
		return err
	}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if slices.Contains(fields, "flags=N") {
			_, id, _ := strings.Cut(fields[0], "=") // may be gone, or our own
			_ = w.rdb.ClientKillByFilter(ctx, "ID", id, "SKIPME", "yes").Err()
		}
	}
	return nil
}

// What Redis forgets.

// forget kills redis-server, which comes back empty, while the workers go on asking: those who come first may get a
// lock whose holder does not know yet.
func forget(w *world, d dice) error {
	from := history.Now()
	err := w.down("redis-server empty, while others ask", w.server.Kill, nothing, d)
	w.lose(from)
	return err
}

// lose notes that Redis has forgotten something since.
func (w *world) lose(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Losses = append(w.run.Losses, history.Loss{From: since, To: history.Now()})
}

// forgetQuietly does the same while nobody asks who does not wait already. Then nothing may be violated: a lock with
// waiters rests for one TTL, for the others nobody asks for so long.
func forgetQuietly(w *world, d dice) error {
	for _, s := range w.slots {
		s.mu.Lock() // nothing else is done to the processes
		defer s.mu.Unlock()
	}
	defer func() {
		for _, s := range w.slots {
			s.process.tell(speak)
		}
	}()
	for _, s := range w.slots {
		select {
		case <-s.process.hushed: // the last time, when somebody else was not
		default:
		}
		s.process.tell(hush)
	}
	for _, s := range w.slots {
		if !await(s.process.hushed, ttl+patience) {
			w.count("redis-server would have been empty, but the workers were not quiet")
			return nil
		}
	}
	w.sleep(200 * time.Millisecond) // what was asked and given up has arrived, or not
	for _, name := range w.locks {
		n, err := w.rdb.ZCard(context.Background(), lua.MutexKeys(lua.DefaultNamespace, name).Queue).Result()
		if err != nil {
			return err
		}
		if n > 0 {
			w.count("lock with waiters when redis-server came back empty")
		}
	}
	from := history.Now()
	err := w.down("redis-server empty, while nobody else asks", w.server.Kill, nothing, d)
	time.Sleep(ttl + ttl/10) // to the end
	w.mu.Lock()
	w.quiet = append(w.quiet, history.Loss{From: from, To: history.Now()})
	w.mu.Unlock()
	return err
}

// forgetLastSecond kills redis-server, which comes back without what it has written in up to a second, as a machine
// does that crashes under appendfsync everysec.
func forgetLastSecond(w *world, d dice) error {
	from := history.Now()
	var file string
	var size int64
	find := func() error {
		dir, err := w.rdb.ConfigGet(context.Background(), "dir").Result()
		if err != nil {
			return err
		}
		all, err := filepath.Glob(filepath.Join(dir["dir"], "appendonlydir", "*.incr.aof"))
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%q where one file was expected", all)
		}
		if err != nil {
			return err
		}
		file = all[0]
		info, err := os.Stat(file)
		if err == nil {
			size = info.Size()
		}
		return err
	}
	w.serving.Lock()
	err := find()
	w.serving.Unlock()
	if err != nil {
		return err
	}
	w.sleep(d.upTo(time.Second))
	err = w.down("redis-server without its last second", w.server.Kill, func() error { return os.Truncate(file, size) }, d)
	w.lose(from)
	return err
}

// What goes wrong with the server's clock.

// stepBack steps the server's clock back by up to half a TTL.
func stepBack(w *world, d dice) error { return w.step(-d.between(ttl/100, ttl/2)) }

// stepAnyway steps the server's clock by up to two TTLs, forward or back, and never far away from the right time.
func stepAnyway(w *world, d dice) error {
	by := d.between(ttl/100, 2*ttl)
	if w.clock.Off() > 0 {
		by = -by
	}
	return w.step(by)
}

func (w *world) step(by time.Duration) error {
	w.serving.Lock()
	defer w.serving.Unlock()
	from := history.Now()
	if err := w.clock.Step(by); err != nil {
		return err
	}
	w.mu.Lock()
	w.steps = append(w.steps, step{time.Now(), by})
	w.mu.Unlock()
	what := "clock stepped back"
	if by > 0 {
		w.lose(from)
		what = "clock stepped forward"
	}
	w.happened(what, from, history.Now())
	return nil
}
