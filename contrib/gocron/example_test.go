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

// A job each hour. The lock stays taken for half an hour, so replicas whose clocks are slower do not run it again.
func ExampleTask() {
	client, stop := newClient()
	defer stop()
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}

	done := make(chan bool)
	report := gocronfairlock.Task(client.Mutex("report").WithMinHold(30*time.Minute), func(ctx context.Context) error {
		fmt.Println("writes the report") // ctx ends if the lock is lost
		close(done)
		return ctx.Err()
	})
	job, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(report), gocron.WithEventListeners(
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { log.Print("report: ", err) }),
	))
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
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan string)
	job, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(func() { fmt.Println("writes the report") }),
		gocron.WithName("report"), gocron.WithEventListeners(
			gocron.AfterJobRuns(func(uuid.UUID, string) { ran <- "done" }),
			gocron.AfterLockError(func(_ uuid.UUID, name string, err error) {
				if errors.Is(err, fairlock.ErrBusy) {
					ran <- "another replica runs it, or has run it"
					return
				}
				log.Printf("%s was skipped: %v", name, err)
			}),
		))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()

	for range 2 {
		if err := job.RunNow(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-ran)
	}
	if err := scheduler.Shutdown(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// writes the report
	// done
	// another replica runs it, or has run it
}

// One replica runs all jobs. Another one goes on when it stops.
func ExampleNewElector() {
	client, stop := newClient()
	defer stop()

	elected := make(chan bool)
	elector := leader.New(client.Mutex("scheduler"), leader.Options{
		Elected: func(context.Context, *fairlock.Lease) { close(elected) },
	})
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronfairlock.NewElector(elector)))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	job, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(func(ctx context.Context) error {
		lease := elector.Lease()
		if lease == nil {
			return gocronfairlock.ErrNotLeader // since this run began
		}
		ctx, cancel := lease.Context(ctx) // gocron does not end a job whose leadership is lost: this ctx does
		defer cancel()
		fmt.Println("writes the report")
		close(done)
		return ctx.Err()
	}))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()

	ctx, resign := context.WithCancel(context.Background())
	resigned := make(chan error)
	go func() {
		resigned <- elector.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done() // leads until then
			return ctx.Err()
		})
	}()

	<-elected
	if err := job.RunNow(); err != nil {
		log.Fatal(err)
	}
	<-done
	err = scheduler.Shutdown() // the running jobs end, and then another replica leads
	resign()
	fmt.Println(<-resigned, err)
	// Output:
	// writes the report
	// context canceled <nil>
}
