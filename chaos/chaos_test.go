package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(workerEnv); ok {
		workerMain(text)
		return
	}
	redis.SetLogger(silent{}) // it tells of every connection that fails
	os.Exit(m.Run())
}

func TestChaos(t *testing.T) {
	seed, rounds, scale := plan(t)
	t.Logf("CHAOS_SEED=%d", seed)
	for round := range rounds {
		prefix, seed := "", seed+uint64(round)
		if rounds > 1 {
			prefix = fmt.Sprintf("%d/", round+1)
		}
		for _, k := range kinds {
			t.Run(prefix+k.name, func(t *testing.T) { k.test(t, seed, scale) })
		}
		t.Run(prefix+"clock stepped, in memory", func(t *testing.T) {
			memory(t, seed, time.Duration(scale*float64(4*time.Second)))
		})
	}
}

// roundTime is about how long the short form takes.
const roundTime = 80 * time.Second

// plan says what CHAOS_SEED and CHAOS_TIME ask for.
func plan(t *testing.T) (seed uint64, rounds int, scale float64) {
	t.Helper()
	seed, rounds, scale = rand.Uint64N(1e9), 1, 1
	var err error
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "CHAOS_SEED")
	}
	if text := os.Getenv("CHAOS_TIME"); text != "" {
		total, err := time.ParseDuration(text)
		require.NoError(t, err, "CHAOS_TIME")
		require.GreaterOrEqual(t, total, roundTime, "CHAOS_TIME: below the short form too little can happen")
		short := total.Seconds() / roundTime.Seconds()
		rounds = max(1, int(short/2))
		scale = short / float64(rounds)
	}
	return seed, rounds, scale
}

// test makes a run, scale times as long as the short form.
func (k kind) test(t *testing.T, seed uint64, scale float64) {
	began := time.Now()
	w := newWorld(t, k, seed)
	started := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var heeding sync.WaitGroup
	heeding.Go(func() { w.heed(ctx) })
	w.storm(scale)
	stormed := time.Now()
	w.mend()
	w.finish()
	finished := time.Now()
	w.progress()
	taken := time.Now()
	w.clean()
	clean := time.Now()
	stop()
	heeding.Wait()
	w.judge(scale)
	t.Logf("start %v, storm %v, end %v, every lock taken %v, all keys gone %v, judged %v", started.Sub(began),
		stormed.Sub(started), finished.Sub(stormed), taken.Sub(finished), clean.Sub(taken), time.Since(clean))
}
