package lua_test

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// pttl returns how long a key lasts; -1 for ever, -2 if there is none (in ns, as go-redis has it).
func (w *world) pttl(key string) time.Duration {
	w.t.Helper()
	d, err := w.rdb.PTTL(w.t.Context(), key).Result()
	require.NoError(w.t, err)
	return d
}

// lasts checks that a key lasts as long as want, but for what has passed since it was set.
func (w *world) lasts(key string, want time.Duration) {
	w.t.Helper()
	assert.InDelta(w.t, want.Seconds(), w.pttl(key).Seconds(), 10, "%s lasts", key)
}

func (w *world) fence() uint64 {
	w.t.Helper()
	text, _ := w.do("GET", w.keys.Fence).(string)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(w.t, err)
	return n
}

// owner returns what holds the lock, or nothing.
func (w *world) owner() string {
	w.t.Helper()
	text, _ := w.do("GET", w.keys.Lock).(string)
	return text
}

// score returns a number of a sorted set to the last digit; 0 if it is not there.
func (w *world) score(key string, t token.Token) uint64 {
	w.t.Helper()
	member := t.Text()
	if key == w.keys.Alive {
		member = short(t)
	}
	f, err := w.rdb.ZScore(w.t.Context(), key, member).Result()
	if err == redis.Nil { //nolint:errorlint // as go-redis returns it
		return 0
	}
	require.NoError(w.t, err)
	return uint64(f)
}

// state is all that a lock has in Redis but for the expiry of keys and waiters.
type state struct {
	Lock, Fence string
	Queue       []redis.Z
	Alive       []string
}

func (w *world) state() (s state) {
	w.t.Helper()
	ctx := w.t.Context()
	var err error
	s.Lock, _ = w.do("GET", w.keys.Lock).(string)
	s.Fence, _ = w.do("GET", w.keys.Fence).(string)
	s.Queue, err = w.rdb.ZRangeWithScores(ctx, w.keys.Queue, 0, -1).Result()
	require.NoError(w.t, err)
	s.Alive, err = w.rdb.ZRange(ctx, w.keys.Alive, 0, -1).Result()
	require.NoError(w.t, err)
	return s
}

// queue returns the waiters in order.
func (w *world) queue() []string {
	w.t.Helper()
	all, err := w.rdb.ZRange(w.t.Context(), w.keys.Queue, 0, -1).Result()
	require.NoError(w.t, err)
	return all
}

func texts(tokens ...token.Token) []string {
	all := make([]string, len(tokens))
	for i, t := range tokens {
		all[i] = t.Text()
	}
	return all
}

// short is a token's name in alive.
func short(t token.Token) string { return t.Text()[len(t.Text())-14:] }

func shorts(tokens ...token.Token) []string {
	all := make([]string, len(tokens))
	for i, t := range tokens {
		all[i] = short(t)
	}
	return all
}

// listen subscribes to a client's wake channel. The function it returns tells all that was said there up to now.
func (w *world) listen(client string) func() []string {
	w.t.Helper()
	channel := lua.NotificationChannel(ns, client)
	sub := w.rdb.Subscribe(w.t.Context(), channel)
	w.t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(w.t.Context())
	require.NoError(w.t, err)
	// Read all the time: a server in memory waits for its subscribers.
	messages := sub.Channel(redis.WithChannelSize(1000), redis.WithChannelHealthCheckInterval(0))
	return func() (said []string) {
		w.t.Helper()
		w.do("PUBLISH", channel, "end")
		for {
			select {
			case m := <-messages:
				if m.Payload == "end" {
					return said
				}
				said = append(said, m.Payload)
			case <-time.After(10 * time.Second):
				require.FailNow(w.t, "the end did not arrive")
			}
		}
	}
}
