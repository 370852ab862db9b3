package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// facts is what a server says about itself in the replies to HELLO, INFO and CONFIG. What it does not tell is missing.
type facts struct {
	told   map[string]string // by the words of INFO: maxmemory_policy, not maxmemory-policy as in CONFIG
	info   error             // why INFO tells nothing
	config error             // why CONFIG tells nothing
	// why the server does not write now, as it has replied: MISCONF, for example; "" if it does, or if that is not known
	writes string
}

// gather sends HELLO, which every user may, CONFIG (one setting at a time: before version 7 it takes no more) and INFO.
// The error is one of the connection.
func (s *server) gather(ctx context.Context) (f facts, err error) {
	if f.told, err = inspect.Hello(ctx, s.rdb); err != nil {
		return f, err
	}
	for _, name := range []string{
		"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write", "lazyfree-lazy-expire",
	} {
		setting := map[string]string{}
		f.config = s.Refused.ask(s.address, "config get", func() (err error) {
			setting, err = s.rdb.ConfigGet(ctx, name).Result()
			return err
		})
		if f.config != nil {
			break
		}
		f.told[strings.ReplaceAll(name, "-", "_")] = setting[name]
	}
	info := ""
	f.info = s.Refused.ask(s.address, "info", func() (err error) {
		info, err = s.rdb.Info(ctx).Result()
		return err
	})
	maps.Copy(f.told, fields(info, "\n"))
	for _, err := range []error{f.config, f.info} {
		if err != nil && !inspect.Refused(err) {
			return f, err
		}
	}
	return f, nil
}

// Refused remembers which commands a user may not call, so that they are not sent again: the server notes each in its
// ACL LOG. The zero value is ready to use, and nil remembers nothing.
type Refused struct {
	mu    sync.Mutex
	until map[string]time.Time // guarded by mu: by server and command
	reply map[string]error     // guarded by mu
}

// forgotten is after how long a command is tried again: the user may have been given the right.
const forgotten = time.Hour

// ask calls f, which sends a command, unless that was refused lately. Then it returns the same error.
func (r *Refused) ask(server, command string, f func() error) error {
	if r == nil {
		return f()
	}
	key := server + " " + command
	r.mu.Lock()
	until, before := r.until[key], r.reply[key]
	r.mu.Unlock()
	if time.Now().Before(until) {
		return before
	}
	err := f()
	if inspect.Lacks(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.until == nil {
			r.until, r.reply = map[string]time.Time{}, map[string]error{}
		}
		r.until[key], r.reply[key] = time.Now().Add(forgotten), err
	}
	return err
}

// fields reads a text as in the reply to INFO.
func fields(text, separator string) map[string]string {
	m := map[string]string{}
	for field := range strings.SplitSeq(text, separator) {
		if i := strings.IndexAny(field, ":="); i > 0 {
			m[field[:i]] = strings.TrimRight(field[i+1:], "\r")
		}
	}
	return m
}

// number is a fact that is one.
func (f facts) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(f.told[name], 10, 64)
	return n, err == nil
}

// untold says why a check has nothing to go by.
func (f facts) untold() Finding { return unreported(cmp.Or(f.info, f.config)) }

func unreported(refused error) Finding {
	if refused == nil {
		return is(Unchecked, "the server does not report it")
	}
	return is(Unchecked, "%s", inspect.Cause(refused))
}

// check is one check: its test, and what to do about anything but ok.
type check struct {
	name   string
	test   func(*server, context.Context) (Finding, error) // the error says why it could not be made
	advice string
	paste  string // a line for redis-cli that does it; "" if there is none for all cases
}

// told is a test of what the server says about itself.
func told(judge func(facts) Finding) func(*server, context.Context) (Finding, error) {
	return func(s *server, _ context.Context) (Finding, error) { return judge(s.facts), nil }
}

func version(f facts) Finding {
	major, minor := f.version()
	for _, other := range []string{"dragonfly", "keydb"} {
		if v := f.told[other+"_version"]; v != "" {
			return is(Warning, "%s %s; fairlock is tested on Redis and Valkey", other, v).
				advise("rely on the trial lock; docs/compatibility.md has the servers on which the tests have run", "")
		}
	}
	switch {
	case f.told["valkey_version"] != "":
		return is(OK, "Valkey %s", f.told["valkey_version"])
	case major == 0:
		return f.untold()
	case major < 6 || major == 6 && minor < 2:
		return is(Problem, "Redis %d.%d; the scripts need Redis 6.2", major, minor)
	}
	return is(OK, "Redis %d.%d", major, minor)
}

// version is that of Redis, or of the one that another product is compatible with; 0 if it is not known.
func (f facts) version() (major, minor int) {
	_, _ = fmt.Sscanf(cmp.Or(f.told["redis_version"], f.told["version"]), "%d.%d", &major, &minor)
	return major, minor
}

func role(f facts) Finding {
	switch r := f.told["role"]; {
	case f.told["mode"] == "sentinel":
		return is(Problem, "a Sentinel, which keeps no locks; name the master in the URL")
	case r == "":
		return f.untold()
	case r != "master":
		return is(Problem, "read-only replica of %s:%s; connect to the primary", f.told["master_host"], f.told["master_port"])
	}
	return is(OK, "primary")
}

func eviction(f facts) Finding {
	policy := f.told["maxmemory_policy"]
	limit, known := f.number("maxmemory")
	switch {
	case policy == "":
		return f.untold()
	case policy == "noeviction":
		return is(OK, "maxmemory-policy is noeviction")
	case known && limit == 0:
		return is(Warning, "maxmemory-policy is %s; nothing is evicted as long as maxmemory is 0", policy)
	}
	return is(Problem, "maxmemory-policy is %s: an evicted lock can have two holders, an evicted queue loses its order",
		policy)
}

func memory(f facts) Finding {
	limit, told := f.number("maxmemory")
	used, known := f.number("used_memory")
	switch share := 100 * used / max(limit, 1); {
	case !told || limit > 0 && !known:
		return f.untold()
	case limit == 0:
		return is(OK, "no limit (maxmemory 0)")
	case share >= 95:
		return is(Problem, "%d %% of maxmemory used", share)
	case share >= 80:
		return is(Warning, "%d %% of maxmemory used", share)
	default:
		return is(OK, "%d %% of maxmemory used", share)
	}
}

func persistence(f facts) Finding {
	on := f.told["appendonly"] + f.told["aof_enabled"]
	const status = "INFO persistence"
	const disk = "the server's log says why: check its disk space, the permissions of its directory, " +
		"and its memory"
	switch fsync := f.told["appendfsync"]; {
	case f.told["loading"] == "1":
		return is(Problem, "the server is still loading its data, and refuses everything").
			advise("wait until it has loaded them; INFO persistence says how long that takes", status)
	case strings.HasPrefix(f.writes, "MISCONF"):
		return is(Problem,
			"it cannot save its data, and refuses writes (MISCONF): no lock is granted or renewed").advise(
			disk, status)
	case f.told["aof_last_write_status"] == "err":
		return is(Problem, "it cannot write its append-only file, and refuses writes (MISCONF)").advise(disk, status)
	case f.told["rdb_last_bgsave_status"] == "err":
		return is(Warning, "its last snapshot failed: by default, it then refuses writes (MISCONF)").advise(disk,
			status)
	case on == "":
		return f.untold()
	case !strings.ContainsAny(on, "y1"): // yes, 1
		return is(Warning,
			"appendonly is no: a restart loses all locks, and two can hold one until the first one's next renewal")
	case fsync == "no":
		return is(Warning, "appendfsync is no: a crash of the machine may lose the grants of half a minute").
			advise("set it, also in redis.conf", "CONFIG SET appendfsync everysec")
	default:
		return is(OK, "appendonly, appendfsync %s", cmp.Or(fsync, "is not reported"))
	}
}

func expiry(f facts) Finding {
	switch f.told["lazyfree_lazy_expire"] {
	case "": // INFO does not have it
		return unreported(f.config)
	case "no":
		return is(Warning,
			"lazyfree-lazy-expire is no: when a queue of 100,000 waiters expires, the server blocks for about 20 ms")
	}
	return is(OK, "lazyfree-lazy-expire is yes")
}

func replicas(f facts) Finding {
	if f.told["connected_slaves"] == "" {
		return f.untold()
	}
	const longLag = 10 // seconds; Redis's own default for min-replicas-max-lag
	const link, status = "check the replicas, their logs and the network", "INFO replication"
	n := 0
	for ; f.told[fmt.Sprint("slave", n)] != ""; n++ { // slave0:ip=…,port=…,state=…,offset=…,lag=…
		replica := fields(f.told[fmt.Sprint("slave", n)], ",")
		if lag, _ := strconv.Atoi(replica["lag"]); replica["state"] != "online" || lag > longLag {
			return is(Warning, "replica %s:%s is %s, last heard from %d s ago; a failover loses what it has not received",
				replica["ip"], replica["port"], replica["state"], lag).advise(link, status)
		}
	}
	want, told := f.number("min_replicas_to_write")
	good, counted := f.number("min_slaves_good_slaves") // told only if some are wanted
	switch {
	case counted && good < want:
		return is(Problem, "%d of the %d replicas for min-replicas-to-write keep up: every lock is refused (NOREPLICAS)",
			good, want).advise(link, status)
	case n == 0:
		return is(OK, "none: no failover can lose locks, and no lock works while this server is down")
	case told && want == 0:
		return is(Warning,
			"%s, and min-replicas-to-write is 0, so a primary that is cut off grants locks that a failover loses",
			inspect.Count(n, "replica"))
	}
	return is(OK, "%s, none lags", inspect.Count(n, "replica"))
}
