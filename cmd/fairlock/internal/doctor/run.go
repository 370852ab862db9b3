package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options are what Run needs to know.
type Options struct {
	Namespace string
	Address   string           // of the server, as it was given
	Cluster   bool             // it is one
	Connected time.Duration    // how long it took until its first answer
	Now       func() time.Time // this machine's clock
	Progress  func(server, check string)
}

// ACLUser is the user in Report.ACL.
const ACLUser = "fairlock"

// Run checks the server, or every master of a cluster, one after the other. If ctx ends, the rest is unchecked. It
// locks two locks of its own; nothing else is written, and nothing stays.
func Run(ctx context.Context, rdb redis.UniversalClient, o Options) Report {
	r := o.report()
	for _, s := range servers(ctx, rdb, o, &r) {
		s.check(ctx, &r)
	}
	return r
}

// Unreachable is the report on a server that could not be asked anything.
func Unreachable(o Options, err error) Report {
	r := o.report()
	f := unreachable(err)
	f.Check, f.Server = "reachable", o.Address
	r.add(f)
	return r
}

func (o Options) report() Report {
	r := Report{Namespace: o.Namespace, ACL: ACLLine(ACLUser, o.Namespace), Checks: []Finding{}}
	if o.Cluster {
		r.ACL += clusterRule
	}
	return r
}

// causes are words in an error of a connection, and what to do then; the first that match count.
var causes = []struct{ words, advice string }{
	{"WRONGPASS", "look at the user's name and password"},
	{"NOAUTH", "give a user and a password; see help connection"},
	{"DENIED", "the server is in protected mode: give it a password, or bind it to an address"},
	{"max number of clients", "raise maxclients, or find out who keeps so many connections"},
	{"LOADING", "wait until it has loaded its data"},
	{"CLUSTERDOWN", "repair the cluster: CLUSTER INFO, CLUSTER NODES"},
	{"cluster support disabled", "it is no cluster: leave cluster and addr out of the URL"},
	{"cluster", "the user of a cluster needs +cluster|slots; see help connection"},
	{"all sentinels", "look at the Sentinels' addresses and the name of the master"},
	{"x509:", "look at the certificate, and at the name in the URL"},
	{"tls:", "rediss:// is for servers with TLS, redis:// for those without"},
	{"no such host", "look at the host's name"},
	{"no answer", "look whether it hangs, and at firewalls; rediss:// is for servers with TLS, redis:// for those without"},
	{"i/o timeout", "look whether it hangs, and at firewalls"},
	{"EOF", "rediss:// is for servers with TLS, redis:// for those without; else look at what is between here and there"},
	{"", "look at its address and port, whether it runs, and at firewalls"},
}

func unreachable(err error) Finding {
	for _, c := range causes {
		if strings.Contains(err.Error(), c.words) {
			return problem(c.advice, "%s", oneLine(err))
		}
	}
	panic("doctor: the last cause matches all")
}

// server is one server that is checked.
type server struct {
	Options
	rdb     *redis.Client         // this server
	locks   redis.UniversalClient // what locks would use
	address string
	name    string // of a lock that lives on it; empty if none does

	facts   facts
	samples []sample
	mutex   exercise
	permits exercise
	locked  bool // both worked
}

// servers finds whom to check. What goes wrong is in the report.
func servers(ctx context.Context, rdb redis.UniversalClient, o Options, r *Report) []*server {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return []*server{{Options: o, rdb: rdb, locks: rdb, address: o.Address, name: lockName()}}
	case *redis.ClusterClient:
		found := make(chan *redis.Client, 1000) // as many as a cluster has nodes at most
		err := rdb.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			found <- c
			return nil
		})
		close(found)
		if err != nil {
			f := unreachable(err)
			f.Check, f.Server = "reachable", o.Address
			r.add(f)
		}
		var all []*server
		for c := range found {
			s := &server{Options: o, rdb: c, locks: rdb, address: c.Options().Addr}
			s.Connected = 0 // was another's
			s.name = nameOn(ctx, rdb, s.address, o.Namespace)
			all = append(all, s)
		}
		slices.SortFunc(all, func(a, b *server) int { return cmp.Compare(a.address, b.address) })
		return all
	}
	panic(fmt.Sprintf("doctor: %T is neither one server nor a cluster", rdb)) // a bug in the caller
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

// check is one check, in the order in which they are made. The error says why it could not be.
type check struct {
	name string
	run  func(*server, context.Context) (Finding, error)
}

// judged is a check of what the server says of itself.
func judged(name string, judge func(facts) Finding) check {
	return check{name, func(s *server, _ context.Context) (Finding, error) { return judge(s.facts), nil }}
}

var checks = []check{
	{"reachable", (*server).reachable},
	judged("version", version),
	judged("role", role),
	{"cluster", (*server).cluster},
	{"rights", (*server).rights},
	{"locks", (*server).exercise},
	{"wake-ups", (*server).wakeUps},
	judged("eviction", eviction),
	judged("memory", memory),
	judged("persistence", persistence),
	judged("replicas", replicas),
	judged("min-replicas", minReplicas),
	{"latency", (*server).latency},
	{"clock", (*server).clock},
	{"slow", (*server).slow},
	{"leftovers", (*server).leftovers},
}

// Checks are the names of all checks, in order.
func Checks() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// check makes every check. Once the server has stopped answering, it is not asked again.
func (s *server) check(ctx context.Context, r *Report) {
	gone := false
	for _, c := range checks {
		f := unchecked("", "the server was not asked any more")
		if gone = gone || ctx.Err() != nil; !gone {
			s.Progress(s.address, c.name)
			made, err := c.run(s, ctx)
			refused, broken := refusal(err)
			switch {
			case err == nil:
				f = made
			case refused != nil:
				f = unchecked(advise(refused), "%s", oneLine(refused))
			case ctx.Err() == nil:
				f, gone = unreachable(broken), true
			}
		}
		f.Check, f.Server = c.name, s.address
		r.add(f)
	}
}

// advise says what to do about a refusal.
func advise(refused error) string {
	if strings.HasPrefix(refused.Error(), "NOPERM") {
		return "call this as a user who may, an admin's for example"
	}
	return ""
}

func (s *server) reachable(ctx context.Context) (f Finding, err error) {
	if s.facts, err = gather(ctx, s.rdb); err != nil {
		return f, err
	}
	first := cmp.Or(s.Connected, s.facts.first)
	f = ok("the first answer came after %s", brief(first)).with(map[string]any{"first_answer_us": first.Microseconds()})
	if first > slowStart {
		f.Result, f.Advice = Warning, "look at the network and at names' resolution: each new connection costs that"
	}
	return f, nil
}

func (s *server) cluster(ctx context.Context) (Finding, error) {
	_, aware := s.locks.(*redis.ClusterClient)
	switch mode := s.facts.mode(); {
	case mode == "":
		return s.facts.silent("cluster"), nil
	case mode != "cluster":
		return ok("no node of a cluster"), nil
	case !aware:
		return problem("say in the URL that it is a cluster; see help connection",
			"the server is a node of a cluster, and the URL is for a single server: most locks are on other nodes"), nil
	}
	info, err := s.rdb.ClusterInfo(ctx).Result()
	if err != nil {
		return Finding{}, err
	}
	if state := fields(info)["cluster_state"]; state != "ok" {
		return problem("repair it: CLUSTER INFO, CLUSTER NODES", "the state of the cluster is %s", printable(state)), nil
	}
	return ok("the state of the cluster is ok"), nil
}

func (s *server) rights(ctx context.Context) (Finding, error) {
	name := cmp.Or(s.name, lockName())
	d, err := tryRights(ctx, s.rdb, s.Namespace+":{"+name+"}:rights", s.Namespace+":notify:"+name)
	if err != nil {
		return Finding{}, err
	}
	user, err := s.rdb.ACLWhoAmI(ctx).Result()
	if refused, broken := refusal(err); broken != nil {
		return Finding{}, err
	} else if refused != nil {
		user = cmp.Or(s.rdb.Options().Username, "default")
	}
	return d.finding(user, s.Namespace), nil
}

func (s *server) exercise(ctx context.Context) (Finding, error) {
	if s.name == "" {
		return unchecked("", "no lock lives here: it has no slots"), nil
	}
	var err error
	s.mutex, s.permits, err = run(ctx, s.locks, s.Namespace, s.name)
	switch {
	case ctx.Err() != nil:
		return Finding{}, context.Cause(ctx)
	case err != nil:
		return problem("see what the other checks say", "a lock could not be had: %s", oneLine(err)), nil
	}
	s.locked = true
	return locked(s.mutex, s.permits), nil
}

func (s *server) wakeUps(context.Context) (Finding, error) {
	if !s.locked {
		return unchecked("", "needs a lock"), nil
	}
	return wakes(s.mutex, s.permits), nil
}

func (s *server) latency(ctx context.Context) (Finding, error) {
	samples, err := listen(ctx, s.rdb, s.Now)
	if err != nil {
		return Finding{}, err
	}
	s.samples = samples
	return latency(samples), nil
}

func (s *server) clock(context.Context) (Finding, error) {
	if len(s.samples) == 0 {
		return unchecked("", "needs TIME"), nil
	}
	return clock(s.samples), nil
}

func (s *server) slow(ctx context.Context) (Finding, error) {
	entries, err := s.rdb.SlowLogGet(ctx, slowMost).Result()
	if err != nil {
		return Finding{}, err
	}
	now := s.Now()
	if len(s.samples) > 0 {
		now = s.samples[0].server
	}
	return slow(entries, s.Namespace, now), nil
}

func (s *server) leftovers(ctx context.Context) (Finding, error) {
	l, err := search(ctx, s.rdb, s.Namespace, func(keys int) {
		s.Progress(s.address, fmt.Sprintf("leftovers, %d keys", keys))
	})
	if err != nil {
		return Finding{}, err
	}
	return l.finding(), nil
}
