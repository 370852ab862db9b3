package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
	"github.com/fairlock/fairlock-go/fairlock"
)

func (c *contender) work(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.turn(ctx); err != nil && ctx.Err() == nil {
			c.emit(report{Event: c.event(failed, ""), Note: err.Error()})
			sleep(ctx, 100*time.Millisecond)
		}
		sleep(ctx, about(c.Hold))
	}
}

// turn waits for the lock, holds it for a while and gives it back.
func (c *contender) turn(ctx context.Context) error {
	weight, release := c.task()
	asked := c.clock()
	lease, err := c.acquire(ctx, c.client, c.Lock, weight)
	if err != nil {
		return err
	}
	granted := c.event(judge.Granted, lease.Token().Text()) // all that could be done with it is to disturb a demo
	granted.Asked, granted.Fence, granted.Weight = asked, lease.Fence(), weight
	c.emit(report{Event: granted})
	c.hold(ctx, lease, weight, release)
	return c.unlock(ctx, lease)
}

// hold does what one does under a lock, and keeps it until release if there is one.
func (c *contender) hold(ctx context.Context, lease *fairlock.Lease, weight int, release <-chan struct{}) {
	ctx, cancel := lease.Context(ctx)
	defer cancel()
	if release != nil {
		e := c.event(kept, lease.Token().Text())
		e.Weight = weight
		c.emit(report{Event: e})
		select {
		case <-release:
		case <-ctx.Done():
		}
	}
	sleep(ctx, about(c.Hold))
}

// task tells a worker what to ask for, and until when to keep it, if it is to.
func (c *contender) task() (weight int, release <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	weight = c.weight()
	if c.wanted == "" {
		return weight, nil
	}
	if c.wanted == orderKeepAll {
		weight = c.capacity()
	}
	c.wanted = ""
	return weight, c.release
}

func (c *contender) unlock(ctx context.Context, lease *fairlock.Lease) error {
	id := lease.Token().Text()
	select {
	case <-lease.Done():
		lost := c.event(judge.Lost, id)
		lost.At -= max(0, int64(time.Since(lease.Deadline()))) // it was to stop by then, however late it notices
		c.emit(report{Event: lost})
		return nil
	default:
	}
	c.emit(report{Event: c.event(judge.Unlocking, id)})
	err := lease.Unlock(ctx)
	switch {
	case err == nil:
		c.emit(report{Event: c.event(judge.Unlocked, id)})
	case errors.Is(err, fairlock.ErrLost):
		c.emit(report{Event: c.event(judge.Lost, id)})
	}
	return err
}

func (c *contender) queued(info fairlock.QueuedInfo) {
	e := c.event(judge.Queued, info.Token.Text())
	e.Ticket = info.Ticket
	c.emit(report{Event: e})
}

func (c *contender) left(info fairlock.LeftInfo) {
	c.emit(report{Event: c.event(judge.Left, info.Token.Text())})
}

// event is one that happens now.
func (c *contender) event(kind judge.Kind, id string) judge.Event {
	return judge.Event{Kind: kind, Client: c.Client, ID: id, At: c.clock()}
}

// about is d, give or take a half: turns of equal length would always fall to the same workers in the same order.
func about(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
