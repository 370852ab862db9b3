package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
)

// An operator lists the locks in use, and takes one from a holder that hangs.
func Example() {
	ctx := context.Background()
	server, err := miniredis.Run() // in memory, for this example
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	client, err := fairlock.New(rdb, fairlock.Config{Name: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Mutex("billing").Lock(ctx); err != nil {
		log.Fatal(err)
	}

	operator := admin.New(rdb, "")
	for state, err := range operator.List(ctx, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(state.ID.Kind, state.ID.Name, "is held by", state.Holders[0].Client)
	}
	released, err := operator.ForceRelease(ctx, fairlock.ID{Kind: fairlock.KindMutex, Name: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", released)
	// Output:
	// mutex billing is held by web-1
	// released: true
}
