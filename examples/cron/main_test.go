package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

// The program does its job each time that it is due.
func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	jobs := 0
	require.NoError(t, run(ctx, "unix://"+redistest.Start(t).Addr(), "one", time.Hour, 100*time.Millisecond,
		writer(func(p []byte) (int, error) {
			if strings.Contains(string(p), "one does the job of ") {
				if jobs++; jobs == 3 {
					cancel()
				}
			}
			return len(p), nil
		})))
	assert.Equal(t, 3, jobs)
}

// replicas are three, whose clocks differ by 300 ms, and a record of what they do in simulated time.
type replicas struct {
	*fairlocktest.Server
	clients []*fairlocktest.Client
	job     func(ctx context.Context, c *fairlocktest.Client, due time.Time) error

	mu   sync.Mutex
	did  []string // guarded by mu: the minutes for which a job began
	errs []error  // guarded by mu
}

func (r *replicas) start(t *testing.T) {
	r.Server = fairlocktest.NewServer(t)
	for _, fast := range []time.Duration{0, 150 * time.Millisecond, 300 * time.Millisecond} {
		c := r.Client(fairlock.Config{})
		r.clients = append(r.clients, c)
		s := schedule{locks: c.Client, job: "report", period: time.Minute,
			now: func() time.Time { return time.Now().Add(fast) }}
		go s.run(t.Context(), func(ctx context.Context, due time.Time) error {
			r.mu.Lock()
			r.did = append(r.did, due.UTC().Format("15:04:05"))
			r.mu.Unlock()
			return r.job(ctx, c, due)
		}, func(_ time.Time, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errs = append(r.errs, err)
		})
	}
	synctest.Wait()
}

// during returns what happens in that time, of which the minutes are those that have a job.
func (r *replicas) during(d time.Duration) (minutes []string, errs []error) {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	minutes, errs, r.did, r.errs = r.did, r.errs, nil, nil
	return minutes, errs
}

func minutes(first, last int) (all []string) {
	for m := first; m <= last; m++ {
		all = append(all, fmt.Sprintf("00:%02d:00", m))
	}
	return all
}

// The bubble's time begins at midnight. Each minute has one job, though a job takes no time.
func TestSchedule_OnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := replicas{job: func(context.Context, *fairlocktest.Client, time.Time) error { return nil }}
		r.start(t)
		time.Sleep(30 * time.Second)
		did, errs := r.during(50 * time.Minute)
		assert.Equal(t, minutes(1, 50), did)
		assert.Empty(t, errs)
	})
}

// No minute has two jobs, and no two jobs are done at once, whatever happens to a job, its replica or Redis.
func TestSchedule_Failures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		r := replicas{job: func(ctx context.Context, c *fairlocktest.Client, due time.Time) error {
			switch due.Minute() {
			case 2:
				return broken
			case 4:
				c.Crash()
				return context.Cause(ctx)
			case 6:
				time.Sleep(90 * time.Second)
			case 11:
				c.Link.Cut()
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}}
		r.start(t)
		time.Sleep(30 * time.Second)

		did, errs := r.during(2 * time.Minute)
		assert.Equal(t, minutes(1, 2), did, "the second one failed, and is not done again")
		require.Len(t, errs, 1)
		require.ErrorIs(t, errs[0], broken)

		did, errs = r.during(3 * time.Minute) // a replica crashes in the fourth; from then on it is away
		assert.Equal(t, minutes(3, 5), did)
		for _, err := range errs {
			require.ErrorIs(t, err, fairlock.ErrClosed)
		}
		require.NotEmpty(t, errs)

		did, _ = r.during(3 * time.Minute)
		assert.Equal(t, append(minutes(6, 6), minutes(8, 8)...), did, "the sixth job takes a minute and a half")

		r.Stop() // Redis is away
		did, errs = r.during(time.Minute)
		assert.Empty(t, did)
		assert.Len(t, errs, 3)
		r.Start()
		did, _ = r.during(3 * time.Minute)
		assert.Equal(t, minutes(10, 12), did, "a replica is cut off from Redis in the eleventh")

		r.clients[1].Link.Mend()
		r.clients[0].Link.Cut() // the replica that has done the twelfth, whose clock is the last
		did, _ = r.during(time.Minute)
		assert.Equal(t, minutes(13, 13), did, "the lock is free before the minute begins by any clock")
	})
}
