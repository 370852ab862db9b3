package main

import (
	"bufio"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/fairlock/fairlock-go/fence"
	"github.com/fairlock/fairlock-go/internal/tools/dbtest"
)

// lostUpdates is what a count of lost updates has found.
type lostUpdates struct {
	Date      string        `json:"date"`
	System    string        `json:"system"`
	Servers   []string      `json:"servers"`
	Seed      uint64        `json:"seed"`
	Pauses    int           `json:"pauses"`     // in each row
	AfterLook int           `json:"after_look"` // of them, so many came between the check and the write
	TTL       time.Duration `json:"ttl_ns"`
	Peers     []peerInfo    `json:"peers"`
	Rows      []lostRow     `json:"rows"`
}

// lostRow is a peer with a check.
type lostRow struct {
	Peer  string `json:"peer"`
	Check string `json:"check"` // in words
	Wrote int    `json:"wrote"` // overtaken holders that wrote all the same
	Lost  int    `json:"lost"`  // updates that were acknowledged, and are not in the counter
}

const (
	lostTTL = time.Second
	pairs   = 5 // of processes, each with a lock and a counter of its own
)

// pause is one entry of the schedule: some updates by either process, then one that is stopped.
type pause struct {
	before []int // who makes each of them
	holder int   // the one that is stopped
	update update
}

// schedule draws the pauses: all rows have the same.
func schedule(seed uint64, n int) []pause {
	r := rand.New(rand.NewPCG(seed, 0))
	all := make([]pause, n)
	for i := range all {
		p := pause{holder: r.IntN(2), update: update{Work: time.Duration(1+r.IntN(20)) * time.Millisecond, Stop: working}}
		for range r.IntN(3) {
			p.before = append(p.before, r.IntN(2))
		}
		if r.IntN(10) == 0 {
			p.update.Stop = afterLook
		}
		all[i] = p
	}
	return all
}

// countLost counts the updates that are lost when a holder is stopped, for each of the peers and its checks.
func countLost(ctx context.Context, all []peer, seed uint64, pauses int, progress func(string)) (*lostUpdates, error) {
	postgres, err := dbtest.StartPostgres()
	if err != nil {
		return nil, err
	}
	defer postgres.Stop()
	l := &lab{results: &results{Servers: []string{postgres.Title}}, program: "redis-server", progress: progress}
	defer l.close()
	present, err := l.start(ctx, all)
	if err != nil {
		return nil, err
	}
	if len(present) < len(all) {
		return nil, errors.New(strings.Join(l.Missing, "; "))
	}
	db, err := sql.Open("pgx", postgres.DSN)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{`CREATE TABLE counter (name TEXT PRIMARY KEY, value BIGINT NOT NULL)`,
		fence.Postgres.Schema()} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	plan := schedule(seed, pauses)
	result := &lostUpdates{
		Date: time.Now().UTC().Format(time.DateOnly), System: runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version(),
		Servers: l.Servers, Seed: seed, Pauses: pauses, TTL: lostTTL,
	}
	for _, p := range plan {
		if p.update.Stop == afterLook {
			result.AfterLook++
		}
	}
	for _, p := range present {
		result.Peers = append(result.Peers, peerInfo{p.name, p.module, version(p.module), p.settings})
		addr := l.redis.addr
		checks := []check{nothing, look}
		if p.onEtcd {
			addr = l.etcd.addr
		}
		if p.fence != "" {
			checks = append(checks, fenced)
		}
		for _, c := range checks {
			words := map[check]string{nothing: "nothing", look: p.look, fenced: p.fence}[c]
			progress(p.name + ", before the write: " + words)
			row := lostRow{Peer: p.name, Check: words}
			u := updater{Peer: p.name, Addr: addr, TTL: lostTTL, DSN: postgres.DSN, Name: p.name + "/" + string(c), Check: c}
			if err := row.count(ctx, db, u, plan); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", p.name, c, err)
			}
			result.Rows = append(result.Rows, row)
		}
	}
	return result, nil
}

// count goes through the schedule. The pairs share it.
func (row *lostRow) count(ctx context.Context, db *sql.DB, u updater, plan []pause) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wrote, lost, errs := make([]int, pairs), make([]int, pairs), make([]error, pairs)
	var all sync.WaitGroup
	for i := range pairs {
		own := u
		own.Name = fmt.Sprintf("%s/%d", u.Name, i)
		all.Go(func() {
			wrote[i], lost[i], errs[i] = own.goThrough(ctx, db, plan, i)
			if errs[i] != nil {
				cancel() // what the others say then is a consequence
			}
		})
	}
	all.Wait()
	for i := range pairs {
		row.Wrote += wrote[i]
		row.Lost += lost[i]
	}
	if first := slices.IndexFunc(errs, func(err error) bool {
		return err != nil &&
			!errors.Is(err, context.Canceled)
	}); first >= 0 {
		return errs[first]
	}
	return errors.Join(errs...)
}

// goThrough goes through every pairs-th pause of the schedule, from the first on.
func (u updater) goThrough(ctx context.Context, db *sql.DB, plan []pause, first int) (wrote, lost int, err error) {
	if _, err := db.ExecContext(ctx, `INSERT INTO counter VALUES ($1, 0)`, u.Name); err != nil {
		return 0, 0, err
	}
	var pair [2]*process
	for i := range pair {
		if pair[i], err = startProcess(ctx, u); err != nil {
			return 0, 0, err
		}
		defer pair[i].end()
	}
	acknowledged := 0
	plain := func(i int) error {
		o, err := pair[i].update(update{})
		if err == nil {
			err = o.error()
		}
		acknowledged++
		return err
	}
	for i := first; i < len(plan); i += pairs {
		p := plan[i]
		for _, who := range p.before {
			if err := plain(who); err != nil {
				return 0, 0, fmt.Errorf("before pause %d: %w", i, err)
			}
		}
		stopped := pair[p.holder]
		if o, err := stopped.update(p.update); err != nil || !o.Stopping {
			return 0, 0, fmt.Errorf("pause %d: %w", i, errors.Join(err, o.error(), errors.New("it was not there")))
		}
		if err := stopped.cmd.Process.Signal(sigStop); err != nil {
			return 0, 0, err
		}
		if err := plain(1 - p.holder); err != nil { // it gets the lock when the lease is over
			return 0, 0, fmt.Errorf("overtaking in pause %d: %w", i, err)
		}
		o, err := stopped.goOn()
		if err != nil || o.Failed != "" {
			return 0, 0, fmt.Errorf("after pause %d: %w", i, errors.Join(err, o.error()))
		}
		if o.Wrote {
			acknowledged++
			wrote++
		}
	}
	var value int
	err = db.QueryRowContext(ctx, `SELECT value FROM counter WHERE name = $1`, u.Name).Scan(&value)
	return wrote, acknowledged - value, err
}

// process is an updater in a process of its own.
type process struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Scanner
	stop  func() bool
}

func startProcess(ctx context.Context, u updater) (*process, error) {
	cmd, in, err := child{Updates: &u}.command()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.stop = context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	p.lines = bufio.NewScanner(out)
	if !p.lines.Scan() || !strings.HasPrefix(p.lines.Text(), ready) {
		p.end()
		return nil, errors.Join(fmt.Errorf("a process wrote %q", p.lines.Text()), ctx.Err())
	}
	return p, nil
}

func (p *process) end() {
	p.stop()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// update tells the process what to do, and returns its outcome, or where it is to be stopped.
func (p *process) update(u update) (outcome, error) {
	if err := json.NewEncoder(p.in).Encode(u); err != nil {
		return outcome{}, err
	}
	return p.read()
}

// goOn continues a process that is stopped.
func (p *process) goOn() (outcome, error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return outcome{}, err
	}
	if err := p.cmd.Process.Signal(sigContinue); err != nil {
		return outcome{}, err
	}
	return p.read()
}

func (p *process) read() (o outcome, err error) {
	hangs := time.AfterFunc(2*updateLimit, func() { _ = p.cmd.Process.Signal(sigQuit) }) // its stack says where
	defer hangs.Stop()
	if !p.lines.Scan() {
		return o, errors.Join(errors.New("a process has ended"), p.lines.Err())
	}
	return o, json.Unmarshal(p.lines.Bytes(), &o)
}

//go:embed lost.md.tmpl
var lostText string

var lostTemplate = template.Must(template.New("lost").Funcs(template.FuncMap{"join": strings.Join,
	"time": words}).Parse(lostText))

// text is what the command prints, and what docs/benchmarks.md has.
func (l *lostUpdates) text() string {
	var b strings.Builder
	if err := lostTemplate.Execute(&b, l); err != nil {
		panic(err) // the template does not fit
	}
	return b.String()
}
