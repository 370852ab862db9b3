package fairlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// subscriber is the one subscription of a client. It receives the notifications that tell which of its waiters were
// granted a lock. If one is lost, a heartbeat finds the grant, which is evidence against the subscription (see missed).
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
	logged    bool                    // guarded by mu: that it is down
	heard     time.Time               // guarded by mu: when the latest message arrived
	silent    Timer                   // guarded by mu: replaces the subscription if no message arrives; nil without evidence
	replaced  time.Time               // guarded by mu: when evidence last had a subscription replaced
	pause     time.Duration           // guarded by mu: how long after that no evidence counts
}

// up returns the number of the subscription that is up; 0 if none is.
func (s *subscriber) up() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.downSince.IsZero() {
		return s.count
	}
	return 0
}

// start subscribes, if this is the client's first contention, and returns the same as up.
func (s *subscriber) start(t task.Task) uint64 {
	s.once.Do(func() {
		s.wentDown(nil)
		t.Stay(s.run)
	})
	return s.up()
}

// run subscribes, again and again, until the client is closed.
func (s *subscriber) run(t task.Task) {
	rt := s.rt
	jitter := call.Jitter(s.channel) // requests that fail at the same moment have another
	for pause := (call.Backoff{}); ; {
		err := s.receive(rt.tasks.Life(), t)
		if rt.tasks.Life().Err() != nil {
			return
		}
		wasUp, long := s.wentDown(err)
		var silent silentError
		switch {
		case errors.As(err, &silent) && silent.pause == minPause:
			rt.log.Warn("the subscription brings no notifications; it is replaced", "channel", s.channel)
		case wasUp:
			rt.log.Debug("subscription broke; it is made again", "err", err)
		case long:
			rt.log.Warn("the subscription is down; heartbeats replace notifications", "channel", s.channel, "err", err)
		}
		if wasUp {
			pause = call.Backoff{}
		}
		next := pause.Next(jitter)
		if reply := redis.Error(nil); errors.As(err, &reply) {
			next = refusedPause
		}
		emit(rt.trace.Subscription, SubscriptionInfo{Err: err})
		rt.calls.Sleep(rt.tasks.Life(), next)
	}
}

// refusedPause is the pause after Redis has refused a subscription: each attempt is a new connection, and rights that are
// missing are rarely given within a second.
const refusedPause = time.Second

const (
	// confirmation is how long Redis has to confirm a subscription: a connection may die before.
	confirmation = 5 * time.Second
	// silence is after how long without a message the connection is pinged, and then replaced: one that is half-open shows no
	// error for minutes.
	silence = 3 * time.Second
)

// receive subscribes and receives until the connection breaks. go-redis would subscribe again by itself, but would not
// tell that the subscription was down.
func (s *subscriber) receive(ctx context.Context, t task.Task) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	defer s.acquit()
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
	for timeout, pinged := confirmation, true; ; timeout = silence {
		message, err := pubsub.ReceiveTimeout(over, timeout)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		var late net.Error
		if !pinged && errors.As(err, &late) && late.Timeout() {
			err = pubsub.Ping(over)
			pinged = true
		} else {
			pinged = false
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

// acquit forgets evidence against a subscription that has ended.
func (s *subscriber) acquit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent != nil {
		s.silent.Stop()
		s.silent = nil
	}
}

// wentDown notes that the subscription is down, and why. It reports whether it was up until now, and, once, that it has been
// down for a second.
func (s *subscriber) wentDown(reason error) (wasUp, long bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.rt.clock.Now()
	if wasUp = s.downSince.IsZero(); wasUp {
		s.downSince = now
	}
	long = !s.logged && now.Sub(s.downSince) >= time.Second
	s.reason, s.logged = reason, s.logged || long
	return wasUp, long
}

// cameUp has heartbeats look for what waiters have missed before.
func (s *subscriber) cameUp(t task.Task) {
	s.mu.Lock()
	lasted, logged := s.rt.clock.Now().Sub(s.downSince), s.logged
	s.downSince, s.reason, s.logged = time.Time{}, nil, false
	s.count++
	s.mu.Unlock()
	if logged {
		s.rt.log.Info("the subscription is up again", "channel", s.channel, "lasted", lasted)
	}
	emit(s.rt.trace.Subscription, SubscriptionInfo{})
	s.queues.catchUp(t)
}

func (s *subscriber) received(message string) {
	s.mu.Lock()
	s.heard = s.rt.clock.Now()
	s.mu.Unlock()
	grant, err := script.ParseNotification(message)
	if err != nil {
		s.rt.log.Warn("unknown message on the notification channel", "channel", s.channel, "err", err)
		return
	}
	s.queues.notify(grant)
}

const (
	// silentDelay is how long after the reply to a heartbeat a message may still arrive, on another connection.
	silentDelay = 300 * time.Millisecond
	// After evidence has had a subscription replaced, none counts for minPause, and for twice as long each time after that, up to
	// maxPause. A reason can be the rights of others, which no new subscription mends.
	minPause, maxPause = time.Second, time.Minute
)

// silentError means that a subscription has not brought a notification.
type silentError struct{ pause time.Duration }

func (e silentError) Error() string {
	return fmt.Sprintf("the subscription did not bring a notification; for %v it is not replaced again for that", e.pause)
}

// missed notes evidence against a subscription, by its number: it was up from before a waiter was last found queued until a
// heartbeat, sent then, found that it was granted the lock. The subscription is replaced unless it brings a message soon: after a
// planned failover it may be on the old primary, which nobody publishes on.
func (s *subscriber) missed(number uint64, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == number && s.silent == nil && s.downSince.IsZero() && s.rt.clock.Now().Sub(s.replaced) >= s.pause {
		s.silent = s.rt.clock.AfterFunc(silentDelay-notificationDelay, func() { s.replaceIfSilent(number, sent) })
	}
}

// replaceIfSilent ends a subscription, by its number, if no message has arrived since then.
func (s *subscriber) replaceIfSilent(number uint64, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count != number || !s.downSince.IsZero() {
		return
	}
	s.silent = nil
	if !s.heard.Before(since) {
		return
	}
	now := s.rt.clock.Now()
	if now.Sub(s.replaced)-s.pause > maxPause { // the evidence had stopped
		s.pause = 0
	}
	s.replaced, s.pause = now, min(max(2*s.pause, minPause), maxPause)
	s.cancel(silentError{s.pause})
}
