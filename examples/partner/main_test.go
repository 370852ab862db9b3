//go:build unix

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// asProgram has the test binary be the program.
const asProgram = "FAIRLOCK_EXAMPLE_PARTNER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// replica starts a process, and returns it and its URL.
func replica(t *testing.T, server *redistest.Server, api string) (*exec.Cmd, string) {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-addr", addr, "-api", api)
	cmd.Env = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS=unix://"+server.Addr())
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // killed by the end of the test's ctx, unless the test has ended it
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		return err == nil && conn.Close() == nil
	}, time.Minute, time.Millisecond)
	return cmd, "http://" + addr
}

// get sends a request, and returns its status.
func get(t *testing.T, url, tenant string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/orders", http.NoBody)
	if !assert.NoError(t, err) {
		return 0
	}
	req.Header.Set("X-Tenant", tenant)
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(t, err) {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

// Case 11 of keyed semaphores, behind HTTP: three replicas start no more than 100 requests in any second, and no more
// than 20 of one tenant. A tenant that sends many delays nobody else. A fence is the time at which Redis has granted a
// permit, in µs.
//
//fairlock:promise A rate in two levels
func TestPartner_Rate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, starts := fairlocktest.NewServer(t), map[string][]int64{}
		var mu sync.Mutex // guards starts
		granted := func(info fairlock.GrantedInfo) {
			mu.Lock()
			defer mu.Unlock()
			for _, who := range []string{info.Key, ""} {
				starts[who] = append(starts[who], int64(info.Fence))
			}
		}
		var replicas []http.Handler
		for range 3 {
			client := server.Client(fairlock.Config{Trace: &fairlock.Trace{Granted: granted}})
			ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			replicas = append(replicas, limited(client.Client, ok))
		}
		var wg sync.WaitGroup
		send := func(tenant string, n int) {
			for i := range n {
				wg.Go(func() {
					w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/orders", nil)
					r.Header.Set("X-Tenant", tenant)
					replicas[i%3].ServeHTTP(w, r)
					assert.Equal(t, http.StatusOK, w.Code)
				})
			}
			synctest.Wait()
		}
		send("loud", 60)
		for tenant := range 6 {
			send(fmt.Sprint("tenant ", tenant), 30)
		}
		wg.Wait()
		for tenant, at := range starts {
			most := map[bool]int{true: perSecond, false: ofTenant}[tenant == ""]
			slices.Sort(at)
			for i := most; i < len(at); i++ {
				require.GreaterOrEqual(t, at[i]-at[i-most], time.Second.Microseconds(), "%q, starts %d to %d", tenant, i-most, i)
			}
		}
		require.Len(t, starts[""], 240)
		for tenant := range 6 { // the loud one comes first, with twice as many
			assert.Less(t, slices.Max(starts[fmt.Sprint("tenant ", tenant)]), slices.Max(starts["loud"]))
		}
	})
}

// A tenant with too many requests that wait is told so, another one is not. On SIGTERM, those who wait are told to try
// again.
func TestPartner_FullLineAndDrain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	cmd, url := replica(t, server, api.URL)
	locks, err := fairlock.New(server.Client(), fairlock.Config{Name: "operator"})
	require.NoError(t, err)
	defer locks.Close()
	partner := locks.KeyedSemaphore("partner", perSecond)
	for range ofTenant {
		_, err := partner.Key("ann").Acquire(t.Context(), 1) // held until the test ends
		require.NoError(t, err)
	}
	operator, id := admin.New(server.Client(), ""), fairlock.ID{Kind: fairlock.KindKeyedSemaphore, Name: "partner"}
	statuses := make(chan int, waiting)
	for range waiting {
		go func() { statuses <- get(t, url, "ann") }()
	}
	require.Eventually(t, func() bool {
		st, err := operator.Inspect(t.Context(), id, 1, 1)
		return err == nil && st.Waiting == waiting
	}, time.Minute, time.Millisecond)
	assert.Equal(t, http.StatusTooManyRequests, get(t, url, "ann"))
	assert.Equal(t, http.StatusOK, get(t, url, "bob"))
	assert.Equal(t, http.StatusBadRequest, get(t, url, ""))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for range waiting {
		assert.Equal(t, http.StatusServiceUnavailable, <-statuses)
	}
	require.NoError(t, cmd.Wait())
	st, err := operator.Inspect(t.Context(), id, 1, 1)
	require.NoError(t, err)
	assert.Equal(t, 0, st.Waiting)
}
