package gocronfairlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gocronfairlock "github.com/fairlock/fairlock-go/contrib/gocron"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/leader"
)

// The tests run in bubbles of testing/synctest, on a server in memory: time passes only while every goroutine waits.

const (
	period   = 10 * time.Second
	ttl      = 5 * time.Second        // of the replicas' clients
	minHold  = 5 * time.Second        // longer than the clocks are apart, and shorter than the period less that
	spread   = 600 * time.Millisecond // how far the clocks of the replicas are apart
	workTime = 100 * time.Millisecond // how long the job takes
)

type task = func(context.Context) error

// share returns the task of a replica, and the options of its scheduler.
type share func(c *cluster, client *fairlocktest.Client, do task) (task, []gocron.SchedulerOption)

func byTask(_ *cluster, client *fairlocktest.Client, do task) (task, []gocron.SchedulerOption) {
	return gocronfairlock.Task(client.Mutex("report", fairlock.WithMinHold(minHold)), do), nil
}

func byLocker(c *cluster, client *fairlocktest.Client, do task) (task, []gocron.SchedulerOption) {
	locker, err := gocronfairlock.NewLocker(client.Client, minHold)
	require.NoError(c.t, err)
	return do, []gocron.SchedulerOption{gocron.WithDistributedLocker(locker)}
}

func byElector(c *cluster, client *fairlocktest.Client, do task) (task, []gocron.SchedulerOption) {
	e := leader.New(client.Client, "scheduler", leader.Config{Logger: slog.New(slog.DiscardHandler)})
	go func() {
		_ = e.Run(c.t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	return do, []gocron.SchedulerOption{gocron.WithDistributedElector(gocronfairlock.NewElector(e))}
}

// cluster is the replicas of a program that have the same job, and what they do.
type cluster struct {
	*fairlocktest.Server

	t      *testing.T
	share  share
	crash  []int // the runs during which their replicas crash
	mu     sync.Mutex
	runs   []time.Time // guarded by mu: when they began, by the clock of their replica
	failed []error     // guarded by mu: what gocron's listeners were called with
}

// machineClock is the clock of one machine, which is ahead of the bubble's.
type machineClock struct {
	clockwork.Clock
	fast time.Duration
}

func (c machineClock) Now() time.Time { return c.Clock.Now().Add(c.fast) }

// start starts a replica. The test must not end while its job is running: gocron's Shutdown polls until it has ended,
// and meanwhile no time passes in a bubble.
func (c *cluster) start(fast time.Duration) {
	c.t.Helper()
	clock, client := machineClock{clockwork.NewRealClock(), fast}, c.Client(fairlock.Config{TTL: ttl})
	client.Link.Delay(5*time.Millisecond, 5*time.Millisecond)
	do, options := c.share(c, client, func(context.Context) error {
		c.mu.Lock()
		c.runs = append(c.runs, clock.Now())
		crashes := slices.Contains(c.crash, len(c.runs))
		c.mu.Unlock()
		time.Sleep(workTime)
		if crashes {
			client.Crash()
		}
		return nil
	})
	scheduler, err := gocron.NewScheduler(append(options, gocron.WithClock(clock))...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { assert.NoError(c.t, scheduler.Shutdown()) })
	failed := func(_ uuid.UUID, name string, err error) {
		assert.Equal(c.t, "report", name)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = append(c.failed, err)
	}
	_, err = scheduler.NewJob(gocron.CronJob("*/10 * * * * *", true), gocron.NewTask(do), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(failed), gocron.AfterJobRunsWithError(failed)))
	require.NoError(c.t, err)
	scheduler.Start()
}

// took returns and forgets what has happened.
func (c *cluster) took() (runs []time.Time, errs []error) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	runs, errs, c.runs, c.failed = c.runs, c.failed, nil, nil
	return runs, errs
}

// Three replicas share a job. Two crash while they run it, one after the other.
//
//fairlock:promise Jobs of gocron: of replicas that share a job by a Locker or a Task, one runs it each time, though their clocks differ, and also when replicas die; the ctx of a Task ends before another replica runs the job
func TestShare_EachTickOnce(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]share{"Task": byTask, "Locker": byLocker, "Elector": byElector} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{Server: fairlocktest.NewServer(t), t: t, share: share, crash: []int{3, 6}}
				for _, fast := range []time.Duration{0, spread / 2, spread} {
					c.start(fast)
				}
				first := time.Now().Add(period)
				time.Sleep(10*period + period/2)
				runs, _ := c.took()
				require.Len(t, runs, 10)
				for i, at := range runs {
					require.Equal(t, first.Add(time.Duration(i)*period), at.Truncate(period))
				}
			})
		})
	}
}

// A Task returns nil only if another one has the lock, and every other error. An ErrBusy of f is one of its own, also
// if it is of a lock of the same name. The ctx of f ends before another replica can have the lock.
//
//fairlock:promise Jobs of gocron
func TestTask_Errors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		client := s.Client(fairlock.Config{})
		m := client.Mutex("report")
		busy := fmt.Errorf("%w", &fairlock.Error{Op: "trydo", Name: "report", Err: fairlock.ErrBusy})
		for _, want := range []error{nil, errors.New("broken"), busy} {
			require.Equal(t, want, gocronfairlock.Task(m, func(ctx context.Context) error {
				lease, ok := fairlock.LeaseFromContext(ctx)
				require.True(t, ok)
				require.NoError(t, lease.Err())
				return want
			})(t.Context()))
		}
		require.ErrorIs(t, gocronfairlock.Task(m, func(ctx context.Context) error {
			client.Link.Cut()
			<-ctx.Done()
			s.Mutex("report").AssertHeldBy(client.Name())
			return nil
		})(t.Context()), fairlock.ErrLost)
		client.Link.Mend()
		s.Mutex("report").WaitFree()
		never := func(context.Context) error { assert.Fail(t, "called"); return nil }
		_ = s.Mutex("report").HoldAs("other")
		require.NoError(t, gocronfairlock.Task(m, never)(t.Context()))
		s.Stop()
		require.ErrorIs(t, gocronfairlock.Task(m, never)(t.Context()), fairlock.ErrUnreachable)
		assert.Panics(t, func() { gocronfairlock.Task(fairlock.Mutex{}, nil) })
	})
}

// A process that does not lead runs no job.
func TestElector_NotLeader(t *testing.T) {
	t.Parallel()
	e := leader.New(fairlocktest.NewServer(t).Client(fairlock.Config{}).Client, "scheduler", leader.Config{})
	require.Equal(t, gocronfairlock.ErrNotLeader, gocronfairlock.NewElector(e).IsLeader(t.Context()))
	assert.Panics(t, func() { gocronfairlock.NewElector(nil) })
}

// gocron skips a run when Redis is away. The error is logged, because gocron drops it if a job has no listener. That
// another replica has the lock, or that gocron shuts down, is not logged.
func TestLocker_RedisIsAway(t *testing.T) {
	logged := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		c := &cluster{Server: s, t: t, share: byLocker}
		c.start(0)
		c.start(spread)
		time.Sleep(15 * time.Second)
		runs, errs := c.took()
		require.Equal(t, []int{1, 1}, []int{len(runs), len(errs)})
		require.ErrorIs(t, errs[0], fairlock.ErrBusy)
		locker, err := gocronfairlock.NewLocker(s.Client(fairlock.Config{}).Client, time.Second)
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel() // as gocron's Shutdown does
		_, err = locker.Lock(ended, "other")
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, logged.String())

		s.Stop()
		time.Sleep(10 * time.Second)
		runs, errs = c.took()
		require.Equal(t, []int{0, 2}, []int{len(runs), len(errs)})
		for _, err := range errs {
			require.ErrorIs(t, err, fairlock.ErrUnreachable)
		}
		assert.Equal(t, 2, strings.Count(logged.String(), `msg="job skipped" job=report err=`), logged.String())
		s.Start()
		time.Sleep(10 * time.Second)
		runs, _ = c.took()
		require.Len(t, runs, 1)
	})
}

func report() {}

func synced[T any]() {}

type job[T any] struct{}

func (job[T]) run() {}

// The name that gocron gives to a closure, or to a generic function, is refused, before anything is sent. That of a
// function is not, nor one that only looks similar.
func TestLocker_Names(t *testing.T) {
	logged := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		locker, err := gocronfairlock.NewLocker(s.Client(fairlock.Config{}).Client, time.Millisecond)
		require.NoError(t, err)
		scheduler, err := gocron.NewScheduler()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, scheduler.Shutdown()) })
		nameOf := func(f any) string {
			job, err := scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(f))
			require.NoError(t, err)
			return job.Name()
		}
		var method interface{ run() } = job[int]{}
		for name, ok := range map[string]bool{
			nameOf(report): true, nameOf(func() {}): false, nameOf(synced[int]): false, nameOf(synced[string]): false,
			nameOf(job[int]{}.run): false, nameOf(method.run): false,
			"report": true, "main.report": true, "main.(*service).report-fm": true, "func1": true, "main.func1x": true,
			"main.main.func1": false, "main.main.func12.3.1": false, "main.main.makeReport.func6": false,
			"main.makeReport[...].func1": false, "main.main.func4.makeReport.1": false,
			"main.main.func4.(*service).report.2": false,
			"main.main.func1.makeReport":          true, "report.2": true,
			"main.sync[...]": false, "main.(*job[...]).run-fm": false, "go:interface { main.run() }.main.run-fm": false,
			"go": true, "[...]": true, "sync [...] now": true,
		} {
			_, err := locker.Lock(t.Context(), name)
			assert.Equal(t, ok, err == nil, "%s: %v", name, err)
			assert.True(t, ok || errors.Is(err, fairlock.ErrInvalid) && strings.Contains(logged.String(), "use gocron.WithName"))
			logged.Reset()
		}
	})
}

func TestNewLocker_BadInput(t *testing.T) {
	t.Parallel()
	client := fairlocktest.NewServer(t).Client(fairlock.Config{}).Client
	const year = 365 * 24 * time.Hour
	for d, ok := range map[time.Duration]bool{-time.Second: false, 0: false, 1: true, year: true, year + 1: false} {
		_, err := gocronfairlock.NewLocker(client, d)
		require.Equal(t, !ok, errors.Is(err, fairlock.ErrInvalid), d)
		_, err = client.Mutex(d.String(), fairlock.WithMinHold(d)).TryLock(t.Context())
		require.Equal(t, !ok && d != 0, errors.Is(err, fairlock.ErrInvalid), "the library has these bounds, but 0 is none")
	}
	_, err := gocronfairlock.NewLocker(nil, time.Second)
	require.ErrorIs(t, err, fairlock.ErrInvalid)
}

// captureLog has slog.Default write to a buffer, until the test ends. No other test may run meanwhile.
func captureLog(t *testing.T) *bytes.Buffer {
	t.Helper()
	var buffer bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&buffer, nil)))
	return &buffer
}
