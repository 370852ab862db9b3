package script_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/token"
)

// contents is all that a lock has in Redis, and for how long each key lasts, by the ends of their names.
type contents struct {
	dumps map[string]string
	left  map[string]time.Duration
}

func (m *machine) contents() contents {
	c := contents{map[string]string{}, map[string]time.Duration{}}
	for name, key := range m.keys {
		if dump := m.rdb.Dump(ctx, key).Val(); dump != "" {
			c.dumps[name], c.left[name] = dump, m.rdb.PTTL(ctx, key).Val()
		}
	}
	return c
}

// contend makes a lock of one permit with a holder and two waiters.
func (m *machine) contend() {
	m.t.Helper()
	m.lose()
	for _, who := range []token.Token{m.held(0), m.queued(0), m.queued(1)} {
		_, err := m.lock().Acquire(ctx, script.Request{Token: who, WaiterTTL: waiterTTL})
		require.NoError(m.t, err)
	}
}

// The locks to which requests are sent.
const idle, contended = "idle", "contended"

// eachSample sends each sample to an idle lock and to one that contend has made, in which change has changed something.
func (m *machine) eachSample(change func(), check func(lock, name string, s sample, before, after contents,
	err error)) {
	m.t.Helper()
	m.foreign = true
	for name, s := range samplesOf(m.lock()) {
		for lock, setup := range map[string]func(){idle: m.lose, contended: m.contend} {
			setup()
			change()
			before := m.contents()
			err := s.try(m.lock(), m.requesters(crowd{}, 2, 0))
			check(lock, name, s, before, m.contents(), err)
		}
	}
}

// A server that refuses writes for a while says so, and not that a request is done which changes something later.
//
//fairlock:fault Redis refuses writes for a while when a waiter leaves (READONLY, NOREPLICAS, …): the waiter is out of the queue as soon as Redis accepts it
func TestRefusedWrites(t *testing.T) {
	primary, err := net.Listen("tcp", "127.0.0.1:0") // which never replies
	require.NoError(t, err)
	t.Cleanup(func() { _ = primary.Close() })
	host, port, err := net.SplitHostPort(primary.Addr().String())
	require.NoError(t, err)
	for _, k := range oneHolder {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, newServer(t, redistest.Start(t)), k)
			m.rdb.Options().MaxRetries = 0 // go-redis pauses between them
			accept := func() { m.do(t, "REPLICAOF", "NO", "ONE") }
			refuse := func() { m.do(t, "REPLICAOF", host, port) }
			m.eachSample(refuse, func(lock, name string, s sample, before, after contents, err error) {
				accept()
				if err != nil {
					require.Equal(t, call.Unavailable, call.OriginOf(err), "%s, %s: %v", lock, name, err)
				} else if name != "inspect" {
					require.NoError(t, s.try(m.lock(), m.requesters(crowd{}, 2, 0)))
					after = m.contents()
				}
				require.Equal(t, before.dumps, after.dumps, "%s, %s", lock, name)
			})
		})
	}
}

// What a script had written before a command was refused, leave removes.
//
//fairlock:fault The user lacks rights: an error that names what is missing; without the channel, heartbeats replace notifications
func TestErrors_MissingRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind
		rules, before, steps string
	}{
		{mutex, "~other:* &* +@all", "", "acquire a -> NOPERM\nleft ->"},
		{mutex, "~* &* +@all -evalsha -eval", "", "acquire a -> NOPERM\nleft ->"},
		{mutex, "~* &* +@all -set", "", "acquire a -> can't run this command\nleft ->"},
		{mutex, "~* &* +@all -zadd", "", "acquire a -> granted\nacquire b -> can't run this command\nleft -> lock number"},
		{mutex, "~* &* +@all -zadd", "acquire a b", "acquire b -> can't run this command\nrelease c ->\nrelease a -> b"},
		{semaphore(2), "~* &* +@all -pexpire", "", "acquire a -> can't run this command; leave a ->; left -> number"},
		{semaphore(2), "~* &* +@all -zadd", "", "acquire a -> can't run this command; leave a ->; left -> number"},
		{mutex, "~* resetchannels +@all", "", // nobody is notified, and nobody is refused
			`acquire a b c d; after 1m; release a -> b; leave b; force; inspect -> d |; leave d
			acquire a b c; after 40m; heartbeat b c; after 21m; heartbeat c -> queued; inspect -> b | c`},
	} {
		m := newMachine(t, shared(t), c.kind)
		m.run(c.before)
		m.user = instrumentedBy(client(t, redistest.Shared(t).User(m.namespace, strings.Fields(c.rules)...)), timed())
		m.run(c.steps)
	}
}

// A number of another version, a damaged one, or a ticket that cannot be ours: the error says so, and nothing is
// written.
//
//fairlock:fault The key of the numbers has another layout, or is damaged: a typed error that names the key; nothing is written
func TestErrors_Number(t *testing.T) {
	for _, k := range []kind{mutex, semaphore(1), keyed(1)} {
		m := newMachine(t, shared(t), k)
		for text, layout := range map[string]string{
			"1 anything": "1", "2 9006099743113217 0 0": "", "2 x": "", "2 -1 0 0": "",
		} {
			set := func() { m.do(t, "SET", m.keys["number"], text, "PX", day.Milliseconds()) }
			m.eachSample(set, func(lock, name string, s sample, before, after contents, err error) {
				if slices.Contains(s.unnumbered, lock) {
					return
				}
				var other *token.LayoutError
				require.Equal(t, layout != "", errors.As(err, &other), "%s: %v", name, err)
				require.True(t, other != nil && other.Layout == layout ||
					strings.Contains(err.Error(), "delete it if the lock is not in use"), "%s: %v", name, err)
				require.ErrorContains(t, err, m.keys["number"])
				require.Equal(t, before.dumps, after.dumps, "%s: %q", name, text)
			})
		}
		m.contend()
		_, err := m.lock().Acquire(ctx, script.Request{
			Token: m.requesters(crowd{}, 0, 0).stranger, WaiterTTL: waiterTTL, Ticket: script.Ticket(m.clock + 1<<45 + 100),
		})
		require.ErrorContains(t, err, "delete it if the lock is not in use")
		m.lose()
	}
}

// A key of another type is untouched, and nothing else changes; but what was released stays released.
//
//fairlock:fault A key of ours is somebody else's: an error that names the lock's keys; it is untouched
func TestErrors_ForeignKey(t *testing.T) {
	for _, k := range []kind{mutex, semaphore(1), keyed(1)} {
		m := newMachine(t, shared(t), k)
		for end, key := range m.keys {
			set := func() {
				m.do(t, "DEL", key)
				m.do(t, "RPUSH", key, "somebody's")
				m.do(t, "PEXPIRE", key, day.Milliseconds())
			}
			m.eachSample(set, func(lock, name string, s sample, before, after contents, err error) {
				about := name + ", " + lock + ", " + end
				assert.Equal(t, []any{"somebody's"}, m.do(t, "LRANGE", key, 0, -1), about)
				assert.Greater(t, after.left[end], day/2, about)
				isHolder := end == "lock" || end == "permits" || end == "holders"
				switch {
				case s.ends == nil:
					before.dumps["heartbeats"], after.dumps["heartbeats"] = "", "" // expiries do not count
					assert.True(t, err == nil || assert.ObjectsAreEqual(before.dumps, after.dumps), about)
				case end == "number" && err != nil: // the rest of a lease needs one
					assert.Equal(t, before.dumps, after.dumps, about)
				case !isHolder:
					ended := s.ends(m.requesters(crowd{}, 0, 0)).Text()
					assert.Nil(t, m.state().Holder(ended), about)
					assert.True(t, err == nil || end == "tombstones", "%s: %v", about, err)
				}
				if err != nil {
					require.ErrorContains(t, err, `one of the keys "`+strings.TrimSuffix(key, end)+`*" is not ours`, about)
				}
				require.True(t, err != nil || name != "join", "%s: no error", about)
			})
		}
	}
}
