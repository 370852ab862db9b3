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
	cancel    context.CancelFunc // guarded by mu: ends the latest subscription
	up        time.Time          // guarded by mu: when that one came up; zero before
	count     uint64             // guarded by mu: how often a subscription came up
	downSince time.Time          // guarded by mu: zero while it is up, and before start
	reason    error              // guarded by mu: why the latest attempt failed; nil while none has
}

// subscriptions returns how often the subscription has come up.
func (s *subscriber) subscriptions() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// start subscribes, if this is the client's first contention or first lease that knows when it is wanted, and returns the same as subscriptions.
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
		var reply redis.Error
		switch {
		case s.subscriptions() != before: // it was up
			pause, refused = backoff{}, false
			rt.log.Debug("subscription broke; it is made again", "err", err)
		case !errors.As(err, &reply):
			if rt.outage.failed(s) {
				rt.outage.begun("subscription", "", rt.named(err))
			}
		default:
			rt.outage.forget(s) // Redis replies
			if refused {
				break
			}
			refused = true
			rt.log.Warn("Redis refuses the subscription; heartbeats replace notifications", "channel", s.channel, "err", err)
		}
		call(rt.trace.Subscription, SubscriptionInfo{Err: err})
		rt.sleep(rt.life, pause.next(jitter))
	}
}

// confirmation is how long Redis has to confirm a subscription: a connection may die before.
const confirmation = 5 * time.Second

// receive subscribes and receives until the connection breaks. go-redis would subscribe again by itself, but would not
// tell that the subscription was down.
func (s *subscriber) receive(ctx context.Context, t task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cancel, s.up = cancel, time.Time{}
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

// cameUp has heartbeats look for what was missed before, by waiters and by leases that know when they are wanted.
func (s *subscriber) cameUp(t task) {
	s.mu.Lock()
	s.up, s.downSince, s.reason = s.rt.clock.Now(), time.Time{}, nil
	s.count++
	s.mu.Unlock()
	s.rt.outage.succeeded(s)
	call(s.rt.trace.Subscription, SubscriptionInfo{})
	s.queues.catchUp(t)
	s.queues.askIfWanted(t)
}

func (s *subscriber) received(message string) {
	grant, err := lua.ParseNotification(message)
	if err != nil {
		s.rt.log.Warn("unknown message on the notification channel", "channel", s.channel, "err", err)
		return
	}
	if grant.Wanted() {
		s.queues.tell(s.queues.watched(grant.Token))
		return
	}
	s.queues.notify(grant)
}

// settled is how long a subscription must have been up before a lost notification is taken for its fault.
const settled = time.Second

// replace ends a subscription that has lost a notification: a half-open connection shows no error for minutes.
func (s *subscriber) replace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up.IsZero() && s.rt.clock.Now().Sub(s.up) > settled {
		s.cancel()
	}
}
