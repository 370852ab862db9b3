package lua

import (
	"errors"
	"regexp"

	"github.com/redis/go-redis/v9"
)

// ErrReply is wrapped by the error for a reply that no script of ours gives.
var ErrReply = errors.New("unexpected reply")

// ErrNumber means that the key of a lock's numbers has a content that is not ours, or a number above 2^53 - 2^40: if nobody
// holds the lock and nobody waits, delete the key. Or a ticket is more than 407 days ahead. Nothing was written.
var ErrNumber = errors.New("bad number")

// Origin says where an error of a request comes from, and so whether the same request can succeed later.
type Origin int

// The origins of errors.
const (
	Verdict     Origin = iota // the same request fails again; also every error that is not of a request
	NoReply                   // the client has no reply from the server: the connection failed, or ctx ended
	Unavailable               // the server replied that it cannot run the script now
)

// OriginOf returns the origin of an error that a method of a Lock has returned.
func OriginOf(err error) Origin {
	var e *requestError
	if errors.As(err, &e) {
		return e.origin
	}
	return Verdict
}

// Aborted reports whether a script raised the error. What the script had written before stays: the lock may be granted,
// or the waiter queued. An error that is Unavailable was raised by the first write.
func Aborted(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && OriginOf(err) == Verdict && inScript.MatchString(reply.Error())
}

// inScript finds an error that a script raised, and its line there. Miniredis says that it could not compile the script.
var inScript = regexp.MustCompile(`user_script: ?(\d+)|Error compiling script`)

// requestError is an error of go-redis, with its origin.
type requestError struct {
	error
	origin Origin
}

func (e *requestError) Unwrap() error { return e.error }

// withOrigin marks an error that go-redis has returned for a request.
func withOrigin(err error) error {
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		if temporary.MatchString(reply.Error()) {
			return &requestError{err, Unavailable}
		}
	case !errors.Is(err, redis.ErrClosed):
		return &requestError{err, NoReply}
	}
	return err
}

// temporary are the errors of a server that starts, fails over, waits for its replicas or is busy. MISCONF is not among
// them: it lasts until the server's disk is repaired. Redis 6.2 and KeyDB wrap what a command replied to a script:
// "ERR Error running script (call to f_…): @user_script:12: @user_script: 12: -READONLY …".
var temporary = regexp.MustCompile(`^(ERR )?(Error running script .*@user_script: ?\d+: -?)?` +
	`((LOADING|READONLY|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|NOREPLICAS|BUSY|MOVED|ASK) |max number of clients)`)
