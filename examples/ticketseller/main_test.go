package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/examples/internal/soon"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// newSeller returns a seller with a connection of its own to the locks; queued tells when one of its buyers is in line.
func newSeller(t *testing.T, options *redis.Options, c *concert) (s *seller, queued <-chan struct{}) {
	t.Helper()
	joined := make(chan struct{}, 100)
	rdb := redis.NewClient(options)
	client, err := fairlock.New(rdb, fairlock.Config{
		TTL: ttl, Trace: &fairlock.Trace{Queued: func(fairlock.QueuedInfo) { joined <- struct{}{} }},
	})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close(); rdb.Close() })
	return &seller{lock: client.Mutex("concert"), concert: c, charge: charge, refund: refund}, joined
}

func newConcert(t *testing.T, tickets int) *concert {
	t.Helper()
	c, err := openConcert(t.Context(), filepath.Join(t.TempDir(), "concert.db"), tickets)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

type sale struct {
	ticket int
	buyer  string
	fence  uint64
}

// sales returns what the database has, in the order in which it was written.
func sales(t *testing.T, c *concert) (all []sale) {
	t.Helper()
	rows, err := c.QueryContext(t.Context(), `SELECT ticket, buyer, fence FROM sale ORDER BY rowid`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s sale
		require.NoError(t, rows.Scan(&s.ticket, &s.buyer, &s.fence))
		all = append(all, s)
	}
	require.NoError(t, rows.Err())
	return all
}

func TestBuyersAreServedInOrderAndTheLastTicketIsSoldOnce(t *testing.T) {
	ctx := soon.Context(t)
	const tickets, buyers = 5, 12
	server, concert := redistest.Start(t), newConcert(t, tickets)
	first, _ := newSeller(t, server.Options(), concert)
	open, err := first.lock.Lock(ctx) // nobody sells yet
	require.NoError(t, err)

	results := make([]chan error, buyers)
	for i := range buyers { // one after the other, so that their order is known
		s, queued := newSeller(t, server.Options(), concert)
		results[i] = make(chan error, 1)
		go func() {
			ticket, err := s.sell(ctx, fmt.Sprint("buyer ", i+1))
			if err == nil && ticket != i+1 {
				err = fmt.Errorf("buyer %d got ticket %d", i+1, ticket)
			}
			results[i] <- err
		}()
		soon.Receive(t, queued)
	}
	require.NoError(t, open.Unlock(ctx))

	for i := range buyers {
		if err := soon.Receive(t, results[i]); i < tickets {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errSoldOut)
		}
	}
	all := sales(t, concert)
	require.Len(t, all, tickets)
	fence := open.Fence()
	for i, s := range all {
		assert.Equal(t, i+1, s.ticket)
		assert.Equal(t, fmt.Sprint("buyer ", i+1), s.buyer)
		assert.Greater(t, s.fence, fence)
		fence = s.fence
	}
}

func TestTheDatabaseRefusesALateWrite(t *testing.T) {
	ctx := soon.Context(t)
	server, concert := redistest.Start(t), newConcert(t, 1)
	link := redistest.NewLink(t, server)
	slow, _ := newSeller(t, &redis.Options{Network: "unix", Addr: link.Addr()}, concert)
	next, _ := newSeller(t, server.Options(), concert)

	refunded := ""
	slow.refund = func(buyer string) error { refunded = buyer; return nil }
	slow.charge = func(work context.Context, _ string) error {
		link.Cut() // from here on the lease cannot be renewed
		<-work.Done()
		require.ErrorIs(t, context.Cause(work), fairlock.ErrLost)
		ticket, err := next.sell(ctx, "next") // in its turn, once the lease is over in Redis too
		require.NoError(t, err)
		assert.Equal(t, 1, ticket)
		return nil // the card was charged all the same, and the seller writes
	}
	_, err := slow.sell(ctx, "slow")
	require.ErrorIs(t, err, errLate)
	require.ErrorIs(t, err, fairlock.ErrLost)
	assert.Equal(t, "slow", refunded)

	all := sales(t, concert)
	require.Len(t, all, 1)
	assert.Equal(t, "next", all[0].buyer)
	_, err = concert.sold(ctx, all[0].fence)
	require.ErrorIs(t, err, errSoldOut)
}

func TestWhoeverPaysForNothingGetsTheMoneyBack(t *testing.T) {
	ctx := soon.Context(t)
	concert := newConcert(t, 1)
	s, _ := newSeller(t, redistest.Start(t).Options(), concert)
	refunded := ""
	s.refund = func(buyer string) error { refunded = buyer; return nil }
	s.charge = func(context.Context, string) error { return concert.Close() }
	_, err := s.sell(ctx, "somebody")
	require.ErrorContains(t, err, "closed")
	assert.Equal(t, "somebody", refunded)
}

// The late write comes when the next one has looked and not yet written.
func TestTheDatabaseRefusesALateWriteAlsoBetweenALookAndItsWrite(t *testing.T) {
	ctx := soon.Context(t)
	server, concert := redistest.Start(t), newConcert(t, 10)
	link := redistest.NewLink(t, server)
	slow, _ := newSeller(t, &redis.Options{Network: "unix", Addr: link.Addr()}, concert)
	next, _ := newSeller(t, server.Options(), concert)

	holds, looked, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	slow.charge = func(context.Context, string) error {
		link.Cut()
		close(holds)
		<-looked
		return nil
	}
	next.charge = func(context.Context, string) error {
		close(looked)
		require.ErrorIs(t, soon.Receive(t, late), errLate)
		return nil
	}
	go func() {
		_, err := slow.sell(ctx, "slow")
		late <- err
	}()
	soon.Receive(t, holds)
	ticket, err := next.sell(ctx, "next")
	require.NoError(t, err)
	assert.Equal(t, 1, ticket)
	all := sales(t, concert)
	require.Len(t, all, 1)
	assert.Equal(t, "next", all[0].buyer)
}

// The lock is lost, and nobody else has come: the write is in time.
func TestWhatWasWrittenInTimeIsSold(t *testing.T) {
	ctx := soon.Context(t)
	server, concert := redistest.Start(t), newConcert(t, 1)
	link := redistest.NewLink(t, server)
	s, _ := newSeller(t, &redis.Options{Network: "unix", Addr: link.Addr()}, concert)
	s.charge = func(work context.Context, _ string) error {
		link.Cut()
		<-work.Done()
		return nil
	}
	ticket, err := s.sell(ctx, "slow")
	require.NoError(t, err)
	assert.Equal(t, 1, ticket)
	assert.Len(t, sales(t, concert), 1)
}

func TestASellerThatNoticesItsLossChargesNobody(t *testing.T) {
	ctx := soon.Context(t)
	server, concert := redistest.Start(t), newConcert(t, 1)
	link := redistest.NewLink(t, server)
	s, _ := newSeller(t, &redis.Options{Network: "unix", Addr: link.Addr()}, concert)
	s.charge = func(ctx context.Context, buyer string) error {
		link.Cut()
		<-ctx.Done()
		return charge(ctx, buyer)
	}
	_, err := s.sell(ctx, "nobody")
	require.ErrorIs(t, err, fairlock.ErrLost)
	require.NotErrorIs(t, err, errLate)
	assert.Empty(t, sales(t, concert))
}

func TestTheProgramSellsAllTickets(t *testing.T) {
	ctx := soon.Context(t)
	server := redistest.Start(t)
	var out strings.Builder
	require.NoError(t, run(ctx, "unix://"+server.Addr(), 3, 4, 6, &out))
	assert.Equal(t, 4, strings.Count(out.String(), "got ticket"))
	assert.Equal(t, 2, strings.Count(out.String(), "sold out"))
	for ticket := range 4 {
		assert.Contains(t, out.String(), fmt.Sprintf("got ticket %d\n", ticket+1))
	}
	require.Error(t, run(ctx, "unix://"+server.Addr()+".not?max_retries=-1", 1, 1, 1, &out))
	require.Error(t, run(ctx, "unix://"+server.Addr(), 0, 1, 1, &out))
}
