package fairlock

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/tokens"
)

// Config has the settings of a Client. The zero value is ready to use. Times are at most a year.
type Config struct {
	// Namespace is the prefix of all keys, by default "fairlock". It has at most 256 bytes, no braces, no control
	// characters, no characters that only format text, and no space at its beginning or end.
	Namespace string
	// Name is this client's readable id, 1 to 128 bytes of printable ASCII without spaces, by default
	// "<host>-<pid>-<random>". Clients with one Name each receive all messages of that Name, and cannot be told apart in
	// logs and on screens. Where the others reach a leader is leader.Config.Address.
	Name string
	// TTL is the length of a lease. If a holder crashes, the others wait until its lease ends. Default 10 s, least 10 ms.
	TTL time.Duration
	// WaiterTTL is how long a waiter keeps its ticket without a heartbeat. Crashed waiters delay the others by up to
	// WaiterTTL. It should be at least 3 s plus five round trips and the longest pause of a client. Default 6 s, at
	// least 3 s.
	WaiterTTL time.Duration
	// FenceTTL is how long Redis keeps the last number of an unused lock, in about 200 bytes. It should be longer than any
	// step back of Redis's clock. Default 10 min, at least 10 s.
	FenceTTL time.Duration
	// MaxWaiters is how many may wait for one lock. A further call of Lock returns ErrQueueFull. 0 means any number.
	MaxWaiters int
	// MaxOutage is how long Lock, RLock, Acquire, Do and their Try forms wait while Redis serves no waiter of the lock.
	// A queued call leaves then. The error is ErrUnreachable, or ErrRefused if the latest request was refused. It
	// counts from the call's beginning or the latest reply, even while this process stands still. One lost request can
	// look like an outage of ReadTimeout and 2 s: New warns of less. For less, call a Try with a ctx that ends. At
	// least 3 s. 0 means 3 s for a Try, 10 s while no server has ever answered the client, and no limit otherwise.
	MaxOutage time.Duration
	// Logger gets lost leases, lost notifications, and the beginning and end of outages. Default slog.Default().
	Logger *slog.Logger
	// Trace has callbacks for events.
	Trace *Trace
	// Clock measures leases, and times heartbeats, retries and timeouts. Default the system's clock, which go-redis's own
	// timeouts use in any case.
	Clock Clock
}

// withDefaults returns a copy in which each zero field has its default.
func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, bounds.DefaultNamespace)
	c.Name = cmp.Or(c.Name, defaultName())
	c.TTL = cmp.Or(c.TTL, bounds.DefaultTTL)
	c.WaiterTTL = cmp.Or(c.WaiterTTL, bounds.DefaultWaiterTTL)
	c.FenceTTL = cmp.Or(c.FenceTTL, bounds.DefaultFenceTTL)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Trace = cmp.Or(c.Trace, &Trace{})
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	return c
}

// check returns an error that names every field that is out of its bounds. The defaults are set already.
func (c Config) check() error {
	namespace := bounds.WrongNamespace(c.Namespace)
	return errors.Join(
		require(namespace == "", "Namespace", "%s", namespace),
		require(tokens.CheckClient(c.Name) == nil, "Name", "%.40q, must be 1 to %d bytes of printable ASCII without spaces",
			c.Name, bounds.MaxClient),
		checkDuration("TTL", c.TTL, bounds.MinTTL),
		checkDuration("WaiterTTL", c.WaiterTTL, bounds.MinWaiterTTL),
		checkDuration("FenceTTL", c.FenceTTL, bounds.MinFenceTTL),
		checkMaxWaiters(c.MaxWaiters),
		checkMaxOutage(c.MaxOutage),
	)
}

// require returns nil if ok. Otherwise it returns a *FieldError, whose text says what is wrong with the field, and its
// bounds.
func require(ok bool, field, format string, args ...any) error {
	if ok {
		return nil
	}
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

func checkDuration(field string, d, least time.Duration) error {
	return require(d >= least && d <= bounds.MaxTTL, field, "%v, must be from %v to %v (a year)", d, least, bounds.MaxTTL)
}

func checkMaxOutage(d time.Duration) error {
	return require(d == 0 || d >= bounds.MinMaxOutage && d <= bounds.MaxTTL, "MaxOutage",
		"%v, must be 0 (the default) or from %v to %v (a year)", d, bounds.MinMaxOutage, bounds.MaxTTL)
}

func checkMaxWaiters(n int) error {
	return require(n >= 0, "MaxWaiters", "%d, must not be negative (0: any number)", n)
}

// defaultName returns the names of host and process, and a few random bits, so that two clients of one process differ.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, host)
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%.63s-%d-%s", host, os.Getpid(), base64.RawURLEncoding.EncodeToString(random[:]))
}

// Clock is a client's only source of time, safe for concurrent use. Package fairlocktest has some for tests.
type Clock interface {
	// Now returns the current time. It must not run backwards, because leases are measured by it.
	Now() time.Time
	// AfterFunc calls f once d has passed, without holding a mutex. f may block, and may use the Clock. Stop reports
	// whether it has prevented the call, and does not wait for one that has begun.
	AfterFunc(d time.Duration, f func()) interface{ Stop() bool }
}
