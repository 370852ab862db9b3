package leader

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// ErrRunning means that Run was called while another Run of the same Elector had not returned.
var ErrRunning = errors.New("leader: another Run of this Elector has not returned")

// retryAfter is the pause after a campaign that has failed.
const retryAfter = time.Second

// passing are the errors that may pass, so that a campaign follows another one.
var passing = []error{fairlock.ErrUnreachable, fairlock.ErrQueueFull, fairlock.ErrRefused}

// Config has the settings of an Elector. The zero value is ready to use.
type Config struct {
	// TTL is the length of the lease. If the leader crashes, the others wait until it ends. Default that of the Client.
	TTL time.Duration

	// Address is where the others reach this process while it leads, such as 10.0.0.3:8080. Leader returns it. At most 128
	// bytes. Without one, Leader returns the Config.Name of the Client.
	Address string

	// Elected is called when this process begins to lead. The ctx is that of Run's function, which is called after
	// Elected, if the leadership has not ended by then. The lease has the fence. May be nil.
	Elected func(ctx context.Context, lease *fairlock.Lease)

	// Resigned is called once after each Elected, when Run's function has returned. The lock is released after
	// Resigned, so it delays the next leader. err is why the leadership has ended. It is an ErrLost or ErrClosed of
	// package fairlock, the cause of Run's ctx, or what Run's function has returned, nil after a panic. May be nil.
	Resigned func(err error)

	// Logger gets errors that Run does not return. Default slog.Default().
	Logger *slog.Logger
}

// Elector is a candidate for the leadership, in one process. It is safe for concurrent use.
type Elector struct {
	mutex    fairlock.Mutex
	clock    fairlock.Clock                                 // the client's
	read     func(context.Context) (script.Snapshot, error) // reads the lock, with its holder
	elected  func(context.Context, *fairlock.Lease)
	resigned func(error)
	log      *slog.Logger

	running atomic.Bool
	lease   atomic.Pointer[fairlock.Lease] // of the present term, or nil
}

// New returns an Elector for the Mutex of client with that name. The leader holds it. New does no I/O. If name, TTL or
// Address is out of its bounds, Run and Leader return an ErrInvalid.
func New(client *fairlock.Client, name string, cfg Config) *Elector {
	e := &Elector{elected: cfg.Elected, resigned: cfg.Resigned, log: cmp.Or(cfg.Logger, slog.Default())}
	options := []fairlock.HoldOption{leading{fairlock.WithMaxOutage(0), e, cfg.Address}} // it keeps its ticket
	if cfg.TTL != 0 {
		options = append(options, fairlock.WithTTL(cfg.TTL))
	}
	e.mutex = client.Mutex(name, options...)
	if e.elected == nil {
		e.elected = func(context.Context, *fairlock.Lease) {}
	}
	if e.resigned == nil {
		e.resigned = func(error) {}
	}
	return e
}

// leading is an option that marks the tokens of an Elector. By it, the Elector gets the Clock of its client and a
// function that reads its lock.
type leading struct {
	fairlock.HoldOption

	elector *Elector
	address string
}

// Inside is called by package fairlock.
func (l leading) Inside(clock fairlock.Clock, read func(context.Context) (script.Snapshot, error)) (flags tokens.Flags,
	address string) {
	l.elector.clock, l.elector.read = clock, read
	return tokens.Leader, l.address
}

// Run campaigns until this process leads, and calls f in the same goroutine. The ctx of f ends with the leadership or
// with ctx, and f should return then. Run waits for f. fairlock.LeaseFromContext returns the lease, for its fence. If
// the leadership is lost, Run logs f's error and campaigns again, behind the candidates that already wait.
//
// If f returns while this process leads, Run resigns and returns f's error. If ctx ends, Run resigns once f has
// returned, and returns context.Cause(ctx). Run resigns by a release of the lock, so the next candidate leads at once.
// If that fails, the error is joined, as by Mutex.Do. If f panics, Run resigns, and the panic goes on.
//
// A campaign waits through an outage of Redis. If it fails with ErrQueueFull or ErrRefused, or because no server has
// ever answered, Run tries again after 1 s. It logs the first failure. So Run does not return if the password is wrong
// or a right is missing. To stop the program then, call Client.Ping first. Run returns every other error of Mutex.Lock,
// such as ErrInvalid and ErrClosed. It returns ErrRunning if another Run has not returned, and can be called again
// after that.
func (e *Elector) Run(ctx context.Context, f func(ctx context.Context) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer e.running.Store(false)
	for {
		lease, err := e.campaign(ctx)
		if err != nil {
			return err
		}
		if done, err := e.lead(ctx, lease, f); done {
			return err
		}
	}
}

// campaign waits until the lock is granted, ctx ends, or Lock returns an error that would come again.
func (e *Elector) campaign(ctx context.Context) (*fairlock.Lease, error) {
	for failed := false; ; failed = true {
		lease, err := e.mutex.Lock(ctx)
		switch {
		case err == nil:
			return lease, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) }):
			return nil, err
		case !failed:
			e.log.WarnContext(ctx, "campaign failed; others follow", "err", err)
		}
		e.pause(ctx)
	}
}

// pause returns after retryAfter, or when ctx ends.
func (e *Elector) pause(ctx context.Context) {
	over := make(chan struct{})
	timer := e.clock.AfterFunc(retryAfter, func() { close(over) })
	defer timer.Stop()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// lead runs one term: it runs f under the lease, and resigns. It reports false if the leadership was lost.
func (e *Elector) lead(ctx context.Context, lease *fairlock.Lease, f func(context.Context) error) (done bool,
	err error) {
	defer func() { // also after a panic; the last step, because the next leader may begin now
		if failed := lease.Unlock(ctx); done && failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	term, cancel := lease.Context(ctx)
	var why error
	e.lease.Store(lease)
	defer func() {
		e.lease.Store(nil)
		cancel()
		e.resigned(why)
	}()

	e.elected(term, lease)
	if lease.Err() == nil && ctx.Err() == nil { // Elected may have taken its time
		err = f(term)
	}
	if why = cmp.Or(lease.Err(), context.Cause(ctx)); why == nil {
		why = err
		return true, err
	}
	cancel()
	if err != nil && !errors.Is(err, why) && !errors.Is(err, term.Err()) { // more than that its ctx has ended
		e.log.WarnContext(ctx, "the leader's function failed after its leadership had ended", "lock", lease.Name(), "err",
			err)
	}
	return ctx.Err() != nil, context.Cause(ctx)
}

// Lease returns the lease under which this process leads, or nil if it does not lead. It does no I/O. It looks at the
// clock, so a process that was paused finds at once that its leadership has ended. Do not call Unlock or Detach of the
// lease, because another process would lead while f still runs. To resign, let f return.
func (e *Elector) Lease() *fairlock.Lease {
	if l := e.lease.Load(); l != nil && l.Err() == nil {
		return l
	}
	return nil
}

// Leader returns the current leader, and since when it leads by Redis's clock. It works in any process. The address is
// Config.Address of the leader's Elector, or the Config.Name of its client if that is empty. It is "" without a leader,
// even if a call of Mutex.Lock holds the lock. A leader that has crashed is named until its TTL ends. ctx bounds the
// request, 3 s at most. After Client.Close it returns ErrClosed, and ErrUnreachable if Redis does not serve it.
func (e *Elector) Leader(ctx context.Context) (address string, since time.Time, err error) {
	s, err := e.read(ctx)
	if err != nil || len(s.Holders) == 0 {
		return "", time.Time{}, err
	}
	h := s.Holders[0]
	t, _ := token.Parse(h.Token)
	if t.Terms().Flags&tokens.Leader == 0 { // the holder does not lead, or is another program
		return "", time.Time{}, nil
	}
	elected := time.UnixMicro(int64(h.Fence)) // its fence is the time of the grant, unless Redis's clock has stepped back
	if elected.After(s.Now) {
		elected = s.Now
	}
	return cmp.Or(t.Terms().Address, t.Client()), elected, nil
}
