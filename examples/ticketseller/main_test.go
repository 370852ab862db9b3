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
	"github.com/fairlock/fairlock-go/internal/redistest"
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

// inBubble runs a test in simulated time: two sellers sell one ticket. The link of the first can fail.
func inBubble(t *testing.T, test func(t *testing.T, slow, next *seller, link *fairlocktest.Link)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		concert, err := openConcert(t.Context(), filepath.Join(t.TempDir(), "concert.db"), 1)
		require.NoError(t, err)
		t.Cleanup(func() { _ = concert.Close() })
		one, two := server.Client(fairlock.Config{TTL: ttl}), server.Client(fairlock.Config{TTL: ttl})
		test(t, &seller{one.Mutex("concert"), concert, charge, refund}, &seller{two.Mutex("concert"), concert, charge, refund}, one.Link)
	})
}

// buyers returns who has a ticket.
func buyers(t *testing.T, c *concert) (names []string) {
	t.Helper()
	rows, err := c.QueryContext(t.Context(), `SELECT buyer FROM sale ORDER BY rowid`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return names
}

// A seller was paused while it charged a card, and writes when the next one has sold the ticket, or has looked for it.
func TestSeller_WritesTooLate(t *testing.T) {
	for name, inIt := range map[string]bool{"after the next sale": false, "in the next sale": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, slow, next *seller, link *fairlocktest.Link) {
				refunded, sell, written := "", make(chan struct{}), make(chan error, 1)
				slow.refund = func(buyer string) error { refunded = buyer; return nil }
				slow.charge = func(work context.Context, _ string) error {
					link.Cut() // from here on the lease cannot be renewed
					<-sell
					return nil // the card was charged all the same, and the seller writes
				}
				go func() {
					_, err := slow.sell(t.Context(), "slow")
					written <- err
				}()
				synctest.Wait()
				late := func() {
					close(sell)
					assert.ErrorIs(t, <-written, errLate)
				}
				if inIt {
					next.charge = func(context.Context, string) error { late(); return nil }
				}
				ticket, err := next.sell(t.Context(), "next") // in its turn, once the lease is over in Redis
				require.NoError(t, err)
				assert.Equal(t, 1, ticket)
				if !inIt {
					late()
				}
				assert.Equal(t, "slow", refunded)
				assert.Equal(t, []string{"next"}, buyers(t, next.concert))
			})
		})
	}
}

func TestSeller_LeaseIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, slow, next *seller, link *fairlocktest.Link) {
		err := error(nil)
		slow.charge = func(work context.Context, buyer string) error {
			link.Cut()
			<-work.Done()
			err = charge(work, buyer)
			return nil
		}
		ticket, _ := slow.sell(t.Context(), "somebody")
		require.ErrorIs(t, err, fairlock.ErrLost, "a seller that notices it charges nobody")
		assert.Equal(t, 1, ticket, "nobody else has come: the write is in time")
		_, err = next.sell(t.Context(), "next")
		require.ErrorIs(t, err, errSoldOut)
	})
}
