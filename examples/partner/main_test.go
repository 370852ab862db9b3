package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// status is that of a request of a tenant.
func status(replica http.Handler, tenant string) int {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/orders", nil)
	r.Header.Set("X-Tenant", tenant)
	replica.ServeHTTP(w, r)
	return w.Code
}

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

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
			replicas = append(replicas, limited(client.Client, ok))
		}
		var wg sync.WaitGroup
		send := func(tenant string, n int) {
			for i := range n {
				wg.Go(func() { assert.Equal(t, http.StatusOK, status(replicas[i%3], tenant)) })
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
