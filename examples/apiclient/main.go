// Command apiclient calls an API that breaks when more than five requests are under way at once, from several clients
// that know nothing of each other but the name of a semaphore.
//
//	go run ./apiclient -clients 4 -requests 50
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// permits is how many requests the API bears. While anybody holds or waits all must agree on it, so it stands in one
// place.
const permits = 5

func main() {
	clients := flag.Int("clients", 4, "clients, as if each were a process")
	requests := flag.Int("requests", 50, "requests of each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	url := cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379")
	err := run(ctx, url, *clients, *requests)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiclient:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, clients, requests int) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	api := &fragile{bears: permits, work: func() { time.Sleep(10 * time.Millisecond) }}
	server := httptest.NewServer(api)
	defer server.Close()

	var wg sync.WaitGroup
	errs := make([]error, clients*requests)
	for i := range clients {
		rdb := redis.NewClient(options)
		defer rdb.Close()
		client, err := fairlock.New(rdb, fairlock.Config{})
		if err != nil {
			return err
		}
		defer client.Close() // before rdb: the last deferred runs first
		bounded := &http.Client{Transport: &Transport{Permits: client.Semaphore("fragile-api", permits)}}
		for j := range requests {
			wg.Go(func() { errs[i*requests+j] = get(ctx, bounded, server.URL) })
		}
	}
	wg.Wait()
	log.Printf("%d requests, at most %d at once", clients*requests, api.most())
	return errors.Join(errs...)
}

func get(ctx context.Context, client *http.Client, url string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for waiting in line and for the request
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }() // gives the permit back
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// fragile is the API.
type fragile struct {
	bears int
	work  func() // of a request

	mu       sync.Mutex
	now, max int // guarded by mu
}

func (f *fragile) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	f.now++
	f.max = max(f.max, f.now)
	broken := f.max > f.bears
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	if broken { // for good
		http.Error(w, "broken", http.StatusServiceUnavailable)
		return
	}
	f.work()
}

func (f *fragile) most() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.max
}
