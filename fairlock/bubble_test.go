package fairlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/script"
)

// The tests of this package run in bubbles of testing/synctest, on a server in memory. There, time passes only while
// every goroutine waits, so instants are exact.

const (
	ttl      = bounds.DefaultTTL
	interval = time.Second // of heartbeats
)

// bubble runs a test in a bubble of its own, beside those of other tests.
func bubble(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	t.Parallel()
	bubbleAlone(t, test)
}

// bubbleAlone is bubble for a test that looks at the whole process.
func bubbleAlone(t *testing.T, test func(t *testing.T, s *fairlocktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, fairlocktest.NewServer(t)) })
}

// bubbles runs a test for each case, in a bubble of its own.
func bubbles[K comparable, C any](
	t *testing.T, cases map[K]C, test func(t *testing.T, s *fairlocktest.Server, name K, c C),
) {
	t.Helper()
	for name, c := range cases {
		t.Run(fmt.Sprint(name), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *fairlocktest.Server) { test(t, s, name, c) })
		})
	}
}

// clientWith returns a client whose go-redis has other options, and is wrapped.
func clientWith(t *testing.T, s *fairlocktest.Server, cfg fairlock.Config, change func(*redis.Options),
	wrap ...func(*redis.Client) fairlock.Redis) *fairlocktest.Client {
	t.Helper()
	link := s.Link()
	options := *link.Redis().Options()
	change(&options)
	rdb := redis.NewClient(&options)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	used := fairlock.Redis(rdb)
	for _, w := range wrap {
		used = w(rdb)
	}
	c, err := fairlock.New(used, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		link.Cut()
		c.Close()
		rdb.Close()
	})
	return &fairlocktest.Client{Client: c, Redis: rdb, Link: link}
}

// pass lets time pass, and returns when everything has happened that happens until then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// acquire is one way to acquire a lock.
type acquire = func(context.Context) (*fairlock.Lease, error)

// acquisition is an acquire under way.
type acquisition struct {
	done  chan struct{} // closed when it has returned; it guards the rest
	lease *fairlock.Lease
	err   error
	at    time.Time // when it returned
}

// hang is how long a test waits for a lock that it does not get, before it fails.
const hang = 10 * time.Minute

// begin calls an acquire, and returns when it has returned or waits.
func begin(ctx context.Context, a acquire) *acquisition {
	q := &acquisition{done: make(chan struct{})}
	go func() {
		defer close(q.done)
		ctx, cancel := context.WithTimeout(ctx, hang)
		defer cancel()
		q.lease, q.err = a(ctx)
		q.at = time.Now()
	}()
	synctest.Wait()
	return q
}

// pending reports whether it waits. The caller has waited until everything is idle.
func (q *acquisition) pending() bool {
	select {
	case <-q.done:
		return false
	default:
		return true
	}
}

// granted waits for the lease.
func (q *acquisition) granted(t *testing.T) *fairlock.Lease {
	t.Helper()
	<-q.done
	require.NoError(t, q.err)
	return q.lease
}

// hold acquires a lock that is free.
func hold(t *testing.T, a acquire) *fairlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	lease, err := a(ctx)
	require.NoError(t, err)
	return lease
}

// leaseIn returns the lease that ctx carries; nil if it carries none.
func leaseIn(ctx context.Context) *fairlock.Lease {
	lease, _ := fairlock.LeaseFromContext(ctx)
	return lease
}

func unlock(t *testing.T, l *fairlock.Lease) {
	t.Helper()
	require.NoError(t, l.Unlock(t.Context()))
	synctest.Wait()
}

// contended is the name of the lock of listen.
const contended = "contended before"

// listen has the subscription of a client come up, by a contention.
func listen(t *testing.T, c *fairlocktest.Client) {
	t.Helper()
	m := c.Mutex(contended)
	first := hold(t, m.Lock)
	second := begin(t.Context(), m.Lock)
	unlock(t, first)
	unlock(t, second.granted(t))
}

// permits is Semaphore.Acquire for n permits.
func permits(s fairlock.Semaphore, n int) acquire {
	return func(ctx context.Context) (*fairlock.Lease, error) { return s.Acquire(ctx, n) }
}

func nothing(context.Context) error { return nil }

// methods are those of a lock or a lease that get a ctx and return an error. Each gets these arguments by their types.
func methods(of any, args ...any) map[string]func(context.Context) error {
	all, v := map[string]func(context.Context) error{}, reflect.ValueOf(of)
	for i := range v.NumMethod() {
		method, f := v.Method(i), v.Method(i).Type()
		if f.NumIn() == 0 || f.In(0) != reflect.TypeFor[context.Context]() ||
			f.Out(f.NumOut()-1) != reflect.TypeFor[error]() {
			continue
		}
		all[v.Type().Method(i).Name] = func(ctx context.Context) error {
			in := []reflect.Value{reflect.ValueOf(ctx)}
			for i := 1; i < f.NumIn(); i++ {
				n := slices.IndexFunc(args, func(arg any) bool { return reflect.TypeOf(arg) == f.In(i) })
				in = append(in, reflect.ValueOf(args[n]))
			}
			out := method.Call(in)
			err, _ := reflect.TypeAssert[error](out[len(out)-1])
			return err
		}
	}
	return all
}

type callers struct{} // key of a value in a caller's ctx

// recorder is a hook of a go-redis client that records what is sent, but for what go-redis sends when it connects.
type recorder struct {
	before  func(n int, cmd redis.Cmder) error // called before the n-th command is sent, from 0; may be nil
	dialled func()                             // called before it connects; may be nil
	after   func(cmd redis.Cmder)              // called when a script that was sent alone has its reply; may be nil

	mu  sync.Mutex
	all []string // guarded by mu: verbs
}

// record has a client's requests recorded from now on. The client has sent none so far.
func record(c *fairlocktest.Client) *recorder {
	r := &recorder{}
	c.Redis.AddHook(r)
	return r
}

// requests returns what has been sent.
func (r *recorder) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

func (r *recorder) note(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		if cmd.Name() == "hello" || cmd.Name() == "client" {
			continue
		}
		r.mu.Lock()
		n := len(r.all)
		r.all = append(r.all, verbOf(cmd))
		r.mu.Unlock()
		if r.before != nil {
			if err := r.before(n, cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

// logged is what a client logs, with times.
type logged struct {
	mu    sync.Mutex
	lines []string // guarded by the slog.Handler; read it when everything is idle
	at    []time.Time
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.at = append(l.lines, string(line)), append(l.at, time.Now())
	return len(line), nil
}

// sofar returns the lines so far, while more may come.
func (l *logged) sofar() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// tracing returns a Trace whose callbacks all call note with their names.
func tracing(note func(name string, info any)) *fairlock.Trace {
	var trace fairlock.Trace
	callbacks := reflect.ValueOf(&trace).Elem()
	for i := range callbacks.NumField() {
		callbacks.Field(i).Set(reflect.MakeFunc(callbacks.Field(i).Type(), func(in []reflect.Value) []reflect.Value {
			note(callbacks.Type().Field(i).Name, in[0].Interface())
			return nil
		}))
	}
	return &trace
}

// verbOf tells which script a command runs. It is the name of another command.
func verbOf(cmd redis.Cmder) string {
	if cmd.Name() != "evalsha" {
		return cmd.Name()
	}
	return script.Sources()[cmd.Args()[1].(string)].Verb
}

// refusal is an error that Redis has replied.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

const (
	readOnly = "READONLY You can't write against a read only replica."
	misconf  = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
)

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if r.dialled != nil {
			r.dialled()
		}
		return next(ctx, network, addr)
	}
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := r.note(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		if r.after != nil && cmd.Name() == "evalsha" {
			r.after(cmd)
			if cmd.Err() != nil { // it is not set yet if the connection failed
				err = cmd.Err()
			}
		}
		return err
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := r.note(cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// operator changes the locks of a server.
func operator(s *fairlocktest.Server) *admin.Client { return admin.New(s.Link().Redis(), "") }
