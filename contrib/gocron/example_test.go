package gocronfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	gocronfairlock "github.com/fairlock/fairlock-go/contrib/gocron"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/leader"
)

// newClient returns a client of a server in memory, where a program uses its Redis. stop closes both.
func newClient() (client *fairlock.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	client, err = fairlock.New(rdb, fairlock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		if err := errors.Join(client.Close(), rdb.Close()); err != nil {
			log.Print(err)
		}
		server.Close()
	}
}

var done = make(chan bool) // gets a value after each run

func writeReport(ctx context.Context) error {
	fmt.Println("writes the report")
	return ctx.Err()
}

// A job each hour. The lock stays taken for half an hour, so replicas whose clocks are slower do not run it again.
func ExampleTask() {
	client, stop := newClient()
	defer stop()
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}

	listeners := gocron.WithEventListeners(
		gocron.AfterJobRuns(func(uuid.UUID, string) { done <- true }),
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { log.Print("report: ", err) }),
	)
	m := client.Mutex("report", fairlock.WithMinHold(30*time.Minute))
	task := gocronfairlock.Task(m, writeReport) // the ctx of writeReport ends if the lock is lost
	job, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(task), listeners)
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()

	if err := job.RunNow(); err != nil { // so that this example need not wait for the hour
		log.Fatal(err)
	}
	<-done
	if err := scheduler.Shutdown(); err != nil { // before the client is closed
		log.Fatal(err)
	}
	// Output: writes the report
}

// A Locker for all jobs of a scheduler, which have names and run every hour.
func ExampleNewLocker() {
	client, stop := newClient()
	defer stop()

	locker, err := gocronfairlock.NewLocker(client, 30*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	listeners := gocron.WithEventListeners(
		gocron.AfterJobRuns(func(uuid.UUID, string) { done <- true }),
		gocron.AfterLockError(func(_ uuid.UUID, name string, err error) {
			if errors.Is(err, fairlock.ErrBusy) { // another replica runs it, or has run it
				fmt.Println("not again:", name)
			}
			done <- true
		}),
	)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	job, err := scheduler.NewJob(
		gocron.CronJob("0 * * * *", false), gocron.NewTask(writeReport), gocron.WithName("report"), listeners)
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()

	for range 2 {
		if err := job.RunNow(); err != nil {
			log.Fatal(err)
		}
		<-done
	}
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// writes the report
	// not again: report
}

// One replica runs all jobs. When it stops, another one goes on after its jobs have ended.
func ExampleNewElector() {
	client, stop := newClient()
	defer stop()

	elected := make(chan bool)
	options := leader.Config{Elected: func(context.Context, *fairlock.Lease) { close(elected) }}
	elector := leader.New(client, "scheduler", options)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronfairlock.NewElector(elector)))
	if err != nil {
		log.Fatal(err)
	}
	listeners := gocron.WithEventListeners(gocron.AfterJobRuns(func(uuid.UUID, string) { done <- true }))
	job, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(writeReport), listeners)
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	ctx, resign := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- elector.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done() // this process leads until then
			return context.Cause(ctx)
		})
	}()

	<-elected
	if err := job.RunNow(); err != nil {
		log.Fatal(err)
	}
	<-done
	err = scheduler.Shutdown() // waits for the jobs
	resign()
	fmt.Println(<-ended, err)
	// Output:
	// writes the report
	// context canceled <nil>
}
