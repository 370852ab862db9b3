package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/leader"
)

// It runs on a server in memory, where a program uses its Redis.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	client, err := fairlock.New(rdb, fairlock.Config{})
	if err != nil {
		log.Fatal(err)
	}

	scheduler := leader.New(client, "scheduler", leader.Config{
		Address:  "10.0.0.3:8080", // where the others find the leader
		Elected:  func(context.Context, *fairlock.Lease) { fmt.Println("elected") },
		Resigned: func(err error) { fmt.Println("resigned:", err) },
	})
	ctx, stop := context.WithCancel(context.Background()) // in a program, signal.NotifyContext
	err = scheduler.Run(ctx, func(ctx context.Context) error {
		address, _, err := scheduler.Leader(ctx) // any process can ask
		if err != nil {
			return err
		}
		fmt.Println("leader:", address)
		stop()
		<-ctx.Done() // works until this process leads no more
		return ctx.Err()
	})
	fmt.Println("ended:", err)
	if err := errors.Join(client.Close(), rdb.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// elected
	// leader: 10.0.0.3:8080
	// resigned: context canceled
	// ended: context canceled
}
