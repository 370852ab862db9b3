package metrics_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// A LockCollector reads locks with the rights of each user that docs/operating.md lists, and says which one is missing.
func TestLockCollector_Rights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, rights := range doctor.RightsIn("fairlock", server.Before7()) {
		words := strings.Fields(rights.ACL)
		rules := words[slices.Index(words, ">password")+1:]
		scrape := func(rules ...string) (failures float64, log string) {
			var text strings.Builder
			rdb := redis.NewClient(server.User("user", rules...))
			defer rdb.Close()
			c, err := promfairlock.NewLockCollector(rdb, promfairlock.LockConfig{
				Mutexes: []string{"x"}, Semaphores: []string{"x"}, RWMutexes: []string{"x"}, KeyedSemaphores: []string{"x"},
				Logger: slog.New(slog.NewTextHandler(&text, nil)),
			})
			require.NoError(t, err)
			registry := prometheus.NewRegistry()
			registry.MustRegister(c)
			return values(t, registry)["fairlock_lock_inspection_failures_total fairlock_namespace=fairlock"].sum, text.String()
		}
		failures, log := scrape(rules...)
		assert.Zero(t, failures, rights.For)
		assert.Empty(t, log, rights.For)

		failures, log = scrape(append(rules, "-time")...)
		assert.InDelta(t, 4, failures, 0, rights.For)
		assert.Regexp(t, "(?i)permission|can't run this command|NOPERM|ACL failure", log, rights.For)
	}
}
