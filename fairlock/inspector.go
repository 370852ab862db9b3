package fairlock

import (
	"cmp"
	"context"
	"errors"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
)

// Reader is the part of a go-redis client that an Inspector needs. Every [Redis] has it.
type Reader interface{ dispatch.Evaler }

// Inspector reads locks without a Client.
type Inspector struct {
	rdb       script.Sender
	namespace string
}

// NewInspector returns an Inspector of the locks in a namespace, by default DefaultNamespace. It sends scripts by
// EVALSHA_RO, which needs no right to write. A ClusterClient with ReadOnly, RouteByLatency or RouteRandomly sends that
// to replicas, which may be behind. If Redis refuses that, as before version 7, it sends them by EVALSHA from then on.
func NewInspector(rdb Reader, namespace string) *Inspector {
	return &Inspector{dispatch.NewDirect(rdb), cmp.Or(namespace, DefaultNamespace)}
}

// Inspect reads one lock, with at most so many holders and so many waiters, up to 1,000 of each. Used, Waiting,
// Expired, Candidates and OldestWait are those of all; if the lists do not tell them, it reads the lock once more. ctx
// bounds the request. The error is an ErrInvalid, that of ctx, or that of Redis.
func (i *Inspector) Inspect(ctx context.Context, id ID, holders, waiters int) (State, error) {
	l, known := script.Of(i.rdb, string(id.Kind), i.namespace, id.Name)
	if err := errors.Join(
		checkNamespace(i.namespace),
		checkName(id.Name),
		require(known, "Kind", "%.40q, must be mutex, semaphore, rwmutex or keyed", id.Kind),
		require(holders >= 0 && holders <= bounds.MaxInspected, "holders", "%d, must be from 0 to %d", holders,
			bounds.MaxInspected),
		require(waiters >= 0 && waiters <= bounds.MaxInspected, "waiters", "%d, must be from 0 to %d", waiters,
			bounds.MaxInspected),
	); err != nil {
		return State{}, err
	}
	return readState(ctx, l.ReadOnly(), holders, waiters)
}
