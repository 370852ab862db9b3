package leader_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/leader"
)

// The tests run in bubbles of testing/synctest, on a server in memory: time passes only while every goroutine waits.

const (
	ttl      = bounds.DefaultTTL
	oneWay   = 5 * time.Millisecond   // how long a request or a reply takes
	handover = 100 * time.Millisecond // at most, from the end of a term to the next leader
)

const noRights = "NOPERM this user has no permissions to run the 'evalsha' command"

var errStop, errWork = errors.New("stop"), errors.New("work failed")

func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

// pass has time pass, and then waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// process is one that campaigns for the lock x.
type process struct {
	*leader.Elector

	t      *testing.T
	client *fairlocktest.Client
	log    bytes.Buffer
	cancel context.CancelCauseFunc
	ended  chan error // what Run has returned

	elected, ctxEnded, resigned time.Time // the latest
	why                         error     // of the latest Resigned
	terms, calls                int       // of Elected, and of f
}

// prepare returns a process that does not campaign yet.
func prepare(t *testing.T, s *fairlocktest.Server, name string) *process {
	t.Helper()
	p := &process{t: t, client: s.Client(fairlock.Config{Name: name})}
	p.client.Link.Delay(oneWay, oneWay)
	p.Elector = leader.New(p.client.Client, "x", leader.Config{
		Address: "http://" + name + "/ü x",
		Elected: func(_ context.Context, lease *fairlock.Lease) {
			assert.Same(t, lease, p.Lease())
			p.elected = time.Now()
			p.terms++
		},
		Resigned: func(err error) {
			assert.Nil(t, p.Lease())
			p.resigned, p.why = time.Now(), err
		},
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	})
	return p
}

// run has the process campaign, with a function that works until its ctx ends, and then calls end.
func (p *process) run(end func(ctx context.Context) error) *process {
	ctx, cancel := context.WithCancelCause(p.t.Context())
	p.cancel, p.ended = cancel, make(chan error, 1)
	go func() {
		p.ended <- p.Run(ctx, func(ctx context.Context) error {
			lease, _ := fairlock.LeaseFromContext(ctx)
			assert.Same(p.t, p.Lease(), lease)
			p.calls++
			<-ctx.Done()
			p.ctxEnded = time.Now()
			return end(ctx)
		})
	}()
	return p
}

// start has a process campaign, and waits until its request has arrived.
func start(t *testing.T, s *fairlocktest.Server, name string) *process {
	t.Helper()
	p := prepare(t, s, name).run(context.Cause)
	pass(time.Second)
	return p
}

// three starts three processes, of which the first one leads.
func three(t *testing.T, s *fairlocktest.Server) (one, two, three *process) {
	t.Helper()
	one, two, three = start(t, s, "one"), start(t, s, "two"), start(t, s, "three")
	s.Mutex("x").AssertHeldBy("one")
	s.Mutex("x").AssertQueue("two", "three")
	return one, two, three
}

// logged returns how many lines the process has logged with this text.
func (p *process) logged(text string) int { return strings.Count(p.log.String(), text) }

// When its ctx ends, the leader resigns, and the candidate that has waited longest leads.
//
//fairlock:promise Leader: one function at a time; its ctx ends before another process leads; the next one leads within 100 ms of its return, or when the TTL of a crashed leader has passed; candidates go on while Redis refuses, from their first campaign on
func TestRun_CtxEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		one, two, three := three(t, s)
		three.cancel(errStop) // a candidate leaves at once
		require.Equal(t, errStop, <-three.ended)
		now := time.Now()
		one.cancel(errStop)
		require.Equal(t, errStop, <-one.ended)
		pass(time.Second)
		assert.Equal(t, now, one.ctxEnded)
		assert.Equal(t, errStop, one.why)
		assert.Empty(t, one.log.String())
		assert.WithinDuration(t, now, two.elected, handover)
		s.Mutex("x").AssertHeldBy("two")
		assert.Zero(t, three.terms)

		two.cancel(errStop)
		require.Equal(t, errStop, <-two.ended)
		s.AssertNothingLeft()
	})
}

// Resigned has returned before the next process leads, and Run can be called again.
func TestRun_ResignedBeforeTheNextLeads(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		p := prepare(t, s, "one")
		slow := leader.New(p.client.Client, "x", leader.Config{
			Resigned: func(err error) {
				time.Sleep(time.Minute)
				p.resigned, p.why = time.Now(), err
			},
		})
		next := prepare(t, s, "two")
		for _, result := range []error{errWork, nil} {
			require.Equal(t, result, slow.Run(t.Context(), func(context.Context) error {
				assert.NotNil(t, slow.Lease())
				next.run(context.Cause)
				time.Sleep(time.Second)
				return result
			}))
			pass(time.Second)
			assert.Equal(t, result, p.why)
			assert.False(t, next.elected.Before(p.resigned))
			assert.WithinDuration(t, p.resigned, next.elected, handover)
			next.cancel(errStop)
			require.Equal(t, errStop, <-next.ended)
		}
	})
}

//fairlock:promise Leader
func TestRun_LeaderIsKilled(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		one, two, _ := three(t, s)
		now := time.Now()
		one.client.Crash()
		require.ErrorIs(t, <-one.ended, fairlock.ErrClosed)
		require.ErrorIs(t, one.why, fairlock.ErrClosed)
		pass(ttl + time.Second)
		s.Mutex("x").AssertHeldBy("two")
		s.Mutex("x").AssertQueue("three")
		assert.WithinDuration(t, now, two.elected, ttl+time.Second)
	})
}

// A leader that is cut off stops before the next one leads. When it reaches Redis again, it campaigns again.
//
//fairlock:promise Leader
func TestRun_LeaderIsCutOff(t *testing.T) {
	for name, fault := range map[string]func(*fairlocktest.Link){"cut": (*fairlocktest.Link).Cut,
		"hang": (*fairlocktest.Link).Hang} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				one, two, three := three(t, s)
				fault(one.client.Link)
				pass(ttl + time.Second)
				s.Mutex("x").AssertHeldBy("two")
				assert.True(t, one.ctxEnded.Before(two.elected), "%v, %v", one.ctxEnded, two.elected)
				assert.Equal(t, one.ctxEnded, one.resigned)
				require.ErrorIs(t, one.why, fairlock.ErrLost)

				pass(10 * time.Second)
				one.client.Link.Mend()
				pass(10 * time.Second)
				s.Mutex("x").AssertQueue("three", "one")
				assert.Zero(t, one.logged("campaign failed"), one.log.String())
				two.cancel(errStop)
				three.cancel(errStop)
				pass(time.Second)
				s.Mutex("x").AssertHeldBy("one")
				assert.Equal(t, 2, one.terms)
				assert.Equal(t, 2, one.calls)
				assert.Zero(t, one.logged("function"), "its error only says that its ctx has ended")
			})
		})
	}
}

// A process whose function still runs does not campaign. The error with which it returns in the end is logged.
//
//fairlock:promise Leader
func TestRun_FunctionIgnoresItsCtx(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		done := make(chan struct{})
		one := prepare(t, s, "one").run(func(context.Context) error { <-done; return errWork })
		pass(time.Second)
		_ = start(t, s, "two")
		lost := one.Lease()
		s.Mutex("x").ForceRelease()
		<-lost.Done()
		assert.Nil(t, one.Lease())

		pass(time.Minute)
		s.Mutex("x").AssertHeldBy("two")
		s.Mutex("x").AssertQueue()
		assert.Equal(t, 1, one.calls)
		assert.True(t, one.resigned.IsZero())
		s.Mutex("x").ForceRelease() // nobody waits
		s.Mutex("x").WaitHeldBy("two")

		close(done)
		s.Mutex("x").WaitQueued(1)
		require.ErrorIs(t, one.why, fairlock.ErrRevoked)
		assert.Equal(t, 1, one.logged(`lock=x err="work failed"`), one.log.String())
	})
}

// After the end of ctx, too, Run waits for its function.
func TestRun_WaitsForItsFunction(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		one := prepare(t, s, "one").run(func(context.Context) error { time.Sleep(time.Minute); return errWork })
		pass(time.Second)
		one.cancel(errStop)
		pass(time.Minute - time.Millisecond)
		s.Mutex("x").AssertHeldBy("one")
		assert.NotNil(t, one.Lease())
		require.Equal(t, errStop, <-one.ended)
		s.Mutex("x").AssertFree()
		assert.Equal(t, 1, one.logged(`lock=x err="work failed"`), one.log.String())
	})
}

// The function is not called if the leadership has ended while Elected ran.
func TestRun_EndsInElected(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*fairlocktest.Client, context.CancelCauseFunc)
		want error
	}{
		"ctx":  {func(_ *fairlocktest.Client, cancel context.CancelCauseFunc) { cancel(errStop) }, errStop},
		"lost": {func(c *fairlocktest.Client, _ context.CancelCauseFunc) { c.Close() }, fairlock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				client := s.Client(fairlock.Config{})
				ctx, cancel := context.WithCancelCause(t.Context())
				var why error
				e := leader.New(client.Client, "x", leader.Config{
					Elected: func(ctx context.Context, lease *fairlock.Lease) {
						carried, _ := fairlock.LeaseFromContext(ctx)
						assert.Same(t, lease, carried)
						c.end(client, cancel)
					},
					Resigned: func(err error) { why = err },
				})
				err := e.Run(ctx, func(context.Context) error { assert.Fail(t, "called"); return nil })
				require.ErrorIs(t, err, c.want)
				require.ErrorIs(t, why, c.want)
			})
		})
	}
}

// Whichever callback panics, the lock is released, the panic goes on, and Run can be called again.
func TestRun_Panics(t *testing.T) {
	for name, at := range map[string]int{"Elected": 0, "the function": 1, "Resigned": 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				next, resigned := at, 0
				step := func(i int) {
					if i == next {
						panic(errWork)
					}
				}
				e := leader.New(s.Client(fairlock.Config{}).Client, "x", leader.Config{
					Elected:  func(context.Context, *fairlock.Lease) { step(0) },
					Resigned: func(error) { resigned++; step(2) },
				})
				f := func(context.Context) error { step(1); return nil }
				require.PanicsWithValue(t, errWork, func() { _ = e.Run(t.Context(), f) })
				assert.Equal(t, 1, resigned)
				assert.Nil(t, e.Lease())
				s.Mutex("x").AssertFree()
				next = -1
				require.NoError(t, e.Run(t.Context(), f))
			})
		})
	}
}

func TestRun_Twice(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		_ = s.Mutex("x").HoldAs("other")
		one := start(t, s, "one")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, leader.ErrRunning, one.Run(short, nil))
		s.Mutex("x").AssertQueue("one")
		one.cancel(errStop)
		require.Equal(t, errStop, <-one.ended)
		_ = one.run(context.Cause)
		s.Mutex("x").WaitQueued(1)
	})
}

// If the function returns while its process leads, and the lock was taken by force, Run says so.
func TestRun_LossFoundByTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		one := prepare(t, s, "one")
		err := one.Run(t.Context(), func(context.Context) error {
			s.Mutex("x").ForceRelease()
			return errWork
		})
		require.ErrorIs(t, err, errWork)
		require.ErrorIs(t, err, fairlock.ErrLost)
		assert.Equal(t, errWork, one.why)
		assert.Equal(t, 1, one.terms)
	})
}

// What a further attempt can cure is attempted again after a second; the first failure is logged.
func TestRun_CampaignsAgain(t *testing.T) {
	full := func(s *fairlocktest.Server) (end func()) {
		s.Mutex("x").CrashHolding("crashed", time.Hour)
		s.Mutex("x").CrashQueued("waiter", time.Hour)
		return s.Mutex("x").ForceRelease
	}
	away := func(s *fairlocktest.Server) (end func()) {
		s.Stop()
		return s.Start
	}
	refuses := func(s *fairlocktest.Server) (end func()) {
		s.Miniredis.SetError(noRights)
		return func() { s.Miniredis.SetError("") }
	}
	for name, c := range map[string]struct {
		fault    func(*fairlocktest.Server) (end func())
		after    time.Duration // in a pause
		attempts int
	}{
		"the queue is full":       {full, 3500 * time.Millisecond, 4},
		"Redis was never reached": {away, 21500 * time.Millisecond, 2}, // each takes 10 s
		"Redis refuses":           {refuses, 3500 * time.Millisecond, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				var log bytes.Buffer
				attempts := 0
				client := s.Client(fairlock.Config{
					MaxWaiters: 1, Trace: &fairlock.Trace{Abandoned: func(fairlock.AbandonedInfo) { attempts++ }},
				})
				e := leader.New(client.Client, "x", leader.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				run := func() (stopped chan error, cancel context.CancelCauseFunc) {
					ctx, cancel := context.WithCancelCause(t.Context())
					stopped = make(chan error, 1)
					go func() { stopped <- e.Run(ctx, func(context.Context) error { return errWork }) }()
					return stopped, cancel
				}
				end := c.fault(s)
				stopped, cancel := run()
				pass(c.after)
				assert.Equal(t, c.attempts, attempts)
				assert.Equal(t, 1, strings.Count(log.String(), "campaign failed"), log.String())
				now := time.Now()
				cancel(errStop) // in the pause
				require.Equal(t, errStop, <-stopped)
				assert.Equal(t, now, time.Now())

				stopped, _ = run()
				pass(1500 * time.Millisecond)
				end()
				pass(time.Second)
				if name == "the queue is full" { // the first waiter has been granted the lock
					s.Mutex("x").AssertQueue("client-1")
					s.Mutex("x").ForceRelease()
				}
				require.Equal(t, errWork, <-stopped)
			})
		})
	}
}

// A candidate that is queued keeps its ticket while Redis refuses, and a leader that cannot renew stops leading before
// its lease ends in Redis. It campaigns once a second, and leads again.
//
//fairlock:promise Leader
func TestRun_Refused(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		one, two, three := three(t, s)
		s.Miniredis.SetError(noRights)
		pass(2 * time.Second) // less than the TTL of a waiter and of a lease
		s.Miniredis.SetError("")
		pass(2 * time.Second)
		s.Mutex("x").AssertHeldBy("one")
		s.Mutex("x").AssertQueue("two", "three")
		assert.Zero(t, two.logged("campaign failed"), two.log.String())

		s.Miniredis.SetError(noRights)
		pass(time.Minute)
		require.ErrorIs(t, one.why, fairlock.ErrLost)
		require.ErrorIs(t, one.why, fairlock.ErrRefused)
		require.NotErrorIs(t, one.why, fairlock.ErrUnreachable)
		assert.Equal(t, 1, one.logged("campaign failed"), one.log.String())
		assert.Equal(t, 1, one.terms+two.terms+three.terms)
		s.Miniredis.SetError("")
		pass(3 * time.Second)
		assert.Equal(t, 2, one.terms+two.terms+three.terms)
	})
}

// What no attempt can cure is returned.
func TestRun_CannotCampaign(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*fairlocktest.Server, *fairlocktest.Client) *leader.Elector
		want string
	}{
		"bad name": {func(_ *fairlocktest.Server, c *fairlocktest.Client) *leader.Elector {
			return leader.New(c.Client, "", leader.Config{})
		}, "invalid name"},
		"bad TTL": {func(_ *fairlocktest.Server, c *fairlocktest.Client) *leader.Elector {
			return leader.New(c.Client, "x", leader.Config{TTL: 1})
		}, "invalid TTL"},
		"bad address": {func(_ *fairlocktest.Server, c *fairlocktest.Client) *leader.Elector {
			return leader.New(c.Client, "x", leader.Config{Address: strings.Repeat("a", 129)})
		}, "invalid Address"},
		"closed": {func(_ *fairlocktest.Server, c *fairlocktest.Client) *leader.Elector {
			c.Close()
			return leader.New(c.Client, "x", leader.Config{})
		}, "client is closed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) {
				e := c.of(s, s.Client(fairlock.Config{}))
				now := time.Now()
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorContains(t, e.Run(short, nil), c.want)
				assert.Equal(t, now, time.Now())
				_, _, err := e.Leader(t.Context())
				require.ErrorContains(t, err, c.want)
			})
		})
	}
}

// Everybody can ask who leads.
func TestLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		observer := prepare(t, s, "observer")
		asserts := func(wantName string, wantSince time.Time) {
			t.Helper()
			name, since, err := observer.Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, wantName, name)
			assert.WithinDuration(t, wantSince, since, 2*oneWay) // the fence was given before the reply arrived
		}
		asserts("", time.Time{})
		one := start(t, s, "10.0.0.3:8080")
		two := start(t, s, "[fd00::1]:8080")
		pass(time.Minute)
		asserts("http://10.0.0.3:8080/ü x", one.elected)
		assert.NotNil(t, one.Lease())
		assert.Nil(t, two.Lease())
		assert.Nil(t, observer.Lease())
		one.cancel(errStop)
		require.Equal(t, errStop, <-one.ended)
		pass(time.Minute)
		asserts("http://[fd00::1]:8080/ü x", two.elected)
		holder := s.Mutex("x").State().Holders[0]
		assert.Equal(t, []any{"[fd00::1]:8080", "", true}, []any{holder.Client, holder.Key, holder.Leader},
			"the name is another thing")
		assert.Nil(t, one.Lease())
		two.cancel(errStop)
		require.Equal(t, errStop, <-two.ended)
		asserts("", time.Time{})

		nameless := leader.New(s.Client(fairlock.Config{Name: "web-3"}).Client, "x", leader.Config{})
		since := time.Now()
		require.NoError(t, nameless.Run(t.Context(), func(context.Context) error {
			asserts("web-3", since) // without an address, the client's name
			return nil
		}))

		s.Stop()
		_, _, err := observer.Leader(t.Context())
		require.Error(t, err)
	})
}

// Who has the lock by Mutex.Lock is no leader.
func TestLeader_IsAnElector(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		holder := s.Mutex("x").HoldAs("other")
		one := prepare(t, s, "one").run(context.Cause)
		pass(time.Second)
		name, since, err := one.Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []any{"", true}, []any{name, since.IsZero()})
		assert.False(t, s.Mutex("x").State().Holders[0].Leader)
		require.NoError(t, holder.Unlock(t.Context()))
		pass(time.Second)
		assert.True(t, s.Mutex("x").State().Holders[0].Leader)
	})
}

// The leases have the TTL of Options, and the pauses go by the client's Clock.
func TestNew_Options(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		slow := s.LocalClock()
		slow.SetRate(0.5)
		client := s.Client(fairlock.Config{MaxWaiters: 1, Clock: slow})
		e := leader.New(client.Client, "x", leader.Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		s.Mutex("x").CrashHolding("crashed", time.Hour)
		s.Mutex("x").CrashQueued("waiter", time.Hour)
		began, stopped := time.Now(), make(chan error)
		go func() {
			stopped <- e.Run(t.Context(), func(ctx context.Context) error {
				assert.Equal(t, 2*time.Second, time.Since(began).Truncate(time.Microsecond), "the Clock rounds")
				assert.Equal(t, time.Minute, e.Lease().Token().TTL())
				return errWork
			})
		}()
		pass(time.Second)
		s.Mutex("x").ForceRelease() // the waiter has it
		s.Mutex("x").ForceRelease()
		require.Equal(t, errWork, <-stopped)
	})
}

// Under all faults but those after which only fences help, no two processes lead. Afterwards one of them leads.
//
//fairlock:promise Leader
func TestRun_Explore(t *testing.T) {
	cfg := fairlocktest.ExploreConfig{Seeds: 5, Faults: fairlocktest.AllFaults &^ fairlocktest.OverlapFaults}
	fairlocktest.Explore(t, cfg, func(t *testing.T, w *fairlocktest.World) {
		var leading, terms atomic.Int64
		for range 3 {
			go func() {
				var e *leader.Elector
				for err := fairlock.ErrClosed; t.Context().Err() == nil; {
					if errors.Is(err, fairlock.ErrClosed) { // it has crashed: another process is started
						e = leader.New(w.Client(fairlock.Config{}).Client, "x", leader.Config{Logger: slog.New(slog.DiscardHandler)})
					}
					err = e.Run(t.Context(), func(ctx context.Context) error {
						assert.EqualValues(t, 1, leading.Add(1))
						defer leading.Add(-1)
						terms.Add(1)
						select {
						case <-ctx.Done():
							return context.Cause(ctx)
						case <-time.After(20 * time.Second): // resigns
							return nil
						}
					})
				}
			}()
		}
		time.Sleep(time.Minute)
		w.Heal()
		time.Sleep(time.Minute)
		before := terms.Load()
		time.Sleep(time.Minute)
		assert.Equal(t, before+3, terms.Load(), "each leads for 20 s")
	})
}
