package skew_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/internal/skew"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestAStepMovesTheTimeOfARunningServer(t *testing.T) {
	clock, err := skew.New(t.TempDir())
	require.NoError(t, err)
	defer func() { assert.NoError(t, clock.Close()) }()
	for name, value := range clock.Env() {
		t.Setenv(name, value)
	}
	rdb := redistest.Start(t).Client()
	off := func() time.Duration {
		now, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		return time.Until(now)
	}
	const near = float64(time.Second)
	assert.InDelta(t, 0, off(), near)
	require.NoError(t, rdb.Set(t.Context(), "x", 1, time.Minute).Err())

	require.NoError(t, clock.Step(-time.Hour))
	assert.InDelta(t, -time.Hour, off(), near)
	assert.InDelta(t, time.Hour+time.Minute, rdb.PTTL(t.Context(), "x").Val(), near, "it lasts longer")

	require.NoError(t, clock.Step(2*time.Hour))
	assert.InDelta(t, time.Hour, off(), near)
	assert.Equal(t, time.Hour, clock.Off())
	assert.Zero(t, rdb.Exists(t.Context(), "x").Val(), "its time is over")
}
