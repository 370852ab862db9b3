package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/lua"
)

// relay passes a message from client to client: the floor of a hand-off.
type relay struct {
	stage
	stop  context.CancelFunc
	close []func() error
	tasks sync.WaitGroup
	leg   atomic.Pointer[leg]
	gone  atomic.Pointer[error] // why a subscription has broken
}

// leg is the relay in one slice.
type leg struct {
	*slice
	id   string
	sent atomic.Int64 // when the message was last sent
	once sync.Once
	done chan struct{} // closed when the message has come to rest
}

func (l *leg) finish() { l.once.Do(func() { close(l.done) }) }

// Bounds of the relay: until all are subscribed, and for a message that does not arrive.
const (
	subscribing = 5 * time.Second
	lostAfter   = time.Second
)

// newRelay subscribes all clients. The caller closes it.
func newRelay(ctx context.Context, s stage) (*relay, error) {
	r := &relay{stage: s}
	ctx, r.stop = context.WithCancel(ctx)
	for i := range s.clients {
		sub := s.clients[i].Redis.Subscribe(ctx, r.channel(i))
		r.close = append(r.close, sub.Close)
		if _, err := sub.ReceiveTimeout(ctx, subscribing); err != nil {
			r.end()
			return nil, fmt.Errorf("floor: subscribe: %w", err)
		}
		r.tasks.Go(func() {
			for {
				m, err := sub.ReceiveMessage(ctx)
				if err != nil {
					r.lost(ctx, err)
					return
				}
				r.pass(ctx, i, m.Payload)
			}
		})
	}
	return r, nil
}

func (r *relay) end() {
	r.stop()
	for _, f := range r.close {
		_ = f()
	}
	r.tasks.Wait()
}

// channel is one that a user with rights to wake-ups may use.
func (r *relay) channel(i int) string {
	return lua.NotificationChannel(r.namespace, r.private(i%len(r.clients)))
}

// pass is what the i-th client does with a message.
func (r *relay) pass(ctx context.Context, i int, id string) {
	l := r.leg.Load()
	if l == nil || l.id != id {
		return // one that was thought lost
	}
	l.op(time.Duration(l.sent.Load()))
	if l.over(ctx) {
		l.finish()
		return
	}
	r.send(ctx, l, i)
}

// send has the i-th client send the message to the next one.
func (r *relay) send(ctx context.Context, l *leg, i int) {
	l.sent.Store(int64(l.now()))
	if err := r.clients[i].Redis.Publish(ctx, r.channel(i+1), l.id).Err(); err != nil {
		l.fail(ctx, fmt.Errorf("floor: publish: %w", err))
		l.finish()
	}
}

// lost ends the leg under way, and all that follow: a subscription has broken.
func (r *relay) lost(ctx context.Context, err error) {
	err = fmt.Errorf("floor: subscription: %w", err)
	r.gone.Store(&err)
	if l := r.leg.Load(); l != nil {
		l.fail(ctx, err)
		l.finish()
	}
}

// measure passes the message around for as long as the slice lasts.
func (r *relay) measure(ctx context.Context, sl *slice) {
	l := &leg{slice: sl, done: make(chan struct{})}
	l.id = strconv.FormatInt(sl.start.UnixNano(), 36)
	r.leg.Store(l)
	if err := r.gone.Load(); err != nil {
		l.fail(ctx, *err)
		l.finish()
	} else {
		r.send(ctx, l, 0)
	}
	select {
	case <-l.done:
	case <-ctx.Done():
	case <-time.After(sl.length + lostAfter): // a message can get lost
	}
	r.leg.Store(nil)
	sl.close()
}
