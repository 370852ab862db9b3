package main

import (
	"context"
	"errors"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fence"
)

// seller sells tickets of a concert.
type seller struct {
	lock    fairlock.Mutex
	concert *concert
	charge  func(ctx context.Context, buyer string) error
	refund  func(buyer string) error
}

// sell sells one ticket and returns its number, or errSoldOut. It returns fence.ErrStale if the lock was lost and a
// later holder has sold.
func (s *seller) sell(ctx context.Context, buyer string) (ticket int, err error) {
	err = s.lock.Do(ctx, func(ctx context.Context) error { // in line, behind all who came before
		number, err := fence.FromContext(ctx, s.lock)
		if err != nil {
			return err
		}
		sold, err := s.concert.sold(ctx, number)
		if err != nil {
			return err
		}
		if err := s.charge(ctx, buyer); err != nil {
			return err
		}
		// The money is here, so the sale is written down even if ctx ends now. Only the database knows whether it is
		// too late for that, because a pause can come between a look at the lease and the write.
		if err := s.concert.sell(context.WithoutCancel(ctx), sold+1, buyer, number); err != nil {
			return errors.Join(err, s.refund(buyer)) // too late, or the database is away: nothing was sold
		}
		ticket = sold + 1
		return nil
	})
	if ticket > 0 {
		return ticket, nil // written in time, whatever has become of the lock since
	}
	return 0, err
}
