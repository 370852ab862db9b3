package fairlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/leader"
)

// refusing is a server that refuses for some time.
type refusing struct {
	text       string        // of the refusal
	lasts      time.Duration // at least
	options    *redis.Options
	begin, end func()
}

// refusals are the servers and proxies that refuse.
var refusals = map[string]func(*testing.T) refusing{
	"a user is off": func(t *testing.T) refusing {
		s := redistest.Start(t)
		user, root := s.User("billing", aclLine()...), s.Client()
		set := func(state string) func() {
			return func() {
				require.NoError(t, root.Do(t.Context(), "acl", "setuser", "billing", state).Err())
				require.NoError(t, root.Do(t.Context(), "client", "kill", "user", "billing").Err())
			}
		}
		return refusing{"WRONGPASS", 2 * time.Second, user, set("off"), set("on")}
	},
	"a right is missing": func(t *testing.T) refusing {
		s := redistest.Start(t)
		user, root := s.User("billing", aclLine()...), s.Client()
		set := func(rule string) func() {
			return func() { require.NoError(t, root.Do(t.Context(), "acl", "setuser", "billing", rule).Err()) }
		}
		return refusing{"NOPERM", 2 * time.Second, user, set("-evalsha"), set("+evalsha")}
	},
	"the server is full": func(t *testing.T) refusing {
		s := redistest.Start(t)
		root := s.Client()
		set := func(size string) func() {
			return func() { require.NoError(t, root.ConfigSet(t.Context(), "maxmemory", size).Err()) }
		}
		return refusing{"OOM", 6 * time.Second, s.Options(), set("1"), set("0")}
	},
	"a proxy says that its server fails":    proxy("upstream failure"),
	"a proxy says that its server is away":  proxy("ERR Connection refused"),
	"a proxy says what nobody has foreseen": proxy("QUOTA of tenant 7 is used up"),
}

func proxy(text string) func(*testing.T) refusing {
	return func(t *testing.T) refusing {
		t.Helper()
		link := redistest.NewLink(t, redistest.Start(t))
		return refusing{
			text, 2 * time.Second, &redis.Options{Network: "unix", Addr: link.Addr()}, func() { link.Answer(text) }, link.Mend,
		}
	}
}

// Servers and proxies refuse all requests for some seconds. A first Lock says so at once. Calls with a ticket or a
// lease go on: a holder, a waiter, an Unlock, a leave. A leader goes on, and its candidates do, also one that has
// begun meanwhile.
//
//fairlock:fault Redis or a proxy refuses for some seconds (a user is off, a right is missing, the server is full, any text): a first Lock, TryLock, Inspect or Ping returns ErrRefused at once; calls with a ticket and leases go on, and so do leaders, candidates and fairlock run
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, start := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			var clients []*fairlock.Client
			for range 3 {
				rdb := redis.NewClient(r.options)
				t.Cleanup(func() { _ = rdb.Close() })
				clients = append(clients, newClient(t, rdb, fairlock.Config{}))
			}
			a, b, c := clients[0], clients[1], clients[2]
			held := hold(t, a.Mutex("held").Lock)
			next := join(t, b.Mutex("held"), b.Mutex("held").Lock)
			unlocks := hold(t, a.Mutex("unlocked").Lock)
			leaves := join(t, b.Mutex("unlocked"), b.Mutex("unlocked").Lock)
			first := campaign(t, a)
			<-first.leads
			second := campaign(t, b)
			queued(t, b.Mutex("lead"), 1)

			r.begin()
			began := time.Now()
			err := refused(t, c.Mutex("first").Lock)
			require.ErrorIs(t, err, fairlock.ErrRefused)
			require.ErrorContains(t, err, r.text)
			assert.Equal(t, "refused", fairlock.ErrorType(err))
			require.ErrorIs(t, refused(t, c.Mutex("first").TryLock), fairlock.ErrRefused)
			require.ErrorIs(t, c.Ping(t.Context()), fairlock.ErrRefused)
			assert.Less(t, time.Since(began), slack)
			late := campaign(t, c)
			released := make(chan error, 1)
			go func() { released <- unlocks.Unlock(t.Context()) }()
			leaves.cancel()
			<-leaves.done
			require.ErrorIs(t, leaves.err, context.Canceled)
			time.Sleep(r.lasts - time.Since(began))
			if r.text != "OOM" { // nor do heartbeats and renewals
				until(t, func() bool { return !b.Stats().RefusedSince.IsZero() })
			}
			r.end()
			ended := time.Now()

			if err := <-released; err != nil { // that is refused for longer than an Unlock tries
				require.ErrorIs(t, err, fairlock.ErrRefused)
				assert.Greater(t, r.lasts, 3*time.Second)
			}
			require.NoError(t, held.Err())
			require.NoError(t, held.Renew(t.Context()))
			assert.True(t, next.pending())
			unlock(t, held)
			unlock(t, next.granted(t))
			unlock(t, hold(t, c.Mutex("unlocked").Lock))
			for _, e := range []*candidate{first, second, late} {
				<-e.leads
				e.resign()
				require.ErrorIs(t, <-e.ended, context.Canceled)
			}
			t.Logf("all is done %v after the end", time.Since(ended))
			assert.Less(t, time.Since(ended), 3*time.Second+slack)
		})
	}
}

// candidate campaigns for "lead".
type candidate struct {
	leads  chan struct{}
	resign context.CancelFunc
	ended  chan error
}

func campaign(t *testing.T, c *fairlock.Client) *candidate {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	e := &candidate{make(chan struct{}), cancel, make(chan error, 1)}
	elector := leader.New(c, "lead", leader.Config{Logger: slog.New(slog.DiscardHandler)})
	go func() {
		e.ended <- elector.Run(ctx, func(ctx context.Context) error {
			close(e.leads)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	return e
}

// The address is that of a replica, or of a primary that lacks replicas. A Lock waits, and the client says so in Stats,
// and once in its log. Another line says that it is over.
//
//fairlock:fault The address is a replica's, or the primary lacks replicas (READONLY, NOREPLICAS): Lock waits; Stats and one line say since when Redis does not serve the client, and one line when it is over
func TestServer_TakesNoWrites(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(*testing.T) (s *redistest.Server, end []any){
		"READONLY": func(t *testing.T) (*redistest.Server, []any) {
			return redistest.Start(t, "--replicaof", "127.0.0.1", "1"), []any{"replicaof", "no", "one"}
		},
		"NOREPLICAS": func(t *testing.T) (*redistest.Server, []any) {
			s := redistest.Start(t, "--min-replicas-to-write", "1")
			if s.Client().Eval(t.Context(), "return redis.call('SET', KEYS[1], '')", []string{"x"}).Err() == nil {
				t.Skip("this server lets scripts write all the same, as KeyDB does")
			}
			return s, []any{"config", "set", "min-replicas-to-write", "0"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, end := server(t)
			var log bytes.Buffer
			c := newClient(t, s.Client(), fairlock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			began := time.Now()
			waits := begin(t, c.Mutex("x").Lock)
			until(t, func() bool { return !c.Stats().OutageSince.IsZero() })
			assert.WithinDuration(t, began, c.Stats().OutageSince, slack)
			assert.Zero(t, c.Stats().RefusedSince)
			assert.True(t, waits.pending())
			require.NoError(t, s.Client().Do(t.Context(), end...).Err())
			unlock(t, waits.granted(t))
			until(t, func() bool { return c.Stats().OutageSince.IsZero() })
			unlock(t, begin(t, c.Mutex("x").Lock).granted(t)) // the line comes with the next request
			require.NoError(t, c.Close())
			assert.Regexp(t, `^\S+ level=WARN msg="outage begins: Redis does not serve this client" .*`+"\n"+
				`\S+ level=INFO msg="outage is over: Redis serves this client again" .*\n$`, log.String())
		})
	}
}
