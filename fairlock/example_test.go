package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// The first program of examples/README.md. The others below run on a server in memory, so that they need nothing.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	client, err := fairlock.New(rdb, fairlock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	err = client.Mutex("billing").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("this process holds billing; the next waiter gets it afterwards")
		return nil // ctx ends if the lock is lost
	})
	if err := errors.Join(err, client.Close(), rdb.Close()); err != nil {
		log.Fatal(err)
	}
}

// newClient returns a client of a server in memory, where a program uses its Redis. stop closes both.
func newClient(cfg fairlock.Config) (client *fairlock.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	client, err = fairlock.New(rdb, cfg)
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

func ExampleMutex_Lock() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()

	waiting, cancel := context.WithTimeout(ctx, time.Minute) // bounds the waiting, not the lease
	defer cancel()
	lease, err := client.Mutex("billing").Lock(waiting)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", lease.Err() == nil)

	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("after:", lease.Err())
	// Output:
	// held: true
	// after: lock is unlocked
}

func ExampleMutex_Do() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()
	charge := func(ctx context.Context, account int) error {
		fmt.Println("charging", account)
		return ctx.Err() // nil as long as the lock is held
	}

	err := client.Mutex("account:42").Do(ctx, func(ctx context.Context) error {
		return charge(ctx, 42) // alone among all processes; ctx ends if the lock is lost
	})
	if errors.Is(err, fairlock.ErrLost) {
		log.Print("stopped, because the lock is lost: ", err)
	}
	fmt.Println("error:", err)
	// Output:
	// charging 42
	// error: <nil>
}

func ExampleLeaseFromContext() {
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()

	err := client.Mutex("billing").Do(context.Background(), func(ctx context.Context) error {
		lease, _ := fairlock.LeaseFromContext(ctx) // its fence goes along with every write
		fmt.Println("one invoice at a time, under a fence:", lease.Fence() > 0)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// one invoice at a time, under a fence: true
	// error: <nil>
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()
	report := client.Mutex("nightly report")

	lease, err := report.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := report.TryLock(ctx); errors.Is(err, fairlock.ErrBusy) {
		fmt.Println("somebody is at it:", err)
	}
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// somebody is at it: fairlock: trylock "nightly report": lock is busy (held by web-1)
}

// ledger is a resource that checks fences: it remembers the highest, and refuses a write with a lower one.
type ledger struct {
	fence uint64
	lines []string
}

func (l *ledger) Write(fence uint64, line string) error {
	if fence < l.fence {
		return errors.New("refused: a later holder has written already")
	}
	l.fence = fence
	l.lines = append(l.lines, line)
	return nil
}

// A holder that was paused, or whose lock was taken over, may not know yet that its lease has ended. The resource
// refuses its write.
func ExampleLease_Fence() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()
	billing := client.Mutex("billing")
	book := &ledger{}

	old, err := billing.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	current, err := billing.Resume(ctx, old.Handle()) // as another process does
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println("current:", book.Write(current.Fence(), "invoice 1"))
	fmt.Println("old:", book.Write(old.Fence(), "invoice 1"))
	// Output:
	// current: <nil>
	// old: refused: a later holder has written already
}

// A lease ends early if the lock is lost. Its Context ends then, and its cause says why.
func ExampleLease_Context() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()
	lease, err := client.Mutex("billing").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	work, cancel := lease.Context(ctx)
	defer cancel()

	if _, err := client.Mutex("billing").Resume(ctx, lease.Handle()); err != nil { // as another process does
		log.Fatal(err)
	}
	_ = lease.Renew(ctx) // finds the loss now; the next renewal in the background would find it as well

	<-work.Done()
	fmt.Println(context.Cause(work))
	fmt.Println("lost:", errors.Is(lease.Err(), fairlock.ErrLost))
	// Output:
	// lock is lost: no longer the owner
	// lost: true
}

// One process takes the lock and another continues the lease, for example a web server and its worker.
func ExampleMutex_Resume() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "server"})
	defer stop()
	begun, err := client.Mutex("import").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	handle, err := begun.Detach()
	if err != nil {
		log.Fatal(err)
	}
	job := string(handle) // goes with the job; keep it secret: a reader can take the lock

	lease, err := client.Mutex("import").Resume(ctx, fairlock.Handle(job)) // in the worker
	if err != nil {
		log.Fatal(err) // an ErrLost if the worker came too late
	}
	fmt.Println("a higher fence:", lease.Fence() > begun.Fence())
	fmt.Println("unlocked:", lease.Unlock(ctx) == nil)
	// Output:
	// a higher fence: true
	// unlocked: true
}

func ExampleTrace() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Trace: &fairlock.Trace{
		Granted: func(i fairlock.GrantedInfo) { fmt.Println("granted", i.Name) }, // and i.Wait: observe it
		Ended: func(i fairlock.EndedInfo) { // and i.Held
			fmt.Println("ended", i.Name, "lost:", errors.Is(i.Err, fairlock.ErrLost)) // alert if it was lost
		},
	}})
	defer stop()

	_ = client.Mutex("billing").Do(ctx, func(context.Context) error { return nil })
	// Output:
	// granted billing
	// ended billing lost: false
}

// The README has these three lines.
func Example_kinds() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()
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

// One limit is shared fairly between tenants. The README has these three lines.
func ExampleKeyedSemaphore() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "web-1"})
	defer stop()
	call := func(context.Context) error { fmt.Println("calling"); return nil }

	gpu := client.KeyedSemaphore("gpu", 8)
	tenant := gpu.Key("tenant-3", fairlock.WithKeyLimit(4))
	err := tenant.Do(ctx, 1, call)
	fmt.Println(err)
	// Output:
	// calling
	// <nil>
}

// Here a permit stands for one of 16 GB of memory. A request for many permits is granted in its turn, because
// no later request for fewer permits passes it.
func ExampleSemaphore_Acquire() {
	ctx := context.Background()
	client, stop := newClient(fairlock.Config{Name: "worker-1"})
	defer stop()

	memory := client.Semaphore("memory-gb", 16)
	err := memory.Do(ctx, 12, func(ctx context.Context) error {
		_, err := memory.TryAcquire(ctx, 5)
		fmt.Println("5 more:", errors.Is(err, fairlock.ErrBusy))

		small, err := memory.TryAcquire(ctx, 4)
		if err != nil {
			return err
		}
		fmt.Println("4 more:", small.Err() == nil)

		return small.Unlock(ctx)
	})
	if err != nil {
		log.Print(err)
	}
	// Output:
	// 5 more: true
	// 4 more: true
}
