package fairlock_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// deaf is a connection that loses the answer to the second script.
type deaf struct {
	net.Conn
	scripts *atomic.Int32 // asked for so far
}

func (d deaf) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("evalsha")) {
		d.scripts.Add(1)
	}
	return d.Conn.Write(p)
}

func (d deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if d.scripts.CompareAndSwap(2, 3) {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}

// It is asked again, and the next one has the lock by then: that one keeps it.
func TestForceReleaseWhoseAnswerIsLostTakesFromNobodyElse(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		thrice(t, func(t *testing.T) bool {
			c := b.client(t, fairlock.Config{})
			_, err := c.Mutex("other").ForceRelease(context.Background()) // the scripts are there: inspect, and the one that takes
			require.NoError(t, err)
			first := lock(t, c.Mutex("x"))
			w := enqueue(within(t, soon), c.Mutex("x"))
			queued(t, c.Mutex("x"), 1)

			options, scripts := b.options(), new(atomic.Int32)
			dial := redis.NewDialer(options)
			if options.Dialer != nil {
				dial = options.Dialer
			}
			options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return deaf{conn, scripts}, err
			}
			rdb := redis.NewClient(options)
			defer func() { _ = rdb.Close() }()
			held, err := newClient(t, rdb, fairlock.Config{}).Mutex("x").ForceRelease(context.Background())
			require.NoError(t, err)
			assert.True(t, held)
			second := w.got(t)
			require.NoError(t, second.Renew(context.Background()))
			require.ErrorIs(t, first.Renew(context.Background()), fairlock.ErrLost)
			unlock(t, second)
			return scripts.Load() == 4 // or inspect took over 50 ms, and was asked again
		})
	})
}

// starting is a connection on which Redis starts up when somebody comes back with a ticket, and just then his ctx ends.
type starting struct {
	net.Conn
	ticket *atomic.Pointer[string] // that he was told
	asked  atomic.Bool
	end    context.CancelFunc
}

func (s *starting) Write(p []byte) (int, error) {
	if ticket := s.ticket.Load(); ticket != nil && bytes.Contains(p, []byte("\r\n"+*ticket+"\r\n")) {
		s.asked.Store(true)
		return len(p), nil
	}
	return s.Conn.Write(p)
}

func (s *starting) Read(p []byte) (int, error) {
	if s.asked.Swap(false) {
		s.end()
		return copy(p, "-LOADING Redis is loading\r\n"), nil
	}
	return s.Conn.Read(p)
}

// A waiter asks again after such an error, so it is none of its caller's.
func TestAWaiterWhoseContextEndsWhileAnErrorComesIsToldOfTheContext(t *testing.T) {
	s := redistest.Start(t)
	observer := s.Client()
	held := lock(t, newClient(t, s.Client(), fairlock.Config{}).Mutex("x"))
	ctx, cancel := context.WithCancel(within(t, soon))
	defer cancel()
	var ticket atomic.Pointer[string]
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		conn, err := net.Dial(s.Network(), s.Addr())
		return &starting{Conn: conn, ticket: &ticket, end: cancel}, err
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	c := newClient(t, rdb, fairlock.Config{
		WaiterTTL: 600 * time.Millisecond,
		Trace: &fairlock.Trace{Queued: func(i fairlock.QueuedInfo) {
			text := strconv.FormatUint(i.Ticket, 10)
			ticket.Store(&text)
			observer.Del(context.Background(), "fairlock:{x}:queue") // so it asks again
		}},
	})
	_, err := c.Mutex("x").Lock(ctx)
	require.ErrorIs(t, err, context.Canceled)
	unlock(t, held)
}
