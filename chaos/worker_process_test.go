package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// workerEnv makes the test binary a process of workers: it holds a processConfig in JSON. The process reads an order a
// line on its stdin and tells a report in JSON a line on its stdout. It ends when its stdin does, or its workers have
// ended. On its stderr it complains of what the library must not do.
const workerEnv = "FAIRLOCK_CHAOS_WORKER"

type processConfig struct {
	workersConfig

	Network, Addr string // of the server
	Logs          string // directory
}

// order is what a process is told.
type order string

const (
	hush  order = "hush"  // begin no new acquisitions; hushed is told when Redis knows of all that have begun
	speak order = "speak" // begin them again
	end   order = "end"   // hold nothing any longer, begin nothing, and end
)

// report is what a process tells.
type report struct {
	Event           string // ready, hushed, ended; paused: it stood still
	From, To        int64  // paused: ns, as in an Event
	Handed, Unheard int64  // ended: hand-overs that were used without asking, and wake-ups that were lost
}

// stillness is from when on a process is said to have stood still.
const stillness = 100 * time.Millisecond

// workerMain is the inside of a process of workers.
func workerMain(text string) {
	var cfg processConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic(err)
	}
	log, err := history.Create(cfg.Logs, cfg.Process)
	if err != nil {
		panic(err)
	}
	var out sync.Mutex // for whole lines
	tell := func(r report) {
		text, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		out.Lock()
		defer out.Unlock()
		_, _ = os.Stdout.Write(append(text, '\n'))
	}
	complain := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
	redis.SetLogger(silent{})
	options := &redis.Options{Network: cfg.Network, Addr: cfg.Addr}
	if !cfg.Calm {
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = cfg.TTL/2, cfg.TTL/2, cfg.TTL/2
	}
	rdb := redis.NewClient(options)
	w := newWorkers(cfg.workersConfig, rdb, history.Nanos, func(e history.Event) {
		if err := log.Write(e); err != nil {
			complain("log: %v", err)
		}
	}, complain)
	go w.heed(tell)
	go w.obey(tell)
	tell(report{Event: "ready"})
	w.run()
	_ = rdb.Close()
	if err := log.Close(); err != nil {
		complain("log: %v", err)
	}
	tell(report{Event: "ended", Handed: w.handed.Load(), Unheard: w.unheard.Load()})
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// obey carries out orders. When the parent has ended, or has no more to say, it ends the process.
func (w *workers) obey(tell func(report)) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch order(lines.Text()) {
		case hush:
			w.hush(true)
			go func() {
				if w.silence() {
					tell(report{Event: "hushed"})
				}
			}()
		case speak:
			w.hush(false)
		case end:
			w.end()
		default:
			panic("no such order: " + lines.Text())
		}
	}
	os.Exit(0)
}

// heed tells when this process stood still for a while, as happens on a busy machine.
func (w *workers) heed(tell func(report)) {
	for last := history.Now(); ; {
		time.Sleep(stillness / 4) // how late that ends is what is looked for
		now := history.Now()
		if now-last > int64(stillness) {
			w.paused.Store(now)
			tell(report{Event: "paused", From: last, To: now})
		}
		last = now
	}
}
