//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
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
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-addr", "127.0.0.1:0", "-api", api)
	cmd.Env = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS=unix://"+server.Addr())
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // killed by the end of the test's ctx, unless the test has ended it
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	url, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, found, line)
	return cmd, url
}

// get sends a request, and returns its status, and the fence: the time at which Redis has granted it a permit, in µs.
func get(t *testing.T, url, tenant string) (status int, fence int64) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/orders", http.NoBody)
	if !assert.NoError(t, err) {
		return 0, 0
	}
	req.Header.Set("X-Tenant", tenant)
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(t, err) {
		return 0, 0
	}
	defer func() { _ = resp.Body.Close() }()
	fence, _ = strconv.ParseInt(resp.Header.Get("X-Fence"), 10, 64)
	return resp.StatusCode, fence
}

// Case 11 of keyed semaphores, with processes: three replicas start no more than 100 requests in any second, and no
// more than 20 of one tenant. A tenant that sends many delays nobody else.
//
//fairlock:promise A rate in two levels
func TestPartner_Rate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()
	var urls []string
	for range 3 {
		_, url := replica(t, server, api.URL)
		urls = append(urls, url)
	}
	var mu sync.Mutex
	starts := map[string][]int64{} // guarded by mu
	var wg sync.WaitGroup
	send := func(tenant string, n int) {
		for i := range n {
			wg.Go(func() {
				status, fence := get(t, urls[i%3], tenant)
				assert.Equal(t, http.StatusOK, status)
				mu.Lock()
				defer mu.Unlock()
				starts[tenant] = append(starts[tenant], fence)
				starts[""] = append(starts[""], fence)
			})
		}
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
}

// A tenant with too many requests that wait is told so, another one is not. On SIGTERM, those who wait are told to try
// again.
func TestPartner_FullLineAndDrain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cmd, url := replica(t, server, "")
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
		go func() { status, _ := get(t, url, "ann"); statuses <- status }()
	}
	require.Eventually(t, func() bool {
		st, err := operator.Inspect(t.Context(), id, 1, 1)
		return err == nil && st.Waiting == waiting
	}, time.Minute, time.Millisecond)
	status, _ := get(t, url, "ann")
	assert.Equal(t, http.StatusTooManyRequests, status)
	status, _ = get(t, url, "bob")
	assert.Equal(t, http.StatusOK, status)
	status, _ = get(t, url, "")
	assert.Equal(t, http.StatusBadRequest, status)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for range waiting {
		assert.Equal(t, http.StatusServiceUnavailable, <-statuses)
	}
	require.NoError(t, cmd.Wait())
	st, err := operator.Inspect(t.Context(), id, 1, 1)
	require.NoError(t, err)
	assert.Equal(t, 0, st.Waiting)
}
