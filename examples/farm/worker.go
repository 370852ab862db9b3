package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

const (
	cores = 8 // of the farm. All workers must agree on it, so it stands in one place
	// cores that one customer may have at once: a job for all of them would have all others wait until the farm is empty
	ofCustomer = 6
	ahead      = 4 // jobs of a customer that one worker has taken: they wait for cores, or run
)

type job struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Cores    int    `json:"cores"`
}

// The keys in Redis. A job is in one list at any time: that of its customer, its worker's own, or failed.
const (
	customers = "farm:customers" // a set
	jobsOf    = "farm:jobs:"
	ownOf     = "farm:of:"
	failed    = "farm:failed"
)

type worker struct {
	own    string
	rdb    *redis.Client
	farm   fairlock.KeyedSemaphore
	handle func(ctx context.Context, j job) error // stops when ctx ends; may be called again for the same job
}

func newWorker(name string, rdb *redis.Client, locks *fairlock.Client,
	handle func(context.Context, job) error) *worker {
	return &worker{ownOf + name, rdb, locks.KeyedSemaphore("farm", cores, fairlock.WithKeyLimit(ofCustomer)), handle}
}

func (w *worker) add(ctx context.Context, j job) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	_, err = w.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, customers, j.Customer)
		p.LPush(ctx, jobsOf+j.Customer, text)
		return nil
	})
	return err
}

// work does jobs of all customers until ctx ends, which is no error.
func (w *worker) work(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	known := map[string]bool{}
	for pause(ctx, 0) {
		names, err := w.rdb.SMembers(ctx, customers).Result()
		if err != nil && ctx.Err() == nil {
			log.Print("will look for customers again: ", err)
		}
		for _, customer := range names {
			for range ahead {
				if !known[customer] {
					all.Go(func() { w.serve(ctx, customer) })
				}
			}
			known[customer] = true
		}
		pause(ctx, time.Second)
	}
	return nil
}

// serve does jobs of a customer, one after the other, in the order in which they were added.
func (w *worker) serve(ctx context.Context, customer string) {
	for pause(ctx, 0) {
		text, err := w.rdb.LMove(ctx, jobsOf+customer, w.own, "right", "left").Result()
		if err == nil {
			err = w.do(ctx, text)
		}
		if err != nil { // usually redis.Nil: there is no job
			if !errors.Is(err, redis.Nil) && ctx.Err() == nil {
				log.Printf("customer %s: %v", customer, err)
			}
			pause(ctx, 200*time.Millisecond)
		}
	}
}

// do does one job and moves it to where it belongs then. An error means that Redis is in trouble.
func (w *worker) do(ctx context.Context, text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return w.move(ctx, text, failed)
	}
	finished := false
	// it waits for its customer's turn, and its cores
	err := w.farm.Key(j.Customer).Do(ctx, j.Cores, func(ctx context.Context) error {
		err := w.handle(ctx, j)
		finished = err == nil
		return err
	})
	switch {
	case errors.Is(err, fairlock.ErrLost), ctx.Err() != nil && !finished: // another worker does it again
		return w.move(ctx, text, jobsOf+j.Customer)
	case finished:
		return w.move(ctx, text, "")
	case errors.Is(err, fairlock.ErrUnreachable):
		return errors.Join(err, w.move(ctx, text, jobsOf+j.Customer))
	}
	log.Printf("job %d of %s failed: %v", j.ID, j.Customer, err) // it may ask for more cores than a customer can have
	return w.move(ctx, text, failed)
}

// move moves a job from the worker's own list to another one, or nowhere. It also works when ctx has ended.
func (w *worker) move(ctx context.Context, text, list string) error {
	_, err := w.rdb.TxPipelined(context.WithoutCancel(ctx), func(p redis.Pipeliner) error {
		p.LRem(ctx, w.own, 1, text)
		if list != "" {
			p.RPush(ctx, list, text) // to be taken next
		}
		return nil
	})
	return err
}

// takeUp puts back what an earlier process of this name has left when it crashed.
func (w *worker) takeUp(ctx context.Context) error {
	left, err := w.rdb.LRange(ctx, w.own, 0, -1).Result()
	for _, text := range left {
		list := failed
		var j job
		if json.Unmarshal([]byte(text), &j) == nil {
			list = jobsOf + j.Customer
		}
		err = errors.Join(err, w.move(ctx, text, list))
	}
	return err
}

// pause returns false if ctx ends before that time has passed, or has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	default:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// render has a service render a job; "": there is none, and a job takes a second.
func render(url string) func(context.Context, job) error {
	return func(ctx context.Context, j job) error {
		log.Printf("job %d of %s has %d cores", j.ID, j.Customer, j.Cores)
		if url == "" {
			if !pause(ctx, time.Second) {
				return context.Cause(ctx)
			}
			return nil
		}
		body, err := json.Marshal(j)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New("renderer: " + resp.Status)
		}
		return nil
	}
}
