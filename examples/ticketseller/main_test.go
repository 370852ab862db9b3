package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/fence"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

func TestRun(t *testing.T) {
	t.Parallel()
	url := "unix://" + redistest.Start(t).Addr()
	var out strings.Builder
	require.NoError(t, run(t.Context(), url, 3, 4, 6, &out))
	for ticket := range 4 {
		assert.Equal(t, 1, strings.Count(out.String(), fmt.Sprintf("got ticket %d\n", ticket+1)))
	}
	assert.Equal(t, 2, strings.Count(out.String(), "sold out"))
	require.Error(t, run(t.Context(), url+".not?max_retries=-1", 1, 1, 1, &out))
}

// buyers returns who has a ticket.
func buyers(t *testing.T, c *concert) (names string) {
	t.Helper()
	require.NoError(t, c.QueryRowContext(t.Context(), `SELECT group_concat(buyer) FROM sale`).Scan(&names))
	return names
}

// Two sellers sell one ticket, in simulated time. The first cannot renew its lease once it charges a card. If it
// notices that, it charges nobody; if not, and it writes when the next one has sold the ticket or has looked for it, it
// is too late.
func TestSeller_LeaseIsLost(t *testing.T) {
	for _, writes := range []string{"in time", "after the next sale", "in the next sale"} {
		t.Run(writes, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := fairlocktest.NewServer(t)
				concert, err := openConcert(t.Context(), filepath.Join(t.TempDir(), "concert.db"), 1)
				require.NoError(t, err)
				defer func() { _ = concert.Close() }()
				one, two := server.Client(fairlock.Config{TTL: ttl}), server.Client(fairlock.Config{TTL: ttl})
				refunded, sell, written := "", make(chan struct{}), make(chan error, 1)
				slow := &seller{one.Mutex("concert"), concert, nil, func(buyer string) error { refunded = buyer; return nil }}
				next := &seller{two.Mutex("concert"), concert, charge, refund}
				slow.charge = func(work context.Context, buyer string) error {
					one.Link.Cut()
					if writes == "in time" {
						<-work.Done()
						assert.ErrorIs(t, charge(work, buyer), fairlock.ErrLost)
						return nil
					}
					<-sell
					return nil // the card was charged all the same
				}
				go func() {
					_, err := slow.sell(t.Context(), "slow")
					written <- err
				}()
				synctest.Wait()
				late := func() {
					close(sell)
					assert.ErrorIs(t, <-written, fence.ErrStale)
				}
				if writes == "in the next sale" {
					next.charge = func(context.Context, string) error { late(); return nil }
				}
				ticket, err := next.sell(t.Context(), "next") // in its turn, once the lease is over in Redis
				switch writes {
				case "in time":
					require.ErrorIs(t, err, errSoldOut)
					assert.Equal(t, "slow", buyers(t, concert))
					return
				case "after the next sale":
					late()
				}
				require.NoError(t, err)
				assert.Equal(t, []any{1, "slow", "next"}, []any{ticket, refunded, buyers(t, concert)})
			})
		})
	}
}
