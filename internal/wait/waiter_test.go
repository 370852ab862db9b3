package wait

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/script"
)

// What a waiter does about each reply, each notification and what each heartbeat finds.
func TestWaiter_Next(t *testing.T) {
	type example struct {
		acquires   string         // replies
		heartbeats string         // replies
		notified   map[int]uint64 // fences, by ms
		try        bool
		refuse     bool // the first grant is of no use
		want       string
	}
	for name, c := range map[string]example{
		"granted":    {acquires: "granted 7", want: "0 acquire, 0 Granted 7 since 0"},
		"busy":       {acquires: "busy", try: true, want: "0 acquire, 0 Left"},
		"more":       {acquires: "more, busy", try: true, want: "0 acquire, 0 acquire, 0 Left"},
		"full":       {acquires: "full 3", want: "0 acquire, 0 Left"},
		"refused":    {acquires: "refused", want: "0 acquire, 0 Left refused"},
		"notified":   {acquires: "queued 5", notified: map[int]uint64{100: 6}, want: "0 acquire, 0 Queued, 100 Granted 6 since 0 handed"},
		"ctx ends":   {acquires: "queued 5", want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1500 Left context canceled, 1500 leave of 1"},
		"of no use":  {acquires: "granted 7, granted 7", refuse: true, want: "0 acquire, 0 Granted 7 since 0, 0 acquire, 0 Granted 7 since 0"},
		"lease ends": {acquires: "retry 300, granted 7", want: "0 acquire, 0 Queued, 300 acquire with ticket 4, 300 Granted 7 since 300"},

		// A grant is counted from the latest request that found the waiter queued, and is older than it if its fence is not above.
		"found queued later": {acquires: "queued 5", heartbeats: "queued 8", notified: map[int]uint64{1400: 9},
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1400 Granted 9 since 1000 handed"},
		"an old notification": {acquires: "queued 5, queued 5", notified: map[int]uint64{100: 5, 200: 6},
			want: "0 acquire, 0 Queued, 100 acquire with ticket 4, 200 Granted 6 since 100 handed"},
		"from before a heartbeat": {acquires: "queued 5, granted 9", heartbeats: "queued 8", notified: map[int]uint64{1400: 8},
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1400 acquire with ticket 4, 1400 Granted 9 since 1400"},

		// What a heartbeat finds.
		"dropped": {acquires: "queued 5, queued 5", heartbeats: "gone", notified: map[int]uint64{1100: 6},
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1000 acquire with ticket 4, 1100 Granted 6 since 1000 handed"},
		"lost": {acquires: "queued 5, granted 6", heartbeats: "holding",
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1010 NotificationLost, 1010 acquire with ticket 4, 1010 Granted 6 since 1010"},
		"late": {acquires: "queued 5", heartbeats: "holding", notified: map[int]uint64{1010: 6}, // at the same moment
			want: "0 acquire, 0 Queued, 1000 heartbeat of 1, 1010 Granted 6 since 0 handed"},

		// It sends acquire again until there is a reply, and leaves with a tombstone if one may arrive later.
		"fails": {acquires: "fails, fails, granted 7", want: "0 acquire, 17 acquire, 51 acquire, 51 Granted 7 since 51"},
		"fails once it is queued": {acquires: "retry 5, fails, queued 5", notified: map[int]uint64{500: 6},
			want: "0 acquire, 0 Queued, 5 acquire with ticket 4, 22 acquire with ticket 4, 500 Granted 6 since 22 handed"},
		"ambiguous": {acquires: "ambiguous, full 3", want: "0 acquire, 17 acquire, 17 Left, 17 leave of 1 with a tombstone"},
	} {
		f := newFake(t)
		f.acquires, f.heartbeats, f.end = strings.Split(c.acquires, ", "), strings.Split(c.heartbeats, ", "), at(1500)
		w := f.join(t, "client", Request{TTL: 10 * time.Second, Try: c.try})
		for ms, fence := range c.notified {
			f.AfterFunc(at(ms).Sub(begin), func() { f.notify(script.Grant{Token: w.token, Fence: fence, Given: 5 * time.Second}) })
		}
		ctx, cancel := context.WithCancel(t.Context())
		f.cancel = cancel
		f.run(waiting{ctx, f, w}, w, c.refuse)
		w.Close()
		assert.Equal(t, c.want, f.happened(), name)
		assert.Empty(t, f.byToken, name)
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
			f.note("Granted %d since %d%s", s.Grant.Fence, s.Grant.Sent.UnixMilli(), map[bool]string{true: " handed"}[s.Grant.Handoff])
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
