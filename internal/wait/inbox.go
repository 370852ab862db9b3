package wait

import (
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/script"
)

// event is what another goroutine tells a waiter.
type event struct {
	kind  eventKind
	grant script.Grant  // notified
	sent  time.Time     // when the heartbeat was sent that found it
	last  uint64        // stillQueued: the lock's last number then
	after time.Duration // acquireLater: after which another request can help
	lost  uint64        // holding, notNotified: number of the subscription that has lost the notification; 0: none was up
}

type eventKind int

const (
	notified     eventKind = iota // it was granted the lock
	stillQueued                   // a heartbeat found it queued
	notQueued                     // a heartbeat did not find it queued
	holding                       // a heartbeat found that it was granted the lock before
	notNotified                   // and no notification came
	acquireLater                  // another request can help after some time
	acquireNow                    // another request can help
)

// inbox holds the events that a waiter has not handled yet.
type inbox struct {
	signal chan struct{} // holds one value while events is not empty
	mu     sync.Mutex
	events []event // guarded by mu
}

func newInbox() inbox { return inbox{signal: make(chan struct{}, 1)} }

func (b *inbox) post(e event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}
