package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/fairlock/fairlock-go/internal/tools/workload"
)

// plan says what is measured.
type plan struct {
	server     string // program of the Redis server
	peers      []peer
	contenders []int // of handoffs
	rtts       []time.Duration
	rounds     int
	slice      time.Duration
}

// many is how many goroutines are at it in parallel, and over a round trip.
const many = 64

func main() {
	runChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	logging.Disable()
	p := plan{
		peers: slices.Insert(slices.Clone(peers), 1, deletingPairs...), contenders: []int{2, 8, many, 256, 512},
		rtts: []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond},
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := f.String("peers", "", "measure only these, separated by commas; the bare pairs are always measured")
	f.StringVar(&p.server, "server", "redis-server", "the `program` of the Redis server, such as a path to valkey-server")
	f.IntVar(&p.rounds, "rounds", 3, "how many times everything is measured")
	f.DurationVar(&p.slice, "slice", time.Second, "for how long each peer is measured in each round")
	repository := f.String("write", "",
		"write results, page and pictures into this `repository`, instead of the page to standard output")
	lost := f.Bool("lost-updates", false,
		"instead, count the updates that are lost when holders are stopped; it takes minutes and needs PostgreSQL")
	seed := f.Uint64("seed", 1, "with -lost-updates: decides the schedule")
	pauses := f.Int("pauses", 100, "with -lost-updates: how many holders are stopped, for each row")
	render := f.Bool("render", false, "with -write: do not measure, and take the results that are there")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *only != "" {
		p.peers = slices.Concat(peers[:1], deletingPairs)
		for name := range strings.SplitSeq(*only, ",") {
			chosen, err := peerNamed(name)
			if err != nil {
				return err
			}
			p.peers = append(p.peers, chosen)
		}
	}
	progress := func(line string) { fmt.Fprintln(os.Stderr, line) }
	if *lost {
		return runLost(ctx, p.peers[1:], *seed, *pauses, *repository, progress)
	}
	r, err := readResults(*repository)
	if !*render {
		var measured *results
		if measured, err = p.measure(ctx, progress); err == nil {
			measured.lost = r.lost
			r = measured
		}
	}
	if err != nil {
		return err
	}
	if *repository == "" {
		_, err := os.Stdout.WriteString(r.page())
		return err
	}
	return r.write(*repository)
}

// runLost counts lost updates, and prints the table. With a repository, it also stores the count there, and writes the
// page again.
func runLost(ctx context.Context, all []peer, seed uint64, pauses int, repository string, progress func(string)) error {
	l, err := countLost(ctx, all, seed, pauses, progress)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(l.text()); err != nil || repository == "" {
		return err
	}
	r, err := readResults(repository)
	if err != nil {
		return err
	}
	r.lost = l
	return r.write(repository)
}

func peerNamed(name string) (peer, error) {
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == name })
	if i < 0 {
		return peer{}, fmt.Errorf("there is no peer %q", name)
	}
	return peers[i], nil
}

const (
	resultsFile = "bench/results.json"
	lostFile    = "bench/lostupdates.json"
)

// readResults reads what the last runs have written. Without a repository, there is nothing.
func readResults(repository string) (*results, error) {
	r := &results{}
	if repository == "" {
		return r, nil
	}
	for name, into := range map[string]any{resultsFile: r, lostFile: &r.lost} {
		text, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// outputs returns what is made of the results, by its path in the repository.
func (r *results) outputs() map[string]string {
	return map[string]string{
		"docs/benchmarks.md":                   r.page(),
		"docs/pictures/benchmarks.svg":         r.contendersPicture(),
		"docs/pictures/benchmarks-network.svg": r.networkPicture(),
	}
}

func (r *results) write(repository string) error {
	files := r.outputs()
	for name, content := range map[string]any{resultsFile: r, lostFile: r.lost} {
		text, err := json.MarshalIndent(content, "", " ")
		if err != nil {
			return err
		}
		files[name] = string(text) + "\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(repository, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// settings returns all workloads, in the order in which they are measured.
func (p plan) settings() (all []setting) {
	for _, rtt := range p.rtts {
		all = append(all, setting{Workload: uncontended, RTT: rtt}, setting{parallel, many, rtt})
		if rtt > 0 {
			all = append(all, setting{handoff, many, rtt})
		}
	}
	for _, n := range p.contenders {
		all = append(all, setting{Workload: handoff, Contenders: n})
	}
	return append(all, setting{Workload: idle, Contenders: waiters}, setting{Workload: crash})
}

// measure measures everything, round by round for each setting.
func (p plan) measure(ctx context.Context, progress func(string)) (*results, error) {
	r := &results{
		Date: time.Now().UTC().Format(time.DateOnly), Rounds: p.rounds, Slice: p.slice,
		Machine: machine{runtime.GOOS + "/" + runtime.GOARCH, runtime.Version(), runtime.NumCPU(), load()},
	}
	l := &lab{results: r, program: p.server, slice: p.slice, progress: progress}
	defer l.close()
	present, err := l.start(ctx, p.peers)
	if err != nil {
		return nil, err
	}
	for _, one := range present {
		r.Peers = append(r.Peers, peerInfo{one.name, one.module, version(one.module), one.settings})
	}
	for _, s := range p.settings() {
		for round := range p.rounds {
			for i := range present {
				if err := l.cell(ctx, s, present[(i+round)%len(present)], round+1); err != nil {
					return nil, err
				}
			}
		}
	}
	return r, nil
}

// lab has the servers of a run.
type lab struct {
	*results
	program     string // of the Redis server
	slice       time.Duration
	progress    func(string)
	redis, etcd *server
	last        int // of the cells
}

// start starts the servers. It returns the peers that can be measured.
func (l *lab) start(ctx context.Context, all []peer) (present []peer, err error) {
	if l.redis, err = startRedis(ctx, l.program); err != nil {
		return nil, err
	}
	l.Servers = append(l.Servers, l.redis.title)
	for _, p := range all {
		if p.needs != "" && !l.redis.has(ctx, p.needs) {
			continue
		}
		if p.onEtcd {
			if l.etcd, err = startEtcd(ctx); err != nil {
				l.Missing = append(l.Missing, fmt.Sprintf("%s: %v", p.name, err))
				continue
			}
			l.Servers = append(l.Servers, l.etcd.title)
		}
		present = append(present, p)
	}
	return present, ctx.Err()
}

func (l *lab) close() {
	for _, s := range []*server{l.redis, l.etcd} {
		if s != nil {
			s.stop()
		}
	}
}

// cell measures a peer once. The bare pair is also the floor of handoffs; it has nothing to do with waiters and
// crashes.
func (l *lab) cell(ctx context.Context, s setting, p peer, round int) error {
	if p.free && (s.Workload == idle || s.Workload == crash) {
		return nil
	}
	l.progress(fmt.Sprintf("%s, %d contenders, %v round trip: round %d, %s", s.Workload, s.Contenders, s.RTT, round,
		p.name))
	l.last++
	c := &cell{peer: p, server: l.redis, prefix: fmt.Sprintf("bench-%d", l.last), slice: l.slice}
	if p.onEtcd {
		c.server = l.etcd
	}
	c.addr = c.server.addr
	if s.RTT > 0 {
		between, err := newProxy(c.server.addr, s.RTT)
		if err != nil {
			return err
		}
		defer between.close()
		c.addr = between.addr()
	}
	if err := c.server.clean(ctx); err != nil {
		return err
	}
	f, err := c.measure(ctx, s)
	if ctx.Err() != nil || errors.Is(err, workload.ErrNotExcluded) {
		return fmt.Errorf("%s, %s: %w", s.Workload, p.name, cmp.Or(ctx.Err(), err))
	}
	if err != nil { // the page says so, and has the other rounds
		l.Missing = append(l.Missing, fmt.Sprintf("%s of %s, with a round trip of %v, in round %d: %v", s.Workload, p.name,
			s.RTT, round, err))
		return nil
	}
	l.Cells = append(l.Cells, measured{s, p.name, round, f})
	return nil
}

func (c *cell) measure(ctx context.Context, s setting) (figures, error) {
	switch {
	case s.Workload == parallel:
		return c.pairs(ctx, s.Contenders)
	case s.Workload == uncontended || c.peer.free:
		return c.pairs(ctx, 1)
	case s.Workload == handoff:
		return c.handoffs(ctx, s.Contenders, s.RTT)
	case s.Workload == idle:
		return c.idle(ctx, 5*c.slice)
	default:
		return c.crash(ctx)
	}
}

// load is the load average of the last minute; 0 where the system does not say.
func load() (average float64) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &average) // it is 0, then
	}
	return average
}

// version is that of a module which this program was built with.
func version(module string) string {
	if module == ours.module {
		return "this checkout"
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	if module == barePair.module {
		return redis.Version()
	}
	return ""
}
