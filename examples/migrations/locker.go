package main

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/fairlock/fairlock-go/fairlock"
)

// locker is a lock.Locker of goose (github.com/pressly/goose/v3/lock), for one call of a Provider's Up. It works with
// every database that goose knows, because it does not use the one that it is handed.
type locker struct {
	mutex fairlock.Mutex
	lost  context.CancelCauseFunc // of the ctx of that call
	lease atomic.Pointer[fairlock.Lease]
}

// Lock waits behind the replicas that came before. goose does not know of leases, so the end of this one ends its ctx.
func (l *locker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.mutex.Lock(ctx)
	if err != nil {
		return err
	}
	l.lease.Store(lease)
	go func() { // until Unlock, at the latest
		<-lease.Done()
		l.lost(lease.Err())
	}()
	return nil
}

// Unlock hands the lock to the next replica. Its error says if the lock was lost meanwhile.
func (l *locker) Unlock(ctx context.Context, _ *sql.DB) error {
	lease := l.lease.Swap(nil)
	if lease == nil {
		return errors.New("not locked")
	}
	return lease.Unlock(ctx)
}
