package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/history"
)

// order is what a client's process is told, after its role.
type order string

const (
	orderKeep    order = "keep"
	orderKeepAll order = "keep all"
	orderLetGo   order = "let go"
)

func keeping(all bool) order {
	if all {
		return orderKeepAll
	}
	return orderKeep
}

// Child plays one client: it reads its role and its orders from in, one JSON value each, and reports to out. It
// returns when in ends, which is also when the process that started it has died.
func Child(in io.Reader, out io.Writer) error {
	lines := json.NewDecoder(in)
	var r clientConfig
	if err := lines.Decode(&r); err != nil {
		return fmt.Errorf("no configuration (this command is started by demo): %w", err)
	}
	opts, err := Config{Redis: r.Redis}.options()
	if err != nil {
		return err
	}
	rdb := redis.NewClient(opts)
	defer func() { _ = rdb.Close() }()
	c, err := startWorkers(rdb, r, wall, reporter(out))
	if err != nil {
		return err
	}
	defer c.stop()
	return c.obey(lines)
}

// obey follows orders until there are no more.
func (c *workers) obey(lines *json.Decoder) error {
	for {
		var o order
		if err := lines.Decode(&o); err != nil {
			return nil //nolint:nilerr // the end of the orders, whatever ended them
		}
		switch o {
		case orderKeep, orderKeepAll:
			c.keep(o == orderKeepAll)
		case orderLetGo:
			c.letGo()
		default:
			return fmt.Errorf("unknown order %q", o)
		}
	}
}

// reporter writes reports as lines, each in one write, before it returns: a process that is killed has told
// everything that it did.
func reporter(out io.Writer) func(history.Event) {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	return func(e history.Event) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(e) // if nobody listens any more, the orders end, too
	}
}
