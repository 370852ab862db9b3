package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/bounds"
)

// life returns what Trace has told of acquisitions and leases, as "Granted queued" or "Abandoned lock is busy". It
// checks that each event has the caller's ctx.
func (j *journal) life(t *testing.T) (all []string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.all {
		var event fairlock.Event
		text := func(words ...any) { all = append(all, fmt.Sprint(slices.Insert(words, 0, any(c.name))...)) }
		is := func(name string, is bool) string { return map[bool]string{true: " " + name}[is] }
		why := func(err error) string {
			for _, reason := range []error{
				fairlock.ErrExpired, fairlock.ErrUnreachable, fairlock.ErrRevoked, fairlock.ErrBusy, fairlock.ErrClosed,
				fairlock.ErrQueueFull, context.Canceled,
			} {
				if errors.Is(err, reason) {
					return " (" + reason.Error() + ")"
				}
			}
			if err != nil {
				return " (" + err.Error() + ")"
			}
			return ""
		}
		switch i := c.info.(type) {
		case fairlock.QueuedInfo:
			event = i.Event
			text()
		case fairlock.GrantedInfo:
			event = i.Event
			text(is("queued", i.Ticket != 0))
		case fairlock.AbandonedInfo:
			event = i.Event
			text(is("queued", i.Ticket != 0), why(i.Err))
		case fairlock.EndedInfo:
			event = i.Event
			text(why(i.Err))
		case fairlock.RenewedInfo:
			event = i.Event
		default:
			continue
		}
		assert.Equal(t, "the caller's", event.Ctx.Value(callers{}), c.name)
	}
	return all
}

// Each acquisition gives one Granted or Left, and each Granted one end. An acquisition that is refused gives nothing.
//
//fairlock:promise Trace balances: each acquisition gives one Granted or Left, after one Queued if it has queued, and each Granted one Ended
func TestTrace_Balances(t *testing.T) {
	type world struct {
		s      *fairlocktest.Server
		client *fairlocktest.Client
		ctx    context.Context
		m      fairlock.Mutex
	}
	bubbles(t, map[string]struct {
		do   func(t *testing.T, w world)
		want []string
	}{
		"free": {func(t *testing.T, w world) {
			require.NoError(t, w.m.Do(w.ctx, func(context.Context) error { return nil }))
		}, []string{"Granted", "Ended"}},
		"queued": {func(t *testing.T, w world) {
			held := w.s.Mutex("x").HoldAs("holder")
			q := begin(w.ctx, w.m.Lock)
			w.s.Miniredis.Del("fairlock:{x}:queue") // it is dropped, and comes back
			pass(2 * interval)
			unlock(t, held)
			unlock(t, q.granted(t))
		}, []string{"Queued", "Granted queued", "Ended"}},
		"ctx ends": {func(t *testing.T, w world) {
			w.s.Mutex("x").HoldAs("holder")
			ctx, cancel := context.WithCancel(w.ctx)
			q := begin(ctx, w.m.Lock)
			cancel()
			<-q.done
		}, []string{"Queued", "Abandoned queued (context canceled)"}},
		"busy": {func(t *testing.T, w world) {
			w.s.Mutex("x").HoldAs("holder")
			_, err := w.m.TryLock(w.ctx)
			require.ErrorIs(t, err, fairlock.ErrBusy)
		}, []string{"Abandoned (lock is busy)"}},
		"the queue is full": {func(t *testing.T, w world) {
			w.s.Mutex("x").HoldAs("holder")
			w.s.Mutex("x").CrashQueued("other", time.Minute)
			_, err := w.client.Mutex("x", fairlock.WithMaxWaiters(1)).Lock(w.ctx)
			require.ErrorIs(t, err, fairlock.ErrQueueFull)
		}, []string{"Abandoned (queue is full)"}},
		"a grant that comes too late": {func(t *testing.T, w world) {
			w.client.Link.Delay(0, bounds.MinTTL)
			_, err := w.client.Mutex("x", fairlock.WithTTL(bounds.MinTTL)).TryLock(w.ctx)
			require.ErrorIs(t, err, fairlock.ErrLost)
		}, []string{"Abandoned (lease expired)"}},
		"taken": {func(t *testing.T, w world) {
			lease := hold(t, func(context.Context) (*fairlock.Lease, error) { return w.m.Lock(w.ctx) })
			w.s.Mutex("x").ForceRelease()
			require.ErrorIs(t, lease.Renew(w.ctx), fairlock.ErrRevoked)
			require.ErrorIs(t, lease.Unlock(w.ctx), fairlock.ErrRevoked)
		}, []string{"Granted", "Ended (no longer the owner)"}},
		"Unlock fails, and is called again": {func(t *testing.T, w world) {
			lease := hold(t, func(context.Context) (*fairlock.Lease, error) { return w.m.Lock(w.ctx) })
			record(w.client).before = func(n int, _ redis.Cmder) error {
				if n == 0 {
					return refusal("ERR user_script:1: the server says no")
				}
				return nil
			}
			require.ErrorContains(t, lease.Unlock(w.ctx), "the server says no")
			require.NoError(t, lease.Unlock(w.ctx))
		}, []string{"Granted", "Ended (ERR user_script:1: the server says no)"}},
		"closed": {func(t *testing.T, w world) {
			lease := hold(t, func(context.Context) (*fairlock.Lease, error) { return w.m.Lock(w.ctx) })
			q := begin(w.ctx, w.m.Lock)
			require.NoError(t, w.client.Close())
			<-q.done
			require.ErrorIs(t, lease.Unlock(w.ctx), fairlock.ErrClosed)
		}, []string{"Granted", "Queued", "Ended (client is closed)", "Abandoned queued (client is closed)"}},
		"resumed": {func(t *testing.T, w world) {
			held := w.s.Mutex("x").HoldAs("holder")
			lease, err := w.m.Resume(w.ctx, held.Handle())
			require.NoError(t, err)
			unlock(t, lease)
			_, err = w.m.Resume(w.ctx, held.Handle())
			require.ErrorIs(t, err, fairlock.ErrRevoked)
		}, []string{"Granted", "Ended", "Abandoned (no longer the owner)"}},
		"refused": {func(t *testing.T, w world) {
			ended, cancel := context.WithCancel(w.ctx)
			cancel()
			_, err := w.client.Mutex("x", fairlock.WithTTL(0)).Lock(w.ctx)
			require.ErrorIs(t, err, fairlock.ErrInvalid)
			_, err = w.m.Resume(w.ctx, "")
			require.ErrorIs(t, err, fairlock.ErrInvalid)
			_, err = w.m.Lock(ended)
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, w.client.Close())
			_, err = w.m.TryLock(w.ctx)
			require.ErrorIs(t, err, fairlock.ErrClosed)
		}, nil},
	}, func(t *testing.T, s *fairlocktest.Server, _ string, c struct {
		do   func(t *testing.T, w world)
		want []string
	},
	) {
		var j journal
		client := s.Client(fairlock.Config{Trace: j.trace()})
		ctx := context.WithValue(t.Context(), callers{}, "the caller's")
		c.do(t, world{s, client, ctx, client.Mutex("x")})
		synctest.Wait()
		assert.Equal(t, c.want, j.life(t))
	})
}

// JoinTraces calls each callback of both, in order.
func TestJoinTraces(t *testing.T) {
	var a, b journal
	var order []*journal
	traceOf := func(j *journal) *fairlock.Trace {
		trace := j.trace()
		trace.Queued = func(i fairlock.QueuedInfo) { j.add("Queued", i); order = append(order, j) }
		return trace
	}
	joined := reflect.ValueOf(fairlock.JoinTraces(traceOf(&a), traceOf(&b))).Elem()
	for i := range joined.NumField() {
		name := joined.Type().Field(i).Name
		joined.Field(i).Call([]reflect.Value{reflect.Zero(joined.Field(i).Type().In(0))})
		assert.Len(t, a.all, i+1, name)
		assert.Len(t, b.all, i+1, name)
	}
	assert.Equal(t, []*journal{&a, &b}, order)

	trace := a.trace()
	assert.Same(t, trace, fairlock.JoinTraces(nil, trace))
	assert.Same(t, trace, fairlock.JoinTraces(trace, nil))
	assert.Nil(t, fairlock.JoinTraces(nil, nil))
	half := reflect.ValueOf(fairlock.JoinTraces(trace, &fairlock.Trace{})).Elem()
	for i := range half.NumField() {
		assert.False(t, half.Field(i).IsNil())
	}
}
