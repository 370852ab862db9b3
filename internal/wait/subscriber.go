package wait

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// subscriber is the one subscription of a client. It receives the notifications that tell which of its waiters were
// granted a lock. If one is lost, a heartbeat finds the grant, which is evidence against the subscription (see missed).
type subscriber struct {
	env     *Env
	notify  func(...script.Grant)
	catchUp func(task.Task) // called when it has come up
	once    sync.Once       // starts run

	mu     sync.Mutex
	cancel context.CancelCauseFunc // guarded by mu: ends the latest subscription
	count  uint64                  // guarded by mu: how often a subscription came up
	down   down                    // guarded by mu: zero while it is up, and before start
	heard  time.Time               // guarded by mu: when the latest message arrived
	// guarded by mu: replaces the subscription if no message arrives; nil without evidence
	silent   clock.Timer
	replaced replaced // guarded by mu
}

// down is the time in which a subscription is not up.
type down struct {
	since  time.Time
	reason error // why the latest attempt failed; nil while none has
	logged bool  // that it lasts
}

// up returns the number of the subscription that is up; 0 if none is.
func (s *subscriber) up() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down.since.IsZero() {
		return s.count
	}
	return 0
}

// start subscribes, if this is the client's first contention, and returns the same as up.
func (s *subscriber) start(t task.Task) uint64 {
	s.once.Do(func() {
		s.wentDown(nil, true)
		t.Stay(s.run)
	})
	return s.up()
}

// run subscribes, again and again, until the client is closed.
func (s *subscriber) run(t task.Task) {
	env := s.env
	jitter := call.Jitter(env.Channel) // requests that fail at the same moment have another
	for pause := (call.Backoff{}); ; {
		err := s.listen(t)
		outage, _ := env.Calls.Outage()
		wasUp, long := s.wentDown(err, outage.IsZero())
		if env.Tasks.Life().Err() != nil {
			return
		}
		s.report(err, wasUp, long)
		if wasUp {
			pause = call.Backoff{}
		}
		next := pause.Next(jitter)
		if call.OriginOf(err) != call.NoReply { // each attempt is a new connection
			next = call.RefusedPause
		}
		env.Calls.Sleep(env.Tasks.Life(), next)
	}
}

// report tells that an attempt to subscribe has failed, or that the subscription, which was up, has broken.
func (s *subscriber) report(err error, wasUp, long bool) {
	log := s.env.Log.With("channel", s.env.Channel)
	var silent silentError
	switch {
	case errors.As(err, &silent) && silent.pause == 2*minPause: // once is normal: after a planned failover
		log.Warn("the subscription brings no notifications; it is replaced")
	case wasUp:
		log.Debug("subscription broke; it is made again", "err", err)
	case long:
		log.Warn("the subscription is down; heartbeats replace notifications", "err", err)
	}
	s.env.Subscription(err)
}

// listen is one subscription.
func (s *subscriber) listen(t task.Task) error {
	ctx, cancel := context.WithCancelCause(s.env.Tasks.Life())
	defer cancel(nil)
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	return s.env.Listen(ctx, s.env.Channel, func() { s.cameUp(t) }, s.received)
}

// wentDown notes that the subscription is down, and why, and forgets evidence against it. It reports whether it was up
// until now, and, once, that it has been down for a second, although Redis serves the client: an outage has a line of
// its own.
func (s *subscriber) wentDown(reason error, served bool) (wasUp, long bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent != nil {
		s.silent.Stop()
		s.silent = nil
	}
	now := s.env.Clock.Now()
	if wasUp = s.down.since.IsZero(); wasUp {
		s.down.since = now
	}
	long = served && !s.down.logged && now.Sub(s.down.since) >= time.Second
	s.down.reason, s.down.logged = reason, s.down.logged || long
	return wasUp, long
}

// cameUp has heartbeats look for what waiters have missed before.
func (s *subscriber) cameUp(t task.Task) {
	s.mu.Lock()
	before := s.down
	s.down = down{}
	s.count++
	s.mu.Unlock()
	if before.logged {
		s.env.Log.Info("the subscription is up again", "channel", s.env.Channel, "lasted",
			s.env.Clock.Now().Sub(before.since))
	}
	s.env.Subscription(nil)
	s.catchUp(t)
}

func (s *subscriber) received(message string) {
	s.mu.Lock()
	s.heard = s.env.Clock.Now()
	s.mu.Unlock()
	grant, err := script.ParseNotification(message)
	if err != nil {
		s.env.Log.Warn("unknown message on the notification channel", "channel", s.env.Channel, "err", err)
		return
	}
	s.notify(grant)
}

// maxDown is for how long the subscription may be down until check returns an error: for most of the time after a
// connection has broken, it is being made again.
const maxDown = 5 * time.Second

// check returns an error if the subscription has been down for too long.
func (s *subscriber) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down.since.IsZero() {
		return nil
	}
	lasts := s.env.Clock.Now().Sub(s.down.since)
	if lasts < maxDown {
		return nil
	}
	reason := s.down.reason
	if reason == nil {
		reason = errors.New("no confirmation")
	}
	return fmt.Errorf("the subscription for notifications has been down for %v: %w", lasts.Round(time.Millisecond), reason)
}

const (
	// silentDelay is how long after the reply to a heartbeat a message may still arrive, on another connection.
	silentDelay = 300 * time.Millisecond
	// After evidence has had a subscription replaced, none counts for minPause, and for twice as long each time after
	// that, up to maxPause. A reason can be the rights of others, which no new subscription mends.
	minPause, maxPause = time.Second, time.Minute
)

// replaced says when evidence last had a subscription replaced, and how long after that no evidence counts.
type replaced struct {
	at    time.Time
	pause time.Duration
}

// counts reports whether evidence counts.
func (r replaced) counts(now time.Time) bool { return now.Sub(r.at) >= r.pause }

// again returns the same for a subscription that is replaced now.
func (r replaced) again(now time.Time) replaced {
	if now.Sub(r.at)-r.pause > maxPause { // the evidence had stopped
		r.pause = 0
	}
	return replaced{now, min(max(2*r.pause, minPause), maxPause)}
}

// silentError means that a subscription has not brought a notification.
type silentError struct{ pause time.Duration }

func (e silentError) Error() string {
	return fmt.Sprintf("the subscription did not bring a notification; for %v it is not replaced again for that", e.pause)
}

// missed notes evidence against a subscription, by its number: it was up from before a waiter was last found queued
// until a heartbeat, sent then, found that it was granted the lock. The subscription is replaced unless it brings a
// message soon: after a planned failover it may be on the old primary, which nobody publishes on.
func (s *subscriber) missed(number uint64, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == number && s.silent == nil && s.down.since.IsZero() && s.replaced.counts(s.env.Clock.Now()) {
		s.silent = s.env.after(silentDelay-notificationDelay, func(task.Task) { s.replaceIfSilent(number, sent) })
	}
}

// replaceIfSilent ends a subscription, by its number, if no message has arrived since then.
func (s *subscriber) replaceIfSilent(number uint64, since time.Time) {
	s.mu.Lock()
	if s.count != number || !s.down.since.IsZero() {
		s.mu.Unlock()
		return
	}
	s.silent = nil
	if !s.heard.Before(since) {
		s.mu.Unlock()
		return
	}
	s.replaced = s.replaced.again(s.env.Clock.Now())
	cancel, silent := s.cancel, silentError{s.replaced.pause}
	s.mu.Unlock()
	cancel(silent)
}
