package leader_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/leader"
)

// The tests run in bubbles of testing/synctest, on a server in memory: time passes only while every goroutine waits.

var errStop, errWork = errors.New("stop"), errors.New("work failed")

func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

// election is a scenario of testdata/elections.txt: processes that campaign for the lock x.
type election struct {
	t         *testing.T
	s         *fairlocktest.Server
	x         fairlocktest.Lock
	observer  *leader.Elector
	began     time.Time
	processes map[string]*process

	mu    sync.Mutex
	notes []note // guarded by mu: what has happened in the current step
}

// grain is how exact the times of a story are. Requests after an outage, and those that need a new connection, may take
// some ms more.
const grain = 100 * time.Millisecond

// note is what a process did.
type note struct {
	at   time.Duration
	who  string
	what string
}

func (e *election) note(who, format string, args ...any) {
	what := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, note{time.Since(e.began), who, what})
}

// process is one that campaigns. Its function works until its ctx ends, or until a step of the scenario ends it.
type process struct {
	*leader.Elector

	e      *election
	name   string
	kind   string
	client *fairlocktest.Client
	cancel context.CancelCauseFunc
	work   chan error // what its function shall return
}

// Write is called with each line that the Elector logs.
func (p *process) Write(line []byte) (int, error) {
	p.e.note(p.name, "logs %s", bytes.TrimSpace(line))
	return len(line), nil
}

func (e *election) process(name, kind string) *process {
	if p := e.processes[name]; p != nil {
		return p
	}
	p := &process{e: e, name: name, kind: kind, work: make(chan error)}
	p.client = e.s.Client(fairlock.Config{Name: name, MaxWaiters: 2, Trace: &fairlock.Trace{
		Abandoned: func(i fairlock.AbandonedInfo) { e.note(name, "does not get the lock: %v", i.Err) },
	}})
	p.client.Link.Delay(5*time.Millisecond, 5*time.Millisecond)
	p.Elector = leader.New(p.client.Client, "x", leader.Config{
		Elected: func(ctx context.Context, lease *fairlock.Lease) {
			carried, _ := fairlock.LeaseFromContext(ctx)
			assert.Equal(e.t, []*fairlock.Lease{lease, lease}, []*fairlock.Lease{p.Lease(), carried})
			e.note(name, "is elected")
			p.does("in Elected")
		},
		Resigned: func(err error) {
			assert.Nil(e.t, p.Lease())
			p.does("in Resigned")
			e.note(name, "resigned: %v", err)
		},
		Logger: slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})),
	})
	e.processes[name] = p
	return p
}

// does does once what the kind of the process says that it does there.
func (p *process) does(where string) {
	what, found := strings.CutSuffix(p.kind, " "+where)
	if !found {
		return
	}
	p.kind = ""
	switch what {
	case "sleeps":
		time.Sleep(time.Minute)
	case "stops":
		p.cancel(errStop)
	case "crashes":
		p.client.Crash()
	case "panics":
		panic(errWork)
	}
}

func (p *process) run() {
	ctx, cancel := context.WithCancelCause(p.e.t.Context())
	p.cancel = cancel
	go func() {
		defer func() {
			if v := recover(); v != nil {
				p.e.note(p.name, "panics: %v", v)
			}
		}()
		p.e.note(p.name, "returns from Run: %v", p.Run(ctx, func(ctx context.Context) error {
			lease, _ := fairlock.LeaseFromContext(ctx)
			assert.Same(p.e.t, p.Lease(), lease)
			p.e.note(p.name, "works")
			p.does("at work")
			ended := ctx.Done()
			for {
				select {
				case err := <-p.work:
					return err
				case <-ended:
					p.e.note(p.name, "learns that its ctx has ended")
					if p.kind != "stubborn" {
						return context.Cause(ctx)
					}
					ended = nil
				}
			}
		}))
	}()
}

// step does a step of a scenario, and returns what it looks like then, if it was asked for that.
func (e *election) step(line string) (looks string) {
	verb, who, _ := strings.Cut(line, " ")
	who, kind, _ := strings.Cut(who, " ")
	p := e.processes[who]
	switch verb {
	case "start":
		e.process(who, kind).run()
	case "again":
		e.note(who, "returns from Run: %v", p.Run(e.t.Context(), nil))
	case "stop":
		p.cancel(errStop)
	case "finish":
		p.work <- nil
	case "fail":
		p.work <- errWork
	case "crash":
		p.client.Crash()
	case "cut":
		p.client.Link.Cut()
	case "hang":
		p.client.Link.Hang()
	case "mend":
		p.client.Link.Mend()
	case "force-release":
		e.x.ForceRelease()
	case "fill":
		e.x.CrashHolding("crashed", time.Hour)
		e.x.CrashQueued("crashed", time.Hour)
		e.x.CrashQueued("crashed", time.Hour)
	case "refuse":
		e.s.Miniredis.SetError("NOPERM no such right")
	case "serve":
		e.s.Miniredis.SetError("")
	case "down":
		e.s.Stop()
	case "up":
		e.s.Start()
	case "pass", "settle":
		d, err := time.ParseDuration(who)
		require.NoError(e.t, err)
		time.Sleep(d)
	case "show":
		looks = "\t" + e.looks() + "\n"
	default:
		require.Fail(e.t, "unknown step", line)
	}
	synctest.Wait()
	return looks
}

// looks returns the holder, the leader, the processes that have a lease, and the waiters.
func (e *election) looks() string {
	name := "nobody"
	address, since, err := e.observer.Leader(e.t.Context())
	require.NoError(e.t, err)
	if address != "" {
		name = fmt.Sprint(address, " since ", since.Sub(e.began).Truncate(grain))
	}
	st := e.x.State()
	holder, waiters := "nobody", []string{}
	for _, h := range st.Holders {
		holder = h.Client
	}
	for _, w := range st.Waiters {
		waiters = append(waiters, w.Client)
	}
	var leases []string
	for name, p := range e.processes {
		if p.Lease() != nil {
			leases = append(leases, name)
		}
	}
	return fmt.Sprintf("held by %s; leader: %s; %v have a lease; %v wait", holder, name, leases, waiters)
}

// play plays a scenario, and returns its story.
func (e *election) play(steps string) string {
	var story strings.Builder
	for line := range strings.Lines(steps) {
		if strings.HasPrefix(line, "\t") {
			continue // an earlier story
		}
		story.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		looks := e.step(line)
		e.mu.Lock()
		slices.SortStableFunc(e.notes, func(a, b note) int {
			return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.who, b.who))
		})
		for _, n := range e.notes {
			at := fmt.Sprint(n.at.Truncate(grain))
			if strings.HasPrefix(line, "settle") {
				at = "in time"
			}
			fmt.Fprintf(&story, "\t%s: %s %s\n", at, n.who, n.what)
		}
		e.notes = nil
		e.mu.Unlock()
		story.WriteString(looks)
	}
	return story.String()
}

// The steps of each scenario, and what the processes do then.
//
//fairlock:promise Leader: one function at a time; its ctx ends before another process leads; the next one leads within 100 ms of its return, or when the TTL of a crashed leader has passed; candidates go on while Redis refuses, from their first campaign on
//fairlock:fault Redis or a proxy refuses for some seconds (a user is off, a right is missing, the server is full, any text)
func TestRun_Scenarios(t *testing.T) {
	text, err := os.ReadFile("testdata/elections.txt")
	require.NoError(t, err)
	var stories []string
	for scenario := range strings.SplitSeq(string(text), "\n== ") {
		title, steps, _ := strings.Cut(scenario, "\n")
		synctest.Test(t, func(t *testing.T) {
			s := fairlocktest.NewServer(t)
			e := &election{t: t, s: s, x: s.Mutex("x"), began: time.Now(), processes: map[string]*process{}}
			e.observer = leader.New(s.Client(fairlock.Config{}).Client, "x", leader.Config{})
			stories = append(stories, title+"\n"+e.play(steps))
			for _, p := range e.processes {
				p.client.Close()
			}
		})
	}
	golden.Equal(t, "elections.txt", strings.Join(stories, "\n== "))
}

// What no attempt can cure is returned.
func TestRun_CannotCampaign(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		open, closed := s.Client(fairlock.Config{}).Client, s.Client(fairlock.Config{}).Client
		closed.Close()
		now := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for want, e := range map[string]*leader.Elector{
			"invalid name":     leader.New(open, "", leader.Config{}),
			"invalid TTL":      leader.New(open, "x", leader.Config{TTL: 1}),
			"invalid Address":  leader.New(open, "x", leader.Config{Address: strings.Repeat("a", 129)}),
			"client is closed": leader.New(closed, "x", leader.Config{}),
		} {
			require.ErrorContains(t, e.Run(short, nil), want)
			_, _, err := e.Leader(t.Context())
			require.ErrorContains(t, err, want)
		}
		assert.Equal(t, now, time.Now())
	})
}

// Everybody can ask where the leader is. TestRun_Scenarios shows when that changes. The lease has Config's TTL.
func TestLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		observer := leader.New(s.Client(fairlock.Config{}).Client, "x", leader.Config{})
		client := s.Client(fairlock.Config{Name: "web-3"}).Client
		leads := func(context.Context) error {
			time.Sleep(time.Minute)
			assert.Equal(t, time.Hour, s.Mutex("x").State().Holders[0].Token.TTL())
			name, since, err := observer.Leader(t.Context())
			assert.Equal(t, time.Minute, time.Since(since))
			return errors.Join(err, errors.New(name))
		}
		for address, want := range map[string]string{"": "web-3", "http://[fd00::1]:8080/ü x": "http://[fd00::1]:8080/ü x"} {
			e := leader.New(client, "x", leader.Config{Address: address, TTL: time.Hour})
			require.EqualError(t, e.Run(t.Context(), leads), want)
		}
	})
}

// Under all faults but those after which only fences help, no two processes lead. Afterwards one of them leads.
//
//fairlock:promise Leader
func TestRun_Explore(t *testing.T) {
	cfg := fairlocktest.ExploreConfig{Seeds: 5, Faults: fairlocktest.AllFaults &^ fairlocktest.OverlapFaults}
	fairlocktest.Explore(t, cfg, func(t *testing.T, w *fairlocktest.World) {
		var leading, terms atomic.Int64
		for range 3 {
			go func() {
				var e *leader.Elector
				for err := fairlock.ErrClosed; t.Context().Err() == nil; {
					if errors.Is(err, fairlock.ErrClosed) { // it has crashed: another process is started
						e = leader.New(w.Client(fairlock.Config{}).Client, "x", leader.Config{Logger: slog.New(slog.DiscardHandler)})
					}
					err = e.Run(t.Context(), func(ctx context.Context) error {
						assert.EqualValues(t, 1, leading.Add(1))
						defer leading.Add(-1)
						terms.Add(1)
						select {
						case <-ctx.Done():
							return context.Cause(ctx)
						case <-time.After(20 * time.Second): // resigns
							return nil
						}
					})
				}
			}()
		}
		time.Sleep(time.Minute)
		w.Heal()
		time.Sleep(time.Minute)
		before := terms.Load()
		time.Sleep(time.Minute)
		assert.Equal(t, before+3, terms.Load(), "each leads for 20 s")
	})
}
