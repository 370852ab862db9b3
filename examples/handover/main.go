// Command handover takes a lock in one process and gives it back in another: the first one checks an import and answers
// its user, the second one does it. Nobody gets in between, because it is one lease all along.
//
//	go run ./handover
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// ttl bounds how long the second process may take to come.
const ttl = 4 * time.Second

func main() {
	second := flag.Bool("second", false, "be the second process, which reads the handle from its standard input")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	run := first
	if *second {
		run = last
	}
	err := run(ctx, url)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "handover:", err)
		os.Exit(1)
	}
}

// first is the first process. It ends holding the lock.
func first(ctx context.Context, url string) error {
	handle, err := begin(ctx, url, func(lease *fairlock.Lease) {
		fmt.Printf("process %d has begun, fence %d\n", os.Getpid(), lease.Fence())
	})
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// The handle is a secret: whoever has it can take the lock. So it goes through a pipe. Arguments and the
	// environment of a process can be read by others, and job queues should be treated alike.
	next := exec.CommandContext(ctx, program, "-second")
	next.Stdin, next.Stdout, next.Stderr = strings.NewReader(string(handle)), os.Stdout, os.Stderr
	return next.Run() // only so that the example ends in order: it might as well exit now
}

// last is the second process.
func last(ctx context.Context, url string) error {
	handle, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return finish(ctx, url, fairlock.Handle(handle), func(ctx context.Context, lease *fairlock.Lease) error {
		fmt.Printf("process %d goes on, fence %d\n", os.Getpid(), lease.Fence())
		select {
		case <-time.After(200 * time.Millisecond): // the import
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// begin takes the lock, does the first part, and returns the lease's handle. From then on the lease is renewed no more:
// whoever goes on has what is left of its TTL to come, two thirds of it at least.
func begin(ctx context.Context, url string, part func(*fairlock.Lease)) (fairlock.Handle, error) {
	client, closeAll, err := connect(url)
	if err != nil {
		return "", err
	}
	defer closeAll()
	lease, err := client.Mutex("import").Lock(ctx)
	if err != nil {
		return "", err
	}
	part(lease)
	return lease.Detach()
}

// finish goes on with the lease of that handle, does the last part and gives the lock back. It is an ErrLost if it
// comes too late: then nothing has been done, and somebody else may have the lock.
func finish(ctx context.Context, url string, handle fairlock.Handle,
	part func(context.Context, *fairlock.Lease) error) (err error) {
	client, closeAll, err := connect(url)
	if err != nil {
		return err
	}
	defer closeAll()
	lease, err := client.Mutex("import").Resume(ctx, handle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock(ctx)) }()
	work, cancel := lease.Context(ctx)
	defer cancel()
	return part(work, lease)
}

func connect(url string) (client *fairlock.Client, closeAll func(), err error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(options)
	client, err = fairlock.New(rdb, fairlock.Config{TTL: ttl})
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return client, func() { client.Close(); rdb.Close() }, nil
}
