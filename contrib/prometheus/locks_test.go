package promfairlock_test

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/sample"
)

// locks returns a LockCollector over a link of its own.
func locks(t *testing.T, s *fairlocktest.Server, cfg promfairlock.LockConfig) (*promfairlock.LockCollector,
	*fairlocktest.Client) {
	t.Helper()
	client := s.Client(fairlock.Config{})
	c, err := promfairlock.NewLockCollector(client.Redis, cfg)
	require.NoError(t, err)
	return c, client
}

// A scrape has each lock of the sample.
func TestLockCollector_Golden(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		ids, end := sample.Locks(t, s)
		defer end()
		var cfg promfairlock.LockConfig
		for _, id := range ids {
			if !utf8.ValidString(id.Name) {
				continue // NewLockCollector refuses it
			}
			names := map[fairlock.Kind]*[]string{
				fairlock.KindMutex: &cfg.Mutexes, fairlock.KindSemaphore: &cfg.Semaphores,
				fairlock.KindKeyedSemaphore: &cfg.KeyedSemaphores, fairlock.KindRWMutex: &cfg.RWMutexes,
			}[id.Kind]
			*names = append(*names, id.Name, id.Name)
		}
		c, _ := locks(t, s, cfg)
		var b strings.Builder
		for _, f := range gather(t, c) {
			fmt.Fprintln(&b, f.GetName(), "of", len(f.GetMetric()))
		}
		found := values(t, c)
		for _, name := range slices.Sorted(maps.Keys(found)) {
			fmt.Fprintln(&b, name, found[name])
		}
		golden.Equal(t, "locks.txt", b.String())
	})
}

// A Redis that hangs keeps a scrape for Timeout, and eight requests, however many scrapes and locks there are. When it
// is back, so are the locks.
func TestLockCollector_RedisHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		names := strings.Split(strings.Repeat("x", 50)+"abcdefghijklmnopqrstuvwyz", "")
		c, client := locks(t, s, promfairlock.LockConfig{Mutexes: names, Timeout: time.Second})
		client.Link.Hang()
		var scrapes sync.WaitGroup
		for range 3 {
			scrapes.Go(func() {
				began := time.Now()
				c.Collect(make(chan prometheus.Metric, 1000))
				assert.Equal(t, time.Second, time.Since(began))
			})
		}
		time.Sleep(time.Second - 1)
		assert.EqualValues(t, 8, client.Redis.PoolStats().Misses, "each request is still waiting for a connection")
		scrapes.Wait()
		began := time.Now()
		failures := map[string]float64{"lock_inspection_failures_total": (3 + 2) * 26}
		assert.Equal(t, failures, values(t, c), "values scrapes twice")
		assert.Equal(t, 2*time.Second, time.Since(began))

		client.Link.Mend()
		time.Sleep(time.Minute)
		assert.Contains(t, values(t, c), "lock_permits mutex a")
	})
}

// A line says why locks cannot be read, once until a scrape has read all of them again.
func TestLockCollector_SaysWhyItFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		var log strings.Builder
		c, client := locks(t, s, promfairlock.LockConfig{
			Namespace: "n", Mutexes: []string{"a", "b"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		scrape := func() string {
			log.Reset()
			c.Collect(make(chan prometheus.Metric, 100))
			return log.String()
		}
		for range 2 {
			s.Miniredis.SetError("NOPERM no such right")
			line := scrape()
			assert.Equal(t, 1, strings.Count(line, "\n"), line)
			assert.Regexp(t,
				`level=WARN msg="locks cannot be read; .*" namespace=n err="fairlock: inspect \\"[ab]\\": keys \\"n:{[ab]}:\*\\": redis refuses: NOPERM no such right"`, line)
			assert.Empty(t, scrape())
			s.Miniredis.SetError("")
			assert.Empty(t, scrape())
		}
		client.Link.Hang()
		assert.Contains(t, scrape(), `err="no reply within 2s"`)
		client.Link.Mend()
	})
}

// Each bad input is named, and nothing is sent: the address answers nobody.
func TestNewLockCollector_BadInput(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { rdb.Close() })
	for field, cfg := range map[string]promfairlock.LockConfig{
		"Namespace":       {Namespace: "{"},
		"Timeout":         {Timeout: -1},
		"Mutexes":         {Mutexes: []string{"a", ""}},
		"Semaphores":      {Semaphores: []string{"\xff"}},
		"KeyedSemaphores": {KeyedSemaphores: []string{""}},
		"RWMutexes":       {RWMutexes: []string{strings.Repeat("x", 1025)}},
	} {
		_, err := promfairlock.NewLockCollector(rdb, cfg)
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		var bad *fairlock.FieldError
		require.ErrorAs(t, err, &bad)
		assert.Equal(t, field, bad.Field)
	}
	for _, bad := range []redis.UniversalClient{nil, (*redis.Client)(nil), redis.NewRing(&redis.RingOptions{})} {
		_, err := promfairlock.NewLockCollector(bad, promfairlock.LockConfig{})
		var field *fairlock.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "rdb", field.Field)
	}
	c, err := promfairlock.NewLockCollector(rdb, promfairlock.LockConfig{
		Namespace: strings.Repeat("x", 256), RWMutexes: []string{strings.Repeat("x", 1024)},
	})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc, 10)
	c.Describe(descs)
	assert.Contains(t, (<-descs).String(), strings.Repeat("x", 256), "so that other namespaces have other metrics")
}
