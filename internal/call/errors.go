package call

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/errs"
)

// Origin says where an error of a request comes from, and so whether a retry can help.
type Origin int

// The origins of errors.
const (
	Permanent   Origin = iota // the same request fails again; also every error that is not of a request
	NoReply                   // the client has no reply from the server: the connection failed, or ctx ended
	Unavailable               // the server replied that it cannot run the script now
	// Refused is any other error reply of a server or a proxy: an administrator must act. Such an error is an
	// errs.Refused.
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

// Passes reports whether the same request can succeed later without an administrator.
func Passes(err error) bool {
	o := OriginOf(err)
	return o == NoReply || o == Unavailable
}

// requestError is an error of go-redis, with its origin.
type requestError struct {
	error
	origin Origin
}

// Error adds that Redis has refused the request.
func (e *requestError) Error() string {
	if e.origin == Refused {
		return errs.Refused.Error() + ": " + e.error.Error()
	}
	return e.error.Error()
}

func (e *requestError) Is(target error) bool { return target == errs.Refused && e.origin == Refused }

func (e *requestError) Unwrap() error { return e.error }

// Meaning is the meaning of an error that a server has replied.
type Meaning int

// The meanings.
const (
	Other      Meaning = iota // any other reply of a server or a proxy, for an administrator; also no reply
	Temporary                 // it cannot run the script now
	Forbidden                 // it is full, or its user may not do that
	ForeignKey                // another program has written a key
	BadNumber                 // number.lua does not understand the lock's number
	Broken                    // an administrator cannot fix it
)

// texts are the errors of Redis 6.2 and later, and of Valkey; the first that fits counts. Redis 6.2 and KeyDB wrap what
// a command replied to a script: "ERR Error running script (call to f_…): @user_script:12: @user_script: 12: -READONLY
// …".
var texts = []struct {
	meaning Meaning
	text    *regexp.Regexp
}{
	// The server starts, fails over, waits for its replicas, is busy, or cannot save its data to disk now (MISCONF).
	{Temporary, regexp.MustCompile(`^(ERR )?(Error running script .*@user_script: ?\d+: -?)?` +
		`((LOADING|READONLY|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|NOREPLICAS|BUSY|MISCONF|MOVED|ASK) |max number of clients)`)},
	{Forbidden, regexp.MustCompile(`OOM|NOPERM|can't run this command|ACL failure in script`)},
	{ForeignKey, regexp.MustCompile(`WRONGTYPE`)},
	{BadNumber, regexp.MustCompile(`the number (has layout|is damaged|is too far ahead)`)},
	// Errors that a script raises itself ("user_script" without an @ before it), and calls that no script may make. The
	// last text is miniredis's for a script that does not compile.
	{Broken, regexp.MustCompile(`(^|[^@])user_script: ?\d+: [^-@]|Error compiling script|` +
		`not allowed from script|command called from script`)},
}

var inScript = regexp.MustCompile(`user_script: ?\d+|Error compiling script`)

// MeaningOf returns the meaning of a server's error reply, and whether a script has raised it.
func MeaningOf(err error) (m Meaning, raised bool) {
	reply := dispatch.ReplyIn(err)
	if reply == "" {
		return Other, false
	}
	for _, t := range texts {
		if t.text.MatchString(reply) {
			m = t.meaning
			break
		}
	}
	return m, inScript.MatchString(reply)
}

// WithOrigin marks an error that go-redis has returned for a request.
func WithOrigin(err error) error {
	// redis.ErrClosed means that the user has closed the Redis client. A ClusterClient that has removed the node of a
	// request sends the request to another one.
	if errors.Is(err, dispatch.ErrCluster) || errors.Is(err, redis.ErrClosed) {
		return err
	}
	origin := NoReply
	if dispatch.ReplyIn(err) != "" {
		switch meaning, _ := MeaningOf(err); meaning {
		case Temporary:
			origin = Unavailable
		case Other, Forbidden:
			origin = Refused
		default:
			return err
		}
	}
	return &requestError{err, origin}
}

// ErrNoReply is the error of a request that has no reply yet.
var ErrNoReply = dispatch.ErrNoReply

// errPoolFull means that all connections of the pool are in use.
var errPoolFull = errors.New("the connection pool of the Redis client is full")

// named names a full connection pool in the error of a request. A request without a reply may be waiting for a
// connection. go-redis reports that only after its PoolTimeout, and retries.
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

// OrEnded returns err, or the error of ctx if Redis has not replied because ctx has ended. That says why no connection
// can be made. OrEnded does not change a Lost or a Tried, which come with an error of Redis.
func OrEnded(ctx context.Context, err error) error {
	var tried *errs.Tried
	if ctx.Err() == nil || OriginOf(err) != NoReply || errors.Is(err, errs.Lost) || errors.As(err, &tried) {
		return err
	}
	var abandoned *dispatch.AbandonedError
	if errors.As(err, &abandoned) && abandoned.Why != nil {
		return fmt.Errorf("%w: %v", errs.Ended(ctx), err) //nolint:errorlint // its timeout is not that of ctx
	}
	return errs.Ended(ctx)
}

// Latest returns the failure to report of two successive ones. If failure has no reply because ctx has ended, before
// says more. before may be nil.
func Latest(ctx context.Context, before, failure error) error {
	var abandoned *dispatch.AbandonedError
	// by go-redis, of an inline command; its connection may end first, at the deadline of ctx
	cut := ctx.Err() != nil && (errors.Is(failure, ctx.Err()) || errors.Is(failure, os.ErrDeadlineExceeded))
	if before != nil && (cut || errors.As(failure, &abandoned)) {
		return before
	}
	return failure
}
