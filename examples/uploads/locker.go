package main

import (
	"context"
	"errors"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Locker is a handler.Locker of tusd: one request at a time works on an upload, whatever replica it has reached.
// Requests wait in order. A request is told to stop when another one waits, so a client whose connection has broken can
// go on within about a second, and not only when the old connection times out. A process that was paused for longer
// than the TTL may still write what it had read before.
type Locker struct {
	Client *fairlock.Client
}

// NewLock returns the lock of one upload, for one request.
func (l Locker) NewLock(id string) (handler.Lock, error) {
	return &lock{mutex: l.Client.Mutex("upload:" + id)}, nil
}

type lock struct {
	mutex fairlock.Mutex
	lease *fairlock.Lease // once Lock has succeeded
}

// Lock waits until no other request works on the upload. ctx bounds the waiting, and not the lease.
func (l *lock) Lock(ctx context.Context, requestRelease func()) error {
	lease, err := l.mutex.Lock(ctx)
	switch {
	case errors.Is(err, fairlock.ErrClosed):
		return handler.ErrServerShutdown
	case err != nil && ctx.Err() != nil:
		return handler.ErrLockTimeout
	case err != nil:
		return err
	}
	l.lease = lease
	go stopInTime(lease, requestRelease)
	return nil
}

// Unlock releases the lock. If Redis cannot be reached, the lock is free again when its TTL ends.
func (l *lock) Unlock() error {
	return l.lease.Unlock(context.Background())
}

// settle must be longer than the store needs to open an upload. A call of requestRelease before that is lost: tusd
// v2.9.1 ends the body that the request reads, if it reads one already, and looks only once.
const settle = 200 * time.Millisecond

// interval is how often the holder looks whether another request waits.
const interval = time.Second

// stopInTime calls requestRelease when another request waits. tusd ends the body of its request then, stores what it
// has received, and unlocks. When the lease is lost, the request must end as well, because another replica may soon be
// granted the lock.
func stopInTime(lease *fairlock.Lease, requestRelease func()) {
	time.Sleep(settle)
	for lease.Err() == nil {
		if waiting, _ := lease.Waiting(context.Background()); waiting > 0 { // an error: it looks again
			break
		}
		select {
		case <-lease.Done():
		case <-time.After(interval):
		}
	}
	if !errors.Is(lease.Err(), fairlock.ErrUnlocked) { // or else the request has ended
		requestRelease()
	}
}
