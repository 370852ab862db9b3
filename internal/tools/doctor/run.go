package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// Options are what Run needs to know.
type Options struct {
	Namespace string
	Address   string  // of the server, as it was given
	For       Purpose // of the user; Use if empty
	Progress  func(server, check string)
	Refused   *Refused // what the user may not call, from one Run to the next; nil: each begins anew
}

const tls = "rediss:// is for servers with TLS, redis:// for those without"

// The checks, in the order in which they are made.
var checks = []check{
	{"reachable", (*server).reachable, "", ""},
	{"version", told(version), "upgrade to Redis 6.2 or later", ""},
	{"role", told(role), "connect to the primary, or by Sentinel; see help connection", ""},
	{"cluster", (*server).cluster, "check its nodes, and which slots are not served", "CLUSTER INFO"},
	{"rights", (*server).rights, "give the user what it lacks", ""},
	{"trial lock", (*server).locks, "see what the other checks say", ""},
	{"eviction", told(eviction), "set it, also in redis.conf", "CONFIG SET maxmemory-policy noeviction"},
	{"memory", told(memory), "raise maxmemory, or find out what fills it: a full server refuses locks (OOM)",
		"MEMORY STATS"},
	{"persistence", told(persistence),
		"set it, with appendfsync everysec; else, after a restart, keep the port closed for the longest TTL",
		"CONFIG SET appendonly yes"},
	{"expiry", told(expiry), "set it, also in redis.conf", "CONFIG SET lazyfree-lazy-expire yes"},
	{"replicas", told(replicas), "set it, with min-replicas-max-lag 10", "CONFIG SET min-replicas-to-write 1"},
	{"latency", (*server).latency, "look at the network, and at what keeps the server busy; a renewal has a third of TTL",
		"LATENCY DOCTOR"},
	{"slow", (*server).slow, "find out who sends it, or what slows the server down: every lock waits meanwhile",
		"SLOWLOG GET 10"},
	{"keys", (*server).keys, "delete them if their locks are not in use; give locks a namespace of their own", ""},
	{"layout", (*server).layout,
		"run versions with one layout in a namespace; docs/operating.md, Upgrading, has the steps", ""},
}

// Checks are the names of all checks, in order.
func Checks() (names []string) {
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Run checks the server, or every master of a cluster, one after the other. If ctx ends, the rest is unchecked. For a
// user of locks, it locks two of its own. Nothing else is written, and nothing stays.
func Run(ctx context.Context, rdb redis.UniversalClient, o Options) Report {
	o.For = cmp.Or(o.For, Use)
	r := Report{Namespace: o.Namespace, Checks: []Finding{}}
	before7 := false
	for _, s := range servers(ctx, rdb, o, &r) {
		s.check(ctx, &r)
		major, _ := s.facts.version()
		before7 = before7 || major == 6
	}
	r.Rights = RightsIn(o.Namespace, before7)
	return r
}

// Unreachable is the report on a server that cannot be reached.
func Unreachable(o Options, err error) Report {
	r := Report{Namespace: o.Namespace, Rights: RightsIn(o.Namespace, false)}
	r.add(checks[0].name, o.Address, broken(err))
	return r
}

// cures are what to do about an error of a connection with these words; the first that match count.
var cures = []struct{ words, advice string }{
	{"WRONGPASS", "check the user's name and password"},
	{"NOAUTH", "give a user and a password; see help connection"},
	{"DENIED",
		"set a password on the server, or bind it to an address that only your own hosts reach, and end its protected mode"},
	{"max number of clients", "find out who holds connections (CLIENT LIST), or raise maxclients"},
	{"DB index", "check the database number at the end of the URL"},
	{"cluster support disabled", "it is not a cluster: leave cluster and addr out of the URL"},
	{"cluster", "the user of a cluster needs +cluster|slots; see help connection"},
	{"all sentinels", "check the Sentinels' addresses and the name of the master"},
	{"x509:", "check the certificate, and the name in the URL"},
	{"tls:", tls},
	{"no answer", "check whether it hangs, and firewalls; " + tls},
	{"i/o timeout", "check whether it hangs, and firewalls"},
	{"EOF", tls + "; else check proxies and firewalls in between"},
	{"", "check its address and port, whether it runs, and firewalls"},
}

func cure(err error) string {
	for _, c := range cures {
		if strings.Contains(err.Error(), c.words) {
			if c.words == "" && inspect.Refused(err) {
				return "the server replied that; its documentation and its log may say why"
			}
			return c.advice
		}
	}
	panic("doctor: the last words are in every error")
}

// server is one server that is checked.
type server struct {
	Options
	rdb     *redis.Client         // this server
	all     redis.UniversalClient // what locks would use
	address string
	name    string // of a lock on it that nobody else has; empty if no lock lives there

	facts      facts
	unnotified bool           // the check of rights says why no notification comes
	layouts    map[string]int // how many locks have which, as far as the check of keys has seen
}

// servers finds the servers to check. What goes wrong is in the report.
func servers(ctx context.Context, rdb redis.UniversalClient, o Options, r *Report) (all []*server) {
	if single, ok := rdb.(*redis.Client); ok {
		return []*server{{Options: o, rdb: single, all: rdb, address: o.Address, name: lockName()}}
	}
	cluster := rdb.(*redis.ClusterClient)
	var mu sync.Mutex
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		address := c.Options().Addr
		all = append(all, &server{Options: o, rdb: c, all: rdb, address: address,
			name: nameOn(ctx, cluster, address, o.Namespace)})
		return nil
	})
	if err != nil {
		r.add(checks[0].name, o.Address, broken(err))
	}
	slices.SortFunc(all, func(a, b *server) int { return cmp.Compare(a.address, b.address) })
	return all
}

// lockName is a name that nobody else has.
func lockName() string { return "doctor-" + rand.Text()[:12] }

// nameOn finds a lock's name that lives on that master of the cluster; empty if it has no slots, or next to none.
func nameOn(ctx context.Context, rdb *redis.ClusterClient, address, namespace string) string {
	for range 16384 { // slots
		name := lockName()
		if master, err := rdb.MasterForKey(ctx, namespace+":{"+name+"}:"); err != nil {
			return ""
		} else if master.Options().Addr == address {
			return name
		}
	}
	return ""
}

// check makes every check. Once the server has stopped answering, nothing more is sent.
func (s *server) check(ctx context.Context, r *Report) {
	gone := false
	for _, c := range checks {
		f := is(Unchecked, "not checked after the connection failed")
		if s.facts.told["mode"] == "sentinel" && c.name != "role" && c.name != "version" && c.name != "reachable" {
			r.add(c.name, s.address, is(Unchecked, "does not apply to a Sentinel"))
			continue
		}
		if gone = gone || ctx.Err() != nil; !gone {
			s.Progress(s.address, c.name)
			made, err := c.test(s, ctx)
			switch {
			case err == nil:
				f = made
			case inspect.Refused(err) && c.name != checks[0].name:
				f = is(Unchecked, "%s", inspect.Cause(err))
			case ctx.Err() == nil:
				f, gone = broken(err), true
			}
		}
		switch {
		case f.Result == Unchecked && strings.HasPrefix(f.Found, "this user lacks"):
			f.Advice = asAdmin
		case f.Result != OK && f.Result != Unchecked && f.Advice == "":
			f.Advice, f.Paste = c.advice, cmp.Or(f.Paste, c.paste)
		}
		if strings.HasPrefix(f.Paste, "CONFIG ") && s.facts.config != nil && !inspect.Lacks(s.facts.config) { // nobody may
			f.Advice, f.Paste = f.Advice+
				"; the server refuses CONFIG: on a managed service, use its own settings", ""
		}
		r.add(c.name, s.address, f)
	}
}

func (s *server) reachable(ctx context.Context) (v Finding, err error) {
	s.facts, err = s.gather(ctx)
	err = inspect.Said(ctx, s.rdb, err)
	return is(OK, "it answers"), err
}

func (s *server) cluster(ctx context.Context) (Finding, error) {
	_, aware := s.all.(*redis.ClusterClient)
	switch mode := cmp.Or(s.facts.told["mode"], s.facts.told["redis_mode"], s.facts.told["server_mode"]); {
	case mode == "":
		return s.facts.untold(), nil
	case mode != "cluster":
		return is(OK, "not a node of a cluster"), nil
	case !aware:
		return is(Problem,
			"the server is a node of a cluster, and the URL is for a single server: most locks are on other nodes").
			advise("name it as a cluster in the URL, see help connection", ""), nil
	}
	info := ""
	err := s.Refused.ask(s.address, "cluster info", func() (err error) {
		info, err = s.rdb.ClusterInfo(ctx).Result()
		return err
	})
	if state := fields(info, "\n")["cluster_state"]; err == nil && state != "ok" {
		return is(Problem, "the state of the cluster is %s", fmt.Sprintf("%q", state)), nil
	}
	return is(OK, "the state of the cluster is ok"), err
}
