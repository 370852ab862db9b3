package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

type job struct {
	ID   int    `json:"id"`
	User string `json:"user"`
}

// The lists in Redis. A job is in one of them at any time: waiting, in its worker's own list, or failed.
const (
	waiting = "jobs"
	failed  = "jobs:failed"
)

type worker struct {
	name   string
	rdb    *redis.Client
	locks  *fairlock.Client
	handle func(ctx context.Context, j job) error // stops when ctx ends; may be called again for the same job
}

func (w *worker) own() string { return "jobs:of:" + w.name }

func (w *worker) add(ctx context.Context, j job) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return w.rdb.LPush(ctx, waiting, text).Err()
}

// work does jobs until ctx ends, which is no error.
func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil {
		// go-redis does not stop a call when ctx ends, so this one must be short.
		text, err := w.rdb.BLMove(ctx, waiting, w.own(), "right", "left", time.Second).Result()
		if errors.Is(err, redis.Nil) {
			continue // no job
		}
		if err == nil {
			err = w.do(ctx, text)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// do does one job and moves it to where it belongs then. An error means that Redis is in trouble.
func (w *worker) do(ctx context.Context, text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return w.move(ctx, text, failed)
	}
	begun, finished := false, false
	// It waits here for other jobs of this user. They run in the order in which they came.
	err := w.locks.Mutex("user:"+j.User).Do(ctx, func(ctx context.Context) (err error) {
		begun = true
		err = w.handle(ctx, j)
		finished = err == nil
		return err
	})
	switch {
	case !begun: // the lock was not granted
		return errors.Join(err, w.move(ctx, text, waiting))
	case errors.Is(err, fairlock.ErrLost): // first: whatever the job says, another one may have begun meanwhile
		log.Printf("job %d of %s must be done again: %v", j.ID, j.User, err)
		return w.move(ctx, text, waiting)
	case finished: // an err is of the release: then the lock comes free when its TTL ends
		return w.move(ctx, text, "")
	case ctx.Err() != nil: // this worker is to stop
		return w.move(ctx, text, waiting)
	}
	log.Printf("job %d of %s failed: %v", j.ID, j.User, err)
	return w.move(ctx, text, failed)
}

// move moves a job from the worker's own list to another one, or nowhere. It also works when ctx has ended.
func (w *worker) move(ctx context.Context, text, list string) error {
	_, err := w.rdb.TxPipelined(context.WithoutCancel(ctx), func(p redis.Pipeliner) error {
		p.LRem(ctx, w.own(), 1, text)
		if list != "" {
			p.RPush(ctx, list, text) // to be taken next
		}
		return nil
	})
	return err
}

// takeUp puts back what an earlier process of this name has left when it crashed.
func (w *worker) takeUp(ctx context.Context) error {
	for {
		err := w.rdb.LMove(ctx, w.own(), waiting, "left", "right").Err()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
