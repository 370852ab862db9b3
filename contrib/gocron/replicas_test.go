package gocronfairlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// The tests run in bubbles of testing/synctest, on a server in memory: time passes only while every goroutine waits. The
// bubble's time begins at midnight.

const oneWay = 5 * time.Millisecond // how long a request or a reply takes

// spread is how far the clocks of the replicas are apart.
const spread = 600 * time.Millisecond

// cluster is the replicas of a program that have the same job, and what they do.
type cluster struct {
	*fairlocktest.Server

	t     *testing.T
	cfg   fairlock.Config // of each replica's client
	job   func(*replica) gocron.JobDefinition
	work  func(ctx context.Context, r *replica) error
	share func(r *replica, do task) (task, []gocron.SchedulerOption) // how the replicas share the job

	mu   sync.Mutex
	runs []run   // guarded by mu
	errs []error // guarded by mu: what gocron's listeners were called with
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
	r := &replica{Client: c.Client(c.cfg), cluster: c, clock: machineClock{clockwork.NewRealClock(), fast}, dead: make(chan struct{})}
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
	_, err = r.NewJob(c.job(r), gocron.NewTask(do), gocron.WithName("report"),
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

// kill ends the process, and does so once. gocron's Shutdown polls until all jobs have ended, and meanwhile no time passes in a
// bubble. So the jobs must end without that: they watch dead.
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

// hour has three replicas work for an hour. Every five minutes the one that has run the job last is killed: in turn while it
// runs the job, and afterwards. Another one with the same clock is started half a minute later.
func (c *cluster) hour() (runs []run, deaths int) {
	c.t.Helper()
	for _, fast := range []time.Duration{0, spread / 2, spread} {
		c.start(fast)
	}
	for end := time.Now().Add(time.Hour); time.Now().Before(end); deaths++ {
		time.Sleep(4*time.Minute + 30*time.Second)
		before := c.lastRun()
		for c.lastRun() == before {
			time.Sleep(10 * time.Millisecond)
		}
		victim := c.lastRun().by
		if deaths%2 == 1 {
			c.waitUnlocked()
		}
		victim.kill()
		time.Sleep(30 * time.Second)
		c.start(victim.clock.fast)
	}
	runs, _ = c.took()
	for _, r := range runs {
		assert.NotNil(c.t, r.by)
	}
	return runs, deaths
}

// waitUnlocked waits until the latest run of the job has ended.
func (c *cluster) waitUnlocked() {
	c.Mutex("report").WaitFor("its release", func(s fairlock.State) bool { return !s.Held || s.Holder.Released })
}

// begun returns when each run has begun.
func begun(runs []run) (at []time.Time) {
	for _, r := range runs {
		at = append(at, r.at)
	}
	return slices.Clip(at)
}
