package gocronfairlock_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gocronfairlock "github.com/fairlock/fairlock-go/contrib/gocron"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/leader"
)

// campaign has a process campaign until its client is closed or ctx ends.
func campaign(ctx context.Context, c *fairlocktest.Client) *leader.Elector {
	e := leader.New(c.Client, "scheduler", leader.Config{Logger: slog.New(slog.DiscardHandler)})
	go func() {
		_ = e.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	return e
}

// electors shares the job by an Elector.
func electors(r *replica, do task) (task, []gocron.SchedulerOption) {
	elector := gocronfairlock.NewElector(campaign(r.cluster.t.Context(), r.Client))
	return do, []gocron.SchedulerOption{gocron.WithDistributedElector(elector)}
}

// The leader runs the job, and no other replica does, until it dies. After that, ticks are missed until another one
// leads.
func TestElector_LeaderRunsAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const deaths = 8
		c := &cluster{
			Server: s, t: t, cfg: fairlock.Config{TTL: 5 * time.Second},
			job: cron("*/2 * * * * *"), work: worked, share: electors,
		}
		runs := c.live(time.Minute, deaths)
		missed := c.ticks(runs, 2*time.Second)
		assert.LessOrEqual(t, len(missed), 3*deaths)
		leaders := 1
		for i := range runs[1:] {
			if runs[i+1].by != runs[i].by {
				leaders++
			}
		}
		assert.Equal(t, deaths+1, leaders)
	})
}

// A leader that cannot reach Redis does not begin a job after its leadership has ended.
func TestElector_IsLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		ctx, resign := context.WithCancel(t.Context())
		client := s.Client(fairlock.Config{})
		one := gocronfairlock.NewElector(campaign(ctx, client))
		synctest.Wait()
		two := gocronfairlock.NewElector(campaign(t.Context(), s.Client(fairlock.Config{})))
		asserts := func(first, second error) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, first, one.IsLeader(t.Context()))
			require.Equal(t, second, two.IsLeader(t.Context()))
		}
		asserts(nil, gocronfairlock.ErrNotLeader)
		client.Link.Cut()
		asserts(nil, gocronfairlock.ErrNotLeader) // while its lease lasts
		time.Sleep(bounds.DefaultTTL - time.Millisecond)
		asserts(gocronfairlock.ErrNotLeader, gocronfairlock.ErrNotLeader)
		time.Sleep(time.Second)
		asserts(gocronfairlock.ErrNotLeader, nil)
		client.Link.Mend()
		time.Sleep(time.Minute)
		s.Mutex("scheduler").AssertQueue("client-1")
		resign()
		synctest.Wait()
		s.Mutex("scheduler").AssertQueue()
	})
}

// With an Elector, gocron calls no Locker.
func TestElector_SwitchesLockersOff(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c := &cluster{
			Server: s, t: t, job: cron("*/10 * * * * *"), work: worked,
			share: func(r *replica, do task) (task, []gocron.SchedulerOption) {
				_, elector := electors(r, do)
				_, locker := lockers(time.Second)(r, do)
				return do, append(elector, locker...)
			},
		}
		c.start(0)
		time.Sleep(25 * time.Second)
		runs, errs := c.took()
		assert.Len(t, runs, 2)
		assert.Empty(t, errs)
		assert.Zero(t, s.Mutex("report").State().Fence)
	})
}
