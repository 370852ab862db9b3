package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// In a second, replicas start no more requests of a tenant than it may have, and no more in all than the partner takes.
func TestPartner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		var started atomic.Int64
		var replicas []http.Handler
		for range 3 {
			partner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { started.Add(1) })
			replicas = append(replicas, limited(server.Client(fairlock.Config{}).Client, partner))
		}
		send := func(tenant string, want int) {
			for i := range 30 {
				r := httptest.NewRequest(http.MethodGet, "/orders", nil)
				r.Header.Set("X-Tenant", tenant)
				go replicas[i%3].ServeHTTP(httptest.NewRecorder(), r)
			}
			synctest.Wait()
			assert.EqualValues(t, want, started.Load(), tenant)
		}
		for i := range 6 {
			send(fmt.Sprint("tenant ", i), min((i+1)*ofTenant, perSecond))
		}
		time.Sleep(1100 * time.Millisecond)
		assert.EqualValues(t, perSecond+5*(30-ofTenant)+ofTenant, started.Load(), "in two seconds")
	})
}
