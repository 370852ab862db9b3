package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// The three lines of the README.
func Example_kinds() {
	ctx := context.Background()
	rdb, stop := inMemory()
	defer stop()
	client := newClient(rdb, "web-1")
	defer client.Close()
	says := func(what string) func(context.Context) error {
		return func(context.Context) error { fmt.Println(what); return nil }
	}
	call, read, write := says("calling"), says("reading"), says("writing")

	err := errors.Join(
		client.Semaphore("fragile-api", 5).Do(ctx, 1, call), // one of five permits
		client.RWMutex("report").RDo(ctx, read),             // together with other readers
		client.RWMutex("report").Do(ctx, write),             // alone
	)
	fmt.Println(err)
	// Output:
	// calling
	// reading
	// writing
	// <nil>
}

// At most five connections to an API that breaks at six, over all processes.
func ExampleSemaphore_Do() {
	rdb, stop := inMemory()
	defer stop()
	clients := []*fairlock.Client{newClient(rdb, "worker-1"), newClient(rdb, "worker-2")}
	var open atomic.Int32
	var broken atomic.Bool

	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			connections := clients[i%2].Semaphore("fragile-api", 5)
			err := connections.Do(context.Background(), 1, func(context.Context) error {
				defer open.Add(-1)
				if open.Add(1) > 5 {
					broken.Store(true)
				}
				time.Sleep(time.Millisecond) // use the connection
				return nil
			})
			if err != nil {
				log.Print(err)
			}
		})
	}
	wg.Wait()
	fmt.Println("broken:", broken.Load())
	for _, client := range clients {
		client.Close()
	}
	// Output: broken: false
}

// A permit is a share of something: here of 16 GB of memory. Who needs much is served in its turn, too, because nobody
// who needs little passes it.
func ExampleSemaphore_Acquire() {
	ctx := context.Background()
	rdb, stop := inMemory()
	defer stop()
	client := newClient(rdb, "worker-1")
	defer client.Close()

	memory := client.Semaphore("memory-gb", 16)
	err := memory.Do(ctx, 12, func(ctx context.Context) error {
		_, err := memory.TryAcquire(ctx, 5)
		fmt.Println("5 more:", errors.Is(err, fairlock.ErrBusy))

		small, err := memory.TryAcquire(ctx, 4)
		if err != nil {
			return err
		}
		fmt.Println("4 more:", small.Err() == nil)

		state, err := memory.Inspect(ctx)
		fmt.Printf("%d of %d in use\n", state.Used, state.Permits)
		return errors.Join(err, small.Unlock(ctx))
	})
	if err != nil {
		log.Print(err)
	}
	// Output:
	// 5 more: true
	// 4 more: true
	// 16 of 16 in use
}

// While anybody holds or waits, all agree on the number of permits.
func ExampleCapacityError() {
	ctx := context.Background()
	rdb, stop := inMemory()
	defer stop()
	client := newClient(rdb, "worker-1")
	defer client.Close()

	err := client.Semaphore("fragile-api", 5).Do(ctx, 1, func(ctx context.Context) error {
		_, err := client.Semaphore("fragile-api", 6).TryAcquire(ctx, 1) // a newer release, say
		return err
	})
	if other := (*fairlock.CapacityError)(nil); errors.As(err, &other) {
		fmt.Println("in use with", other.Have, "not", other.Want)
	}
	// Output: in use with 5 not 6
}

// A cache entry is computed once, and those who only read it do not wait for each other.
func ExampleRWMutex() {
	ctx := context.Background()
	rdb, stop := inMemory()
	defer stop()
	client := newClient(rdb, "web-1")
	defer client.Close()

	entry := client.RWMutex("report")
	read := func() (report string, err error) {
		err = entry.RDo(ctx, func(ctx context.Context) error {
			report = rdb.Get(ctx, "cache:report").Val()
			return nil
		})
		if err != nil || report != "" {
			return report, err
		}
		err = entry.Do(ctx, func(ctx context.Context) error {
			report = rdb.Get(ctx, "cache:report").Val() // another one may have been faster
			if report != "" {
				return nil
			}
			fmt.Println("computing")
			report = strings.Repeat("=", 9)
			return rdb.Set(ctx, "cache:report", report, time.Hour).Err()
		})
		return report, err
	}

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if report, err := read(); err != nil || report != "=========" {
				log.Print(report, err)
			}
		})
	}
	wg.Wait()
	fmt.Println("read by all")
	// Output:
	// computing
	// read by all
}
