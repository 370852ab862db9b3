package gocronfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gocronfairlock "github.com/fairlock/fairlock-go/contrib/gocron"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// tasks shares the job by a Task.
func tasks(minHold time.Duration) func(*replica, task) (task, []gocron.SchedulerOption) {
	return func(r *replica, do task) (task, []gocron.SchedulerOption) {
		return gocronfairlock.Task(r.Mutex("report", fairlock.WithMinHold(minHold)), do), nil
	}
}

//fairlock:promise Jobs of gocron
func TestTask_EachTickOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const period = 10 * time.Second
		c := &cluster{
			Server: s, t: t, cfg: fairlock.Config{TTL: 5 * time.Second},
			job: cron("*/10 * * * * *"), work: worked, share: tasks(5 * time.Second),
		}
		c.assertEachTickOnce(c.live(time.Minute, 8), period)
	})
}

// A replica that gets no reply from Redis goes on trying, for 3 s. After that the lock is still taken if the minimum
// hold is longer than the spread and that.
func TestTask_LateReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		const period = 10 * time.Second
		c := &cluster{
			Server: s, t: t, job: cron("*/10 * * * * *"), work: worked, share: tasks(spread + 3*time.Second + 2*oneWay),
		}
		c.start(spread)
		late := c.start(0)
		time.Sleep(time.Until(midnight.Add(2*period - time.Millisecond)))
		late.Link.Hang()
		time.Sleep(3*time.Second - oneWay)
		late.Link.Mend()
		time.Sleep(2 * period)
		runs, _ := c.took()
		c.assertEachTickOnce(runs, period)
	})
}

// The replica that runs the job cannot reach Redis any more. The ctx of a Task ends before another replica runs the
// job. That of a job under a Locker or an Elector does not.
//
//fairlock:promise Jobs of gocron
func TestTask_LostLease(t *testing.T) {
	for name, c := range map[string]struct {
		share func(*replica, task) (task, []gocron.SchedulerOption)
		ends  bool
	}{
		"Task": {tasks(5 * time.Second), true}, "Locker": {lockers(5 * time.Second), false}, "Elector": {electors, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				const long = 25 * time.Second
				var first, ended time.Time
				cluster := &cluster{
					Server: s, t: t, cfg: fairlock.Config{TTL: 5 * time.Second}, share: c.share,
					job: cron("*/10 * * * * *"),
					work: func(ctx context.Context, r *replica) error {
						if !first.IsZero() {
							return nil
						}
						first = time.Now()
						r.Link.Cut()
						select {
						case <-ctx.Done():
						case <-time.After(long):
						case <-r.dead:
						}
						ended = time.Now()
						return context.Cause(ctx)
					},
				}
				cluster.start(0)
				time.Sleep(time.Second)
				cluster.start(spread)
				time.Sleep(time.Minute)
				runs, errs := cluster.took()
				require.Equal(t, first, runs[0].at)
				next := runs[1]
				assert.NotSame(t, runs[0].by, next.by)
				if c.ends {
					assert.True(t, ended.Before(next.at))
					require.ErrorIs(t, errs[len(errs)-1], fairlock.ErrUnreachable)
					assert.True(t, len(errs) > 0 && errors.Is(errors.Join(errs...), fairlock.ErrLost))
				} else {
					assert.Equal(t, long, ended.Sub(first))
					assert.True(t, next.at.Before(ended))
				}
			})
		})
	}
}

// A Task returns nil only if another one has the lock, and every other error. An ErrBusy of f is one of its own, also
// if it is of a lock of the same name.
func TestTask_Errors(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{})
		m := client.Mutex("report")
		broken := errors.New("broken")
		busy := fmt.Errorf("%w", &fairlock.Error{Op: "trydo", Name: "report", Err: fairlock.ErrBusy})
		for _, want := range []error{nil, broken, busy} {
			require.Equal(t, want, gocronfairlock.Task(m, func(ctx context.Context) error {
				lease, ok := fairlock.LeaseFromContext(ctx)
				require.True(t, ok)
				require.NoError(t, lease.Err())
				return want
			})(t.Context()))
		}
		require.ErrorIs(t, gocronfairlock.Task(m, func(context.Context) error {
			s.Mutex("report").ForceRelease()
			return nil
		})(t.Context()), fairlock.ErrLost)

		never := func(context.Context) error { assert.Fail(t, "called"); return nil }
		_ = s.Mutex("report").HoldAs("other")
		require.NoError(t, gocronfairlock.Task(m, never)(t.Context()))
		require.ErrorIs(t, gocronfairlock.Task(client.Mutex(""), never)(t.Context()), fairlock.ErrInvalid)
		s.Stop()
		require.ErrorIs(t, gocronfairlock.Task(m, never)(t.Context()), fairlock.ErrUnreachable)
		client.Close()
		require.ErrorIs(t, gocronfairlock.Task(m, never)(t.Context()), fairlock.ErrClosed)
	})
}

func TestNil(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { gocronfairlock.Task(fairlock.Mutex{}, nil) })
	assert.Panics(t, func() { gocronfairlock.NewElector(nil) })
}
