package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	table, err := write(strings.NewReader(`
two numbers: all histories of 4 steps: 4700 states, 17634 steps, 4 s
two numbers: all histories of 5 steps: 33284 states, 141184 steps, 20 s
seeds 5 to 63: 29 seeds, 10000 grants checked in 1m0s (10000 a minute), 2m25s with faults
seeds 6 to 64: 30 seeds, 11000 grants checked in 1m0s (11000 a minute), 2m30s with faults
        check.go:60:       7 processes killed
        check.go:60:      35 processes killed
| a ticket is the time | states numbers | mutex in 3 steps | 7 |
| a lease is counted from the reply | test | TestLease | 7 |
`), time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	assert.Equal(t, `
| what was tried until 2026-11-26 | how much |
|---|---|
| short histories: two numbers | 33,284 states in 141,184 steps; all histories of 5 steps |
| simulation | 21,000 grants checked in 59 seeds, 4m55s of simulated time with faults |
| fault runs: processes killed | 42 |

| a break of the code, or a bug that was there | found by | in |
|---|---|---|
| a lease is counted from the reply | test | TestLease |
| a ticket is the time | states numbers | mutex in 3 steps |

`, table)
}
