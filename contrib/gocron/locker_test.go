package gocronfairlock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gocronfairlock "github.com/fairlock/fairlock-go/contrib/gocron"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// lockers shares the job by a Locker.
func lockers(minHold time.Duration) func(*replica, task) (task, []gocron.SchedulerOption) {
	return func(r *replica, do task) (task, []gocron.SchedulerOption) {
		locker, err := gocronfairlock.NewLocker(r.Client.Client, minHold)
		require.NoError(r.cluster.t, err)
		return do, []gocron.SchedulerOption{gocron.WithDistributedLocker(locker)}
	}
}

// The minimum hold is longer than the clocks are apart, and shorter than the period less that. TTL and the job together
// are shorter than the period.
//
//fairlock:promise Jobs of gocron: of replicas that share a job by a Locker or a Task, one runs it each time, though their clocks differ, and also when replicas die; the ctx of a Task ends before another replica runs the job
func TestLocker_EachTickOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const period = 10 * time.Second
		c := &cluster{
			Server: s, t: t, cfg: fairlock.Config{TTL: 5 * time.Second},
			job: cron("*/10 * * * * *"), work: worked, share: lockers(5 * time.Second),
		}
		c.assertEachTickOnce(c.live(90*time.Second, 12), period)
	})
}

// The period is so short that a minimum hold longer than the spread is not shorter than the period less the spread. No
// tick is run twice, but a death can cost one.
func TestLocker_ShortPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := &cluster{
			Server: s, t: t, cfg: fairlock.Config{TTL: time.Second},
			job: cron("* * * * * *"), work: worked, share: lockers(900 * time.Millisecond),
		}
		missed := c.ticks(c.live(20*time.Second, 8), time.Second)
		for i := range missed[1:] {
			assert.Greater(t, missed[i+1].Sub(missed[i]), 20*time.Second, "a death costs one tick at most: %v", missed)
		}
	})
}

// Replicas whose intervals begin at different times have no ticks in common. The job begins no earlier than the minimum
// hold after its latest run, and the next attempt of a replica comes within a period after that.
func TestLocker_Intervals(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const period, minHold = 10 * time.Second, 9 * time.Second
		c := &cluster{
			Server: s, t: t, cfg: fairlock.Config{TTL: 5 * time.Second},
			job: func() gocron.JobDefinition { return gocron.DurationJob(period) }, work: worked, share: lockers(minHold),
		}
		runs := c.live(time.Minute, 8)
		for i := range runs[1:] {
			between := runs[i+1].at.Sub(runs[i].at)
			assert.GreaterOrEqual(t, between, minHold)
			assert.LessOrEqual(t, between, minHold+period)
		}
	})
}

// gocron skips a run when Redis is away. The error is logged, because gocron drops it if a job has no listener. That
// another replica has the lock, or that gocron shuts down, is no news.
func TestLocker_RedisIsAway(t *testing.T) {
	logged := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		c := &cluster{
			Server: s, t: t, job: cron("*/10 * * * * *"), work: worked, share: lockers(5 * time.Second),
		}
		c.start(0)
		c.start(spread)
		time.Sleep(15 * time.Second)
		runs, errs := c.took()
		require.Len(t, runs, 1)
		require.Len(t, errs, 1)
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
		require.Empty(t, runs)
		require.Len(t, errs, 2)
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
// function is not.
func TestLocker_DefaultNames(t *testing.T) {
	logged := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		s := fairlocktest.NewServer(t)
		sent := make(chan string, 10)
		locker, err := gocronfairlock.NewLocker(s.Client(fairlock.Config{Trace: &fairlock.Trace{
			Granted:   func(i fairlock.GrantedInfo) { sent <- i.Name },
			Abandoned: func(i fairlock.AbandonedInfo) { sent <- i.Name },
		}}).Client, time.Millisecond)
		require.NoError(t, err)
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, scheduler.Shutdown()) })

		ran, errs := make(chan string, 10), make(chan error, 10)
		var method interface{ run() } = job[int]{}
		refused := []func(){func() {}, synced[int], synced[string], job[int]{}.run, job[string]{}.run, method.run}
		for _, f := range append(refused, report) {
			_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(f), gocron.WithEventListeners(
				gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { errs <- err }),
				gocron.AfterJobRuns(func(_ uuid.UUID, name string) { ran <- name }),
			))
			require.NoError(t, err)
		}
		scheduler.Start()
		time.Sleep(90 * time.Second)
		synctest.Wait()
		require.Len(t, errs, len(refused))
		for range refused {
			err = <-errs
			require.ErrorIs(t, err, fairlock.ErrInvalid)
			require.ErrorContains(t, err, "use gocron.WithName")
		}
		assert.Equal(t, len(refused), strings.Count(logged.String(), "use gocron.WithName"), logged.String())
		for _, names := range []chan string{ran, sent} {
			require.Len(t, names, 1)
			assert.Equal(t, "github.com/fairlock/fairlock-go/contrib/gocron_test.report", <-names)
		}
	})
}

func TestLocker_Names(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		locker, err := gocronfairlock.NewLocker(s.Client(fairlock.Config{}).Client, time.Millisecond)
		require.NoError(t, err)
		for name, ok := range map[string]bool{
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
		}
		_, err = locker.Lock(t.Context(), "")
		require.ErrorIs(t, err, fairlock.ErrInvalid)
	})
}

// gocron's Shutdown ends the ctx with which Unlock is called. The lock is released all the same. This test is not in a
// bubble, because Shutdown polls until the job has ended.
func TestLocker_Shutdown(t *testing.T) {
	t.Parallel()
	s := fairlocktest.NewServer(t)
	locker, err := gocronfairlock.NewLocker(s.Client(fairlock.Config{TTL: time.Hour}).Client, time.Millisecond)
	require.NoError(t, err)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	require.NoError(t, err)
	began := make(chan bool)
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(func(ctx context.Context) {
			began <- true
			<-ctx.Done()
		}), gocron.WithName("report"))
	require.NoError(t, err)
	scheduler.Start()
	<-began
	require.NotEmpty(t, s.Mutex("report").State().Holders)
	require.NoError(t, scheduler.Shutdown())
	state := s.Mutex("report").State()
	assert.True(t, len(state.Holders) == 0 || state.Holders[0].Released, "%+v", state.Holders)
}

func TestNewLocker_BadInput(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{}).Client
		const year = 365 * 24 * time.Hour
		for _, d := range []time.Duration{-time.Second, 0, year + 1} {
			_, err := gocronfairlock.NewLocker(client, d)
			require.ErrorIs(t, err, fairlock.ErrInvalid, d)
			_, err = client.Mutex("x", fairlock.WithMinHold(d)).TryLock(t.Context()) // has the same bounds, but that 0 is none
			require.Equal(t, d != 0, errors.Is(err, fairlock.ErrInvalid))
		}
		_, err := gocronfairlock.NewLocker(nil, time.Second)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		for _, d := range []time.Duration{1, year} {
			locker, err := gocronfairlock.NewLocker(client, d)
			require.NoError(t, err)
			_, err = locker.Lock(t.Context(), d.String())
			require.NoError(t, err)
		}
	})
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
