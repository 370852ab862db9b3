package call

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/errs"
)

// Origin says where an error of a request comes from, and so who tries again.
type Origin int

// The origins of errors.
const (
	Permanent   Origin = iota // the same request fails again; also every error that is not of a request
	NoReply                   // the client has no reply from the server: the connection failed, or ctx ended
	Unavailable               // the server replied that it cannot run the script now
	// any other reply of a server or a proxy: somebody has to do something. Such an error is an errs.Refused
	Refused
)

// OriginOf returns the origin that WithOrigin has marked an error with.
func OriginOf(err error) Origin {
	var e *requestError
	if errors.As(err, &e) {
		return e.origin
	}
	return Permanent
}

// Passes reports whether the same request can succeed without anybody doing something about it.
func Passes(err error) bool {
	o := OriginOf(err)
	return o == NoReply || o == Unavailable
}

// requestError is an error of go-redis, with its origin.
type requestError struct {
	error
	origin Origin
}

// Error names a refusal.
func (e *requestError) Error() string {
	if e.origin == Refused {
		return errs.Refused.Error() + ": " + e.error.Error()
	}
	return e.error.Error()
}

func (e *requestError) Is(target error) bool { return target == errs.Refused && e.origin == Refused }

func (e *requestError) Unwrap() error { return e.error }

// WithOrigin marks an error that go-redis has returned for a request.
func WithOrigin(err error) error {
	origin := NoReply
	switch text := ReplyIn(err); {
	// redis.ErrClosed tells of the user's own Close: if a ClusterClient has removed the node that a request was under way
	// to, it sends the request to another one.
	case errors.Is(err, errCluster), errors.Is(err, redis.ErrClosed):
		return err
	case text == "": // there is no reply
	case temporary.MatchString(text):
		origin = Unavailable
	case refusal.MatchString(text) || !broken.MatchString(text):
		origin = Refused
	default:
		return err
	}
	return &requestError{err, origin}
}

// ReplyIn returns what the server replied, without what hooks have wrapped it in; "" if err has no reply of the server.
// What a Sentinel replies, and its nil, is none: it says so in the middle of a failover.
func ReplyIn(err error) string {
	if err == nil || errors.Is(err, redis.Nil) || strings.HasPrefix(err.Error(), "redis: all sentinels") {
		return ""
	}
	var reply redis.Error
	for errors.As(err, &reply) {
		err = errors.Unwrap(reply)
	}
	if reply == nil {
		return ""
	}
	return reply.Error()
}

// temporary are the errors of a server that starts, fails over, waits for its replicas, is busy, or cannot save its
// data to disk now (MISCONF). Redis 6.2 and KeyDB wrap what a command replied to a script: "ERR Error running script
// (call to f_…): @user_script:12: @user_script: 12: -READONLY …".
var temporary = regexp.MustCompile(`^(ERR )?(Error running script .*@user_script: ?\d+: -?)?` +
	`((LOADING|READONLY|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|NOREPLICAS|BUSY|MISCONF|MOVED|ASK) |max number of clients)`)

// refusal are the words of a server that is full, or whose user may not do that, in Redis 6.2 to 7.2, or Redis 7.4 and
// Valkey.
var refusal = regexp.MustCompile(`OOM|NOPERM|NOAUTH|WRONGPASS|can't run this command|ACL failure in script`)

// broken are errors that no administrator's doing ends: what a script raises by itself ("user_script" without an @
// before it), what no script may call, and a key that is somebody else's. Miniredis says that it could not compile the
// script.
var broken = regexp.MustCompile(`WRONGTYPE|(^|[^@])user_script: ?\d+: [^-@]|Error compiling script|` +
	`not allowed from script|command called from script`)

// errCluster is the error for a MOVED or an ASK, which a *redis.Client does not follow: these come again.
var errCluster = errors.New("the server is a node of a Redis Cluster, which needs a redis.ClusterClient")

// ErrNoReply stands for the error of a request that has no reply yet.
var ErrNoReply = errors.New("no reply yet")

// errPoolFull means that a request found no connection: all of the pool are in use.
var errPoolFull = errors.New("the connection pool of the Redis client is full")

// named names a full connection pool in the error of a request. One that has no reply yet may be waiting for a
// connection: go-redis says so only after its PoolTimeout, and tries again.
func (c *Calls) named(err error) error {
	full := strings.Contains(err.Error(), "connection pool timeout") // go-redis 9.7 does not export its error
	if errors.Is(err, ErrNoReply) && c.pool != nil {
		stats := c.pool.PoolStats()
		full = stats.IdleConns == 0 && int(stats.TotalConns) >= c.pool.Options().PoolSize
	}
	if full {
		return fmt.Errorf("%w: %w", errPoolFull, err)
	}
	return err
}

// OrEnded returns err, or the error of ctx if Redis has not replied because ctx has ended. It returns a Lost or a Tried
// as it is: they come with an error of Redis.
func OrEnded(ctx context.Context, err error) error {
	var tried *errs.Tried
	if ctx.Err() != nil && OriginOf(err) == NoReply && !errors.Is(err, errs.Lost) && !errors.As(err, &tried) {
		return errs.Ended(ctx)
	}
	return err
}

// Latest returns which of two failures, one after the other, to report: one that has no reply because ctx has ended
// says less than an earlier one. before may be nil.
func Latest(ctx context.Context, before, failure error) error {
	var abandoned *dispatch.AbandonedError
	// by go-redis, of an inline command
	cut := errors.As(failure, &abandoned) || ctx.Err() != nil && errors.Is(failure, ctx.Err())
	if before != nil && cut {
		return before
	}
	return failure
}
