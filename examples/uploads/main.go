// Command uploads receives files by the tus protocol: a client whose connection breaks goes on with its upload later,
// at any of several replicas. They share a folder, and a request locks the upload that it works on.
//
//	go run ./uploads -addr localhost:1080
//	go run ./uploads -addr localhost:1081
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/fairlock/fairlock-go/fairlock"
)

func main() {
	addr := flag.String("addr", "localhost:1080", "where this replica listens")
	folder := flag.String("folder", filepath.Join(os.TempDir(), "fairlock-uploads"),
		"where all replicas store the uploads")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		err = run(ctx, url, listener, *folder)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "uploads:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then until the requests have stored what they have received.
func run(ctx context.Context, url string, listener net.Listener, folder string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	client, err := fairlock.New(rdb, fairlock.Config{TTL: ttl})
	if err != nil {
		return err
	}
	defer client.Close() // before rdb: the last deferred runs first
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	uploads, err := newHandler(client, filestore.New(folder))
	if err != nil {
		return err
	}

	working, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	server := &http.Server{
		Handler:           uploads,
		BaseContext:       func(net.Listener) context.Context { return working },
		ReadHeaderTimeout: 10 * time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	interrupt(handler.ErrServerShutdown) // ends the bodies of the requests
	return errors.Join(client.Shutdown(grace), server.Shutdown(grace))
}

// ttl is how long an upload stays locked at most after the replica that received it has crashed. tusd's
// AcquireLockTimeout is longer, so the client's next request waits for that long.
const ttl = 5 * time.Second

// newHandler returns tusd's handler for a store, below /files/, with locks by client.
func newHandler(client *fairlock.Client, store interface{ UseIn(*handler.StoreComposer) }) (http.Handler, error) {
	composer := handler.NewStoreComposer()
	store.UseIn(composer)
	composer.UseLocker(Locker{client})
	uploads, err := handler.NewHandler(handler.Config{BasePath: "/files/", StoreComposer: composer})
	if err != nil {
		return nil, err
	}
	return http.StripPrefix("/files/", uploads), nil
}
