package wait

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// subscriber is the one subscription of a client. It receives the notifications of grants to its waiters. If a
// notification is lost, a heartbeat finds the grant, and the client subscribes again (see miss).
type subscriber struct {
	env     *Env
	notify  func(...script.Grant)
	catchUp func(task.Task) // called when the subscription has come up
	once    sync.Once       // starts run

	mu     sync.Mutex
	cancel context.CancelCauseFunc // guarded by mu: ends the latest subscription
	count  uint64                  // guarded by mu: how often a subscription came up
	down   down                    // guarded by mu: zero while it is up, and before start
	missed time.Time               // guarded by mu: when miss last ended a subscription
}

// down is a period without a subscription.
type down struct {
	since  time.Time
	reason error // why the latest attempt failed; nil if none has
	logged bool  // the log has a line about it
}

// up returns the number of the subscription that is up, or 0.
func (s *subscriber) up() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down.since.IsZero() {
		return s.count
	}
	return 0
}

// start subscribes at the client's first contention. It returns the same as up.
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
	jitter := call.Jitter(env.Channel) // other than that of requests, which fail at the same moment
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

// report reports that an attempt to subscribe has failed or that the subscription has broken.
func (s *subscriber) report(err error, wasUp, long bool) {
	log := s.env.Log.With("channel", s.env.Channel)
	switch {
	case errors.Is(err, errMissed):
		log.Info("the subscription did not bring a notification; it is made again")
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

// wentDown records that the subscription is down, and why. It reports whether it was up until now. It also reports,
// once, that it has been down for a second although Redis serves the client. (An outage has a log line of its own.)
func (s *subscriber) wentDown(reason error, served bool) (wasUp, long bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.env.Clock.Now()
	if wasUp = s.down.since.IsZero(); wasUp {
		s.down.since = now
	}
	long = served && !s.down.logged && now.Sub(s.down.since) >= time.Second
	s.down.reason, s.down.logged = reason, s.down.logged || long
	return wasUp, long
}

// cameUp records the new subscription. Heartbeats then look for grants that waiters have missed.
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
	grant, err := script.ParseNotification(message)
	if err != nil {
		s.env.Log.Warn("unknown message on the notification channel", "channel", s.env.Channel, "err", err)
		return
	}
	s.notify(grant)
}

// maxDown is how long the subscription may be down before check returns an error. After a connection has broken, it
// usually comes up again sooner.
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

// missPause is the least time between two subscriptions that end because of a missed notification. If the reason is
// that others lack a right, a new subscription does not help.
const missPause = time.Minute

var errMissed = errors.New("the subscription did not bring a notification")

// miss ends the subscription with that number, which was up when a lock was granted and did not receive the
// notification. After a planned failover it may be to the old primary, to which no client publishes.
func (s *subscriber) miss(number uint64) {
	s.mu.Lock()
	now := s.env.Clock.Now()
	if s.count != number || !s.down.since.IsZero() || now.Sub(s.missed) < missPause {
		s.mu.Unlock()
		return
	}
	s.missed = now
	cancel := s.cancel
	s.mu.Unlock()
	cancel(errMissed)
}
