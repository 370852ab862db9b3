package fairlock

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/lua"
	"github.com/fairlock/fairlock-go/token"
)

// Defaults and bounds.
const (
	DefaultTTL       = 10 * time.Second
	DefaultWaiterTTL = 6 * time.Second
	MinTTL           = 10 * time.Millisecond // of TTL and WaiterTTL
	MaxTTL           = 365 * 24 * time.Hour  // of TTL and WaiterTTL
	MaxName          = 1024                  // bytes of a lock's name
	MaxNamespace     = 256                   // bytes
)

// Clock tells the library the time; it knows it from nowhere else. The system's is the default. A test may take one of
// package fairlocktest, or bring its own: a type with the methods
//
//	Now() time.Time
//	AfterFunc(d time.Duration, f func()) fairlock.Timer
//
// Now never runs backwards. AfterFunc calls f once d has passed, holding no lock, for f may block and may use the
// Clock. Both are safe for concurrent use.
type Clock = clock.Clock

// Timer is one pending call of Clock.AfterFunc. Its one method, Stop() bool, prevents the call and reports whether it
// was in time to do so.
type Timer = clock.Timer

// Config is what is set once for a Client. The zero value is ready to use.
type Config struct {
	// Namespace is the prefix of all keys: locks in two namespaces have nothing in common. It has no braces, which
	// would move the keys' hash tag. Default "fairlock".
	Namespace string

	// Name is this client's readable id. It stands in front of every token, so that a person in redis-cli sees who
	// holds and who waits, and it names the channel on which the client is woken. Two clients may share one, at the
	// cost of reading each other's wake-ups. Default "<host>-<pid>-<random>". 1 to 128 bytes of printable ASCII
	// without spaces.
	Name string

	// TTL is a lease's length. It is renewed at a third of it for as long as it is held; a holder that crashes
	// keeps the others waiting for the rest of it. Default 10 s, from 10 ms to a year.
	TTL time.Duration

	// WaiterTTL is a waiter's patience: how long it keeps its place in the queue when it is silent. A crashed
	// waiter at the head costs the others up to so much. Default 6 s, from 10 ms to a year.
	WaiterTTL time.Duration

	// MaxWaiters is how many may wait for one lock; one more gets ErrQueueFull. 0 means any number.
	MaxWaiters int

	// NoRenewal leaves renewing to Lease.Renew: a lease ends after its TTL, even if its holder is well.
	NoRenewal bool

	// Logger gets what an operator should know: leases lost, wake-ups lost, Redis out of reach. Default: silent.
	Logger *slog.Logger

	// Trace gets called back as things happen.
	Trace *Trace

	// Clock is the time that everything goes by here: leases, beats, retries, limits. (go-redis's own timeouts go by
	// that of its connections, which is the system's.) With another one than the system's, calls are somewhat slower.
	// Default: the system's.
	Clock Clock
}

// withDefaults fills in what is left zero.
func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = lua.DefaultNamespace
	}
	if c.Name == "" {
		c.Name = defaultName()
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.WaiterTTL == 0 {
		c.WaiterTTL = DefaultWaiterTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Trace == nil {
		c.Trace = &Trace{}
	}
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	return c
}

// check returns every fault of a configuration that has its defaults.
func (c Config) check() error {
	return errors.Join(
		checkNamespace(c.Namespace),
		checkClientName(c.Name),
		checkTTL("TTL", c.TTL),
		checkTTL("WaiterTTL", c.WaiterTTL),
		checkMaxWaiters(c.MaxWaiters),
	)
}

func checkNamespace(ns string) error {
	if len(ns) > MaxNamespace {
		return &FieldError{"Namespace", fmt.Sprintf("%d bytes, at most %d", len(ns), MaxNamespace)}
	}
	if strings.ContainsAny(ns, "{}") {
		return &FieldError{"Namespace", "must not contain braces, which would move the keys' hash tag"}
	}
	return nil
}

func checkClientName(name string) error {
	if err := token.CheckClient(name); err != nil {
		return &FieldError{"Name", fmt.Sprintf("%.40q, must be 1 to %d bytes of printable ASCII without spaces", name, token.MaxClient)}
	}
	return nil
}

func checkTTL(field string, d time.Duration) error {
	if d < MinTTL || d > MaxTTL {
		return &FieldError{field, fmt.Sprintf("%v, must be from %v to %v (a year)", d, MinTTL, MaxTTL)}
	}
	return nil
}

func checkMaxWaiters(n int) error {
	if n < 0 {
		return &FieldError{"MaxWaiters", fmt.Sprintf("%d, must not be negative (0: any number)", n)}
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > MaxName {
		return &FieldError{"name", fmt.Sprintf("%d bytes, must be from 1 to %d", len(name), MaxName)}
	}
	return nil
}

// defaultName is the host, the process and a few random bits: two clients of one process differ.
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
