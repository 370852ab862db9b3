package gocronfairlock_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// The tests run in bubbles of testing/synctest, on a server in memory: time passes only while every goroutine waits.

const (
	oneWay   = 5 * time.Millisecond   // how long a request or a reply takes
	spread   = 600 * time.Millisecond // how far the clocks of the three replicas are apart
	workTime = 100 * time.Millisecond // how long the job takes
)

var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when the time of a bubble begins

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it writes to the standard error when a connection breaks
	os.Exit(m.Run())
}

// bubble runs a test in a bubble, beside others.
func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

// cluster is the replicas of a program that have the same job, and what they do.
type cluster struct {
	*fairlocktest.Server

	t     *testing.T
	cfg   fairlock.Config // of each replica's client
	job   func() gocron.JobDefinition
	work  func(ctx context.Context, r *replica) error
	share func(r *replica, do task) (task, []gocron.SchedulerOption) // how the replicas share the job

	mu   sync.Mutex
	runs []run   // guarded by mu
	errs []error // guarded by mu: what gocron's listeners were called with
}

// cron returns a job whose crontab has seconds. Each scheduler needs a definition of its own.
func cron(tab string) func() gocron.JobDefinition {
	return func() gocron.JobDefinition { return gocron.CronJob(tab, true) }
}

type task = func(context.Context) error

// run is one run of the job.
type run struct {
	by *replica
	at time.Time // by the bubble's clock
}

// tick returns for which time of the timetable the run was.
func (r run) tick() time.Time { return r.at.Add(r.by.clock.fast).Truncate(time.Second).UTC() }

// machineClock is the clock of one machine.
type machineClock struct {
	clockwork.Clock

	fast time.Duration // by how much it is ahead of the bubble's
}

func (c machineClock) Now() time.Time { return c.Clock.Now().Add(c.fast) }

// replica is one process.
type replica struct {
	*fairlocktest.Client
	gocron.Scheduler

	cluster *cluster
	clock   machineClock
	dead    chan struct{}
	die     sync.Once
}

// start starts a replica.
func (c *cluster) start(fast time.Duration) *replica {
	c.t.Helper()
	r := &replica{
		Client: c.Client(c.cfg), cluster: c, clock: machineClock{clockwork.NewRealClock(), fast}, dead: make(chan struct{}),
	}
	r.Link.Delay(oneWay, oneWay)
	do, options := c.share(r, r.do)
	var err error
	r.Scheduler, err = gocron.NewScheduler(append(options, gocron.WithClock(r.clock))...)
	require.NoError(c.t, err)
	c.t.Cleanup(r.kill)
	failed := func(_ uuid.UUID, name string, err error) {
		assert.Equal(c.t, "report", name)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	}
	_, err = r.NewJob(c.job(), gocron.NewTask(do), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(failed), gocron.AfterJobRunsWithError(failed)))
	require.NoError(c.t, err)
	r.Start()
	return r
}

func (r *replica) do(ctx context.Context) error {
	r.cluster.mu.Lock()
	r.cluster.runs = append(r.cluster.runs, run{r, time.Now()})
	r.cluster.mu.Unlock()
	return r.cluster.work(ctx, r)
}

// kill ends the process, and does so once. gocron's Shutdown polls until all jobs have ended, and meanwhile no time
// passes in a bubble. So the jobs must end without that: they watch dead.
func (r *replica) kill() {
	r.die.Do(func() {
		r.Crash()
		close(r.dead)
		assert.NoError(r.cluster.t, r.Shutdown())
	})
}

// took returns and forgets what has happened.
func (c *cluster) took() (runs []run, errs []error) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	runs, errs, c.runs, c.errs = c.runs, c.errs, nil, nil
	return runs, errs
}

// lastRun returns the latest run.
func (c *cluster) lastRun() run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[len(c.runs)-1]
}

// live has three replicas work. After each time of life, the one that begins the job next is killed: in turn while it
// runs the job, and afterwards. Another one with the same clock is started half a minute later.
func (c *cluster) live(life time.Duration, deaths int) []run {
	c.t.Helper()
	for _, fast := range []time.Duration{0, spread / 2, spread} {
		c.start(fast)
		time.Sleep(1100 * time.Millisecond)
	}
	for i := range deaths {
		time.Sleep(life)
		before := c.lastRun()
		for c.lastRun() == before {
			time.Sleep(10 * time.Millisecond)
		}
		victim := c.lastRun().by
		if i%2 == 1 {
			time.Sleep(2 * workTime) // its release has arrived
		}
		victim.kill()
		time.Sleep(30 * time.Second)
		c.start(victim.clock.fast)
	}
	runs, _ := c.took()
	return runs
}

// worked is the job of live: it takes workTime, or ends with its process.
func worked(_ context.Context, r *replica) error {
	select {
	case <-time.After(workTime):
	case <-r.dead:
	}
	return nil
}

// ticks fails the test if a tick has two runs, or the first one has none. It returns the ticks between the first and
// the latest one that have no run.
func (c *cluster) ticks(runs []run, period time.Duration) (missed []time.Time) {
	c.t.Helper()
	next := midnight.Add(period)
	require.Equal(c.t, next, runs[0].tick())
	for _, r := range runs {
		require.False(c.t, r.tick().Before(next), "%v by %s comes after the run before %v", r.tick(), r.by.Name(), next)
		for ; next.Before(r.tick()); next = next.Add(period) {
			missed = append(missed, next)
		}
		next = next.Add(period)
	}
	assert.Less(c.t, time.Since(next), period)
	return missed
}

// assertEachTickOnce fails the test unless each tick has one run.
func (c *cluster) assertEachTickOnce(runs []run, period time.Duration) {
	c.t.Helper()
	assert.Empty(c.t, c.ticks(runs, period))
}
