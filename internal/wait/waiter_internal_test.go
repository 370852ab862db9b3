package wait

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/script"
)

// What a waiter does about each reply, each notification and what each heartbeat finds.
//
//fairlock:fault A notification is lost
//fairlock:fault Redis loses its data
//fairlock:fault Many holders crash: TryLock gets in at once after their leases, however many they were
func TestWaiter_Next(t *testing.T) {
	type events map[int]event // by ms
	type example struct {
		acquires   string // replies
		heartbeats string // replies
		events     events
		upAt       int // when the subscription comes up, in ms
		try        bool
		refuse     bool // the first grant is of no use
		want       string
	}
	notified := func(fence uint64) event {
		return event{kind: notified, grant: script.Grant{Fence: fence, Given: 5 * time.Second}}
	}
	for name, c := range map[string]example{
		"granted": {acquires: "granted 7", want: "0 acquire, 0 Granted 7 since 0"},
		"busy":    {acquires: "busy", try: true, want: "0 acquire, 0 Left"},
		"more":    {acquires: "more, busy", try: true, want: "0 acquire, 0 acquire, 0 Left"},
		"full":    {acquires: "full 3", want: "0 acquire, 0 Left"},
		"refused": {acquires: "refused", want: "0 acquire, 0 Left refused"},
		"notified": {acquires: "queued 5", events: events{100: notified(6)},
			want: "0 acquire, 0 Queued, 100 Granted 6 since 0 handed"},
		"ctx ends": {acquires: "queued 5",
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1500 Left context canceled, 1500 leave of 1"},
		"of no use": {acquires: "granted 7, granted 7", refuse: true,
			want: "0 acquire, 0 Granted 7 since 0, 0 acquire, 0 Granted 7 since 0"},
		"lease ends": {acquires: "retry 300, granted 7",
			want: "0 acquire, 0 Queued, 300 acquire with ticket 4, 300 Granted 7 since 300"},

		// A grant is counted from the latest request that found the waiter queued, and is older than it if its fence is not
		// above.
		"found queued later": {acquires: "queued 5", heartbeats: "queued 8", events: events{1400: notified(9)},
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1400 Granted 9 since 1000 handed"},
		"an old notification": {acquires: "queued 5, queued 5", events: events{100: notified(5), 200: notified(6)},
			want: "0 acquire, 0 Queued, 100 acquire with ticket 4, 200 Granted 6 since 100 handed"},
		"from before a heartbeat": {acquires: "queued 5, granted 9", heartbeats: "queued 8",
			events: events{1400: notified(8)},
			want:   "0 acquire, 0 Queued, 1000 heartbeat of 1, 1400 acquire with ticket 4, 1400 Granted 9 since 1400"},

		// What a heartbeat finds.
		"dropped": {acquires: "queued 5, queued 5", heartbeats: "gone", events: events{1100: notified(6)},
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1000 acquire with ticket 4, 1100 Granted 6 since 1000 handed"},
		"lost": {acquires: "queued 5, granted 6", heartbeats: "holding",
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1010 NotificationLost, 1010 acquire with ticket 4, 1010 Granted 6 since 1010"},
		"late": {acquires: "queued 5", heartbeats: "holding", events: events{1010: notified(6)}, // at the same moment
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1010 Granted 6 since 0 handed"},
		"not up at the grant": {acquires: "queued 5, granted 6", heartbeats: "holding", upAt: 500,
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1010 acquire with ticket 4, 1010 Granted 6 since 1010"},
		"dropped before its latest acquire": {acquires: "queued 5, queued 5",
			events: events{100: {kind: acquireNow}, 200: {kind: notQueued, sent: at(50)}, 300: notified(6)},
			want:   "0 acquire, 0 Queued, 100 acquire with ticket 4, 300 Granted 6 since 100 handed"},
		"granted before its latest acquire": {acquires: "queued 5, queued 5",
			events: events{100: {kind: acquireNow}, 200: {kind: holding, sent: at(50)}, 300: notified(6)},
			want:   "0 acquire, 0 Queued, 100 acquire with ticket 4, 300 Granted 6 since 100 handed"},
		"told twice when a lease ends": {acquires: "retry 300, granted 7",
			events: events{100: {kind: acquireLater, after: time.Second}},
			want:   "0 acquire, 0 Queued, 300 acquire with ticket 4, 300 Granted 7 since 300"},

		// It sends acquire again until there is a reply, and leaves with a tombstone if one may arrive later.
		"fails": {acquires: "fails, fails, granted 7", want: "0 acquire, 17 acquire, 51 acquire, 51 Granted 7 since 51"},
		"fails once it is queued": {acquires: "retry 5, fails, queued 5", events: events{500: notified(6)},
			want: "0 acquire, 0 Queued, 5 acquire with ticket 4, 22 acquire with ticket 4, 500 Granted 6 since 22 handed"},
		"fails for long": {acquires: "fails, fails, fails, fails, fails, fails, retry 5, fails, granted 7",
			want: "0 acquire, 17 acquire, 51 acquire, " +
				"120 acquire, 257 acquire, 472 acquire, 687 acquire, 687 Queued, 692 acquire with ticket 4, 710 acquire with ticket 4, 710 Granted 7 since 710"},
		"ambiguous": {acquires: "ambiguous, full 3", want: "0 acquire, 17 acquire, 17 Left, 17 leave of 1 with a tombstone"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			f.acquires, f.heartbeats, f.end = strings.Split(c.acquires, ", "), strings.Split(c.heartbeats, ", "), at(1500)
			w := f.join(t, "client", Request{TTL: 10 * time.Second, Try: c.try})
			for ms, e := range c.events {
				f.AfterFunc(at(ms).Sub(begin), func() { w.post(e) })
			}
			if c.upAt > 0 {
				f.subscriber.count, f.subscriber.down.since = 0, begin
				f.AfterFunc(at(c.upAt).Sub(begin), func() { f.subscriber.count, f.subscriber.down = 1, down{} })
			}
			ctx, cancel := context.WithCancel(t.Context())
			f.cancel = cancel
			f.run(waiting{ctx, f, w}, w, c.refuse)
			w.Close()
			synctest.Wait() // until it has left
			assert.Equal(t, c.want, f.happened(), name)
			assert.Empty(t, f.byToken, name)
		})
	}
}

// run notes each step of a waiter until it is granted the lock or has left.
func (f *fake) run(ctx context.Context, w *Waiter, refuse bool) {
	for {
		switch s := w.Next(ctx); s.Kind {
		case Queued:
			f.note("Queued")
		case NotificationLost:
			f.note("NotificationLost")
		case Granted:
			f.note("Granted %d since %d%s", s.Grant.Fence, s.Grant.Sent.UnixMilli(),
				map[bool]string{true: " handed"}[s.Grant.Handoff])
			if !refuse {
				return
			}
			refuse = false
		case Left:
			text := ""
			if s.Err != nil {
				text = " " + s.Err.Error()
			}
			f.note("Left%s", text)
			w.Leave()
			return
		}
	}
}
