//go:build unix

package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// childEnv holds the childConfig of a process of workers in JSON. The process reads an order a line on stdin and writes
// a report in JSON a line on stdout. It ends when stdin does, or when its workers have ended. On stderr it writes what
// the library must not do.
const childEnv = "FAIRLOCK_CHAOS_WORKER"

type childConfig struct {
	workersConfig

	Addrs  []string // of the servers, as in redis.UniversalOptions
	Master string   // as there
	Logs   string   // directory
}

// order is a command to a process.
type order string

const (
	finish order = "finish" // hold nothing any longer, begin nothing, and end
)

// report is what a process tells.
type report struct {
	Event    string // ended, or paused: it stood still
	From, To int64  // paused: ns, as in an Event
	// ended: handoffs that were used without a request, and notifications that were lost
	Handoffs, NotificationsLost int64
}

// stillness is from when on a process, or redis-server, counts as having stood still.
const stillness = 100 * time.Millisecond

// Child runs a process of workers, if this process was started as one, and reports whether it was.
func Child() bool {
	text, is := os.LookupEnv(childEnv)
	logging.Disable() // connections break here
	if is {
		var cfg childConfig
		if err := json.Unmarshal([]byte(text), &cfg); err != nil {
			panic(err)
		}
		runChild(cfg)
	}
	return is
}

func runChild(cfg childConfig) {
	log, err := os.OpenFile(filepath.Join(cfg.Logs, strconv.Itoa(cfg.Process)+".jsonl"),
		os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
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
	options := &redis.UniversalOptions{Addrs: cfg.Addrs, MasterName: cfg.Master}
	if !cfg.Calm {
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = ttl/2, ttl/2, ttl/2
	}
	rdb := redis.NewUniversalClient(options)
	w := newWorkers(cfg.workersConfig, rdb, func(e history.Event) {
		if err := writeEvent(log, e); err != nil {
			panic(err)
		}
	}, func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	})
	go w.watch(tell)
	go w.obey()
	w.run()
	_ = rdb.Close()
	tell(report{Event: "ended", Handoffs: w.handoffs.Load(), NotificationsLost: w.notificationsLost.Load()})
}

// obey carries out orders. When the parent has ended, or has no more to say, it ends the process.
func (w *workers) obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch order(lines.Text()) {
		case finish:
			w.end()
		default:
			panic("unknown order: " + lines.Text())
		}
	}
	os.Exit(0)
}

// watch reports when this process stood still for a while, as happens on a busy machine.
func (w *workers) watch(tell func(report)) {
	for last := now(); ; {
		time.Sleep(stillness / 4)
		at := now()
		if at-last > int64(stillness) {
			w.paused.Store(at)
			tell(report{Event: "paused", From: last, To: at})
		}
		last = at
	}
}
