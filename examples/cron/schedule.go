package main

import (
	"context"
	"errors"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// schedule is the timetable of one job, and the lock under which all replicas do it.
type schedule struct {
	locks  *fairlock.Client
	job    string
	period time.Duration
	now    func() time.Time // this replica's clock, which differs from the others'
}

// run tries to do the job whenever it is due, until ctx ends. failed is called with what the job returns, and with what
// Redis does. That replicas do not get the lock is no failure: another one does the job, or has done it just now.
//
// A job that is done in no time has given its lock back when the clocks of other replicas come to the same minute. So
// the lock stays taken for half a period, whatever happens. That must be longer than the clocks are apart, and so must
// the other half: then the lock is free again when the first clock comes to the next minute.
//
//   - While a job takes longer than a period, no other one begins.
//   - If its replica crashes, that job is not done again. The next one is, by another replica.
//   - A replica that is paused for longer than half a period, right before it tries, does a job again. If that matters,
//     write for which minute the job was done together with its result.
func (s schedule) run(ctx context.Context, job func(ctx context.Context, due time.Time) error,
	failed func(due time.Time, err error)) {
	lock := s.locks.Mutex("cron:"+s.job, fairlock.WithMinHold(s.period/2))
	for {
		due := s.now().Truncate(s.period).Add(s.period)
		select {
		case <-time.After(due.Sub(s.now())):
		case <-ctx.Done():
			return
		}
		did := false
		err := lock.TryDo(ctx, func(ctx context.Context) error {
			did = true
			return job(ctx, due)
		})
		if err != nil && (did || !errors.Is(err, fairlock.ErrBusy)) {
			failed(due, err)
		}
	}
}
