package gocronfairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
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

func TestLocker_EachTickOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{Server: fairlocktest.NewServer(t), t: t, cfg: fairlock.Config{TTL: 5 * time.Second},
			job: func(*replica) gocron.JobDefinition { return gocron.CronJob("*/10 * * * * *", true) },
			share: lockers(5*time.Second),
			work: func(ctx context.Context, r *replica) error {
				select {
				case <-time.After(time.Second):
				case <-r.dead:
				}
				return nil
			}}
		runs, deaths := c.hour()
		t.Log(len(runs), deaths, runs[0].tick(), runs[len(runs)-1].tick())
		assert.Len(t, runs, 1)
	})
}
