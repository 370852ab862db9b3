package fairlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
)

// subscriber is the one subscription of a client. It receives the notifications that tell which of its waiters were
// granted a lock. If one is lost, a heartbeat finds the grant.
type subscriber struct {
	rt      *runtime
	rdb     Redis
	queues  *queues
	channel string
	once    sync.Once // starts run

	mu        sync.Mutex
	cancel    context.CancelCauseFunc // guarded by mu: ends the latest subscription
	count     uint64                  // guarded by mu: how often a subscription came up
	downSince time.Time               // guarded by mu: zero while it is up, and before start
	reason    error                   // guarded by mu: why the latest attempt failed; nil while none has
	heard     time.Time               // guarded by mu: when the latest subscription brought its latest message; zero if it has brought none
}

// subscriptions returns how often the subscription has come up.
func (s *subscriber) subscriptions() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// brings reports whether the subscription is up and has brought a message.
func (s *subscriber) brings() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.downSince.IsZero() && !s.heard.IsZero()
}

// start subscribes, if this is the client's first contention, and returns the same as subscriptions.
func (s *subscriber) start(t task) uint64 {
	s.once.Do(func() { t.stays(s.run) })
	return s.subscriptions()
}

// run subscribes, again and again, until the client is closed.
func (s *subscriber) run(t task) {
	rt := s.rt
	jitter := jitter(s.channel) // requests that fail at the same moment have another
	var pause backoff
	refused := false // and logged
	s.wentDown(nil)
	for rt.life.Err() == nil {
		before := s.subscriptions()
		err := s.receive(rt.life, t)
		if rt.life.Err() != nil {
			return
		}
		s.wentDown(err)
		next := pause.next(jitter)
		var reply redis.Error
		switch {
		case s.subscriptions() != before: // it was up
			pause, refused = backoff{}, false
			next = pause.next(jitter)
			rt.log.Debug("subscription broke; it is made again", "err", err)
		case !errors.As(err, &reply):
			if rt.outage.failed(s) {
				rt.outage.begun("subscription", "", rt.named(err))
			}
		default:
			next = refusedPause
			rt.outage.forget(s) // Redis replies
			if refused {
				break
			}
			refused = true
			rt.log.Warn("Redis refuses the subscription; heartbeats replace notifications", "channel", s.channel, "err", err)
		}
		call(rt.trace.Subscription, SubscriptionInfo{Err: err})
		rt.sleep(rt.life, next)
	}
}

// refusedPause is the pause after Redis has refused a subscription: each attempt is a new connection, and rights that are
// missing are rarely given within a second.
const refusedPause = time.Second

// confirmation is how long Redis has to confirm a subscription: a connection may die before.
const confirmation = 5 * time.Second

// receive subscribes and receives until the connection breaks. go-redis would subscribe again by itself, but would not
// tell that the subscription was down.
func (s *subscriber) receive(ctx context.Context, t task) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	s.cancel, s.heard = cancel, time.Time{}
	s.mu.Unlock()
	pubsub := s.rdb.Subscribe(ctx)
	defer func() { _ = pubsub.Close() }()
	if err := pubsub.Subscribe(ctx, s.channel); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = pubsub.Close() }) // ends ReceiveTimeout
	defer stop()
	// Before it returns an error, go-redis connects again; not with a ctx that has ended.
	over, end := context.WithCancel(ctx)
	end()
	for timeout := confirmation; ; timeout = 0 { // 0: none
		message, err := pubsub.ReceiveTimeout(over, timeout)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			s.cameUp(t)
		case *redis.Message:
			s.received(m.Payload)
		}
	}
}

// wentDown notes that the subscription is down, and why.
func (s *subscriber) wentDown(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason = reason; s.downSince.IsZero() {
		s.downSince = s.rt.clock.Now()
	}
}

// cameUp has heartbeats look for what waiters have missed before.
func (s *subscriber) cameUp(t task) {
	s.mu.Lock()
	s.downSince, s.reason = time.Time{}, nil
	s.count++
	s.mu.Unlock()
	s.rt.outage.succeeded(s)
	call(s.rt.trace.Subscription, SubscriptionInfo{})
	s.queues.catchUp(t)
}

func (s *subscriber) received(message string) {
	s.mu.Lock()
	s.heard = s.rt.clock.Now()
	s.mu.Unlock()
	grant, err := lua.ParseNotification(message)
	if err != nil {
		s.rt.log.Warn("unknown message on the notification channel", "channel", s.channel, "err", err)
		return
	}
	s.queues.notify(grant)
}
