package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
)

// Client reads and changes the locks of one namespace. It is safe for concurrent use.
type Client struct {
	rdb       redis.UniversalClient
	reader    script.Sender
	namespace string
}

// DefaultNamespace is the namespace of a fairlock.Client whose Config sets none.
const DefaultNamespace = bounds.DefaultNamespace

// New returns a Client for the locks in a namespace of rdb, by default DefaultNamespace. It does no I/O. If rdb
// is nil or a *redis.Ring, or the namespace is out of its bounds, each method returns an ErrInvalid. A ClusterClient
// with ReadOnly, RouteByLatency or RouteRandomly sends Inspect and List to replicas, which may be behind.
func New(rdb redis.UniversalClient, namespace string) *Client {
	return &Client{rdb, dispatch.NewDirect(rdb), cmp.Or(namespace, DefaultNamespace)}
}

// Inspect reads one lock. It lists at most the given numbers of holders and waiters, up to 1,000 of each. Used,
// Waiting, Expired, Candidates and OldestWait count all of them. If the lists are too short to tell, Inspect reads the
// lock once more. It sends each request once. go-redis's own timeouts bound it, and the deadline of ctx if the options
// of rdb have ContextTimeoutEnabled.
func (c *Client) Inspect(ctx context.Context, id fairlock.ID, holders, waiters int) (State, error) {
	l, err := c.lock(c.reader, id,
		require(0 <= holders && holders <= bounds.MaxInspected, "holders", "%d, must be from 0 to %d", holders,
			bounds.MaxInspected),
		require(0 <= waiters && waiters <= bounds.MaxInspected, "waiters", "%d, must be from 0 to %d", waiters,
			bounds.MaxInspected))
	var s State
	if err == nil {
		s, err = readState(ctx, l.ReadOnly(), id, holders, waiters)
	}
	return s, wrap("inspect", id, err)
}

// lock returns the lock in Redis, or all errors of the input.
func (c *Client) lock(rdb script.Sender, id fairlock.ID, input ...error) (script.Lock, error) {
	l, known := script.Of(rdb, string(id.Kind), c.namespace, id.Name)
	return l, errors.Join(append(input, c.check(),
		require(known, "Kind", "%.40q, must be mutex, semaphore, rwmutex or keyed", id.Kind),
		require(id.Name != "" && len(id.Name) <= bounds.MaxName, "name", "%d bytes, must be from 1 to %d", len(id.Name),
			bounds.MaxName))...)
}

// check returns what is wrong with the Client.
func (c *Client) check() error {
	v := reflect.ValueOf(c.rdb)
	_, ring := c.rdb.(*redis.Ring)
	wrong := bounds.WrongNamespace(c.namespace)
	return errors.Join(
		require(c.rdb != nil && (v.Kind() != reflect.Pointer || !v.IsNil()) && !ring, "rdb",
			"must not be nil, nor a *redis.Ring, whose clients may disagree about the shard of a lock"),
		require(wrong == "", "Namespace", "%s", wrong),
	)
}

func require(ok bool, field, format string, args ...any) error {
	if ok {
		return nil
	}
	return &fairlock.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func wrap(op string, id fairlock.ID, err error) error {
	if err == nil {
		return nil
	}
	return &fairlock.Error{Op: op, Name: id.Name, Err: err}
}
