package fairlock

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/call"
)

// errorTypes are the types of errors that ErrorType knows by their values. An error can be several of them: the first
// counts. So a lease that is lost is "unreachable", whatever error of Redis comes with it, and a caller whose ctx was
// canceled because another Client was closed is "canceled".
var errorTypes = []struct {
	err  error
	name string
}{
	{ErrInvalid, "invalid"},
	{ErrReentrant, "reentrant"},
	{ErrBusy, "busy"},
	{ErrQueueFull, "queue_full"},
	{ErrRefused, "refused"},
	{ErrWaitTimeout, "wait_timeout"},
	{ErrExpired, "expired"},
	{ErrRevoked, "revoked"},
	{ErrUnreachable, "unreachable"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{context.Canceled, "canceled"},
	{ErrClosed, "closed"},
	{ErrDetached, "detached"},
	{ErrUnlocked, "unlocked"},
}

// ErrorType returns a short name of an error of this package, for a label of a metric: "invalid", "reentrant", "busy",
// "queue_full", "wait_timeout", "refused", "expired", "revoked", "unreachable", "deadline_exceeded", "canceled",
// "closed", "detached", "unlocked", "capacity", "broken" for another error of Redis, "_OTHER", and "" for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	if call.Passes(err) { // of one request, as of a renewal, which others follow
		return "unreachable"
	}
	var capacity *CapacityError
	var reply redis.Error
	switch {
	case errors.As(err, &capacity):
		return "capacity"
	case errors.As(err, &reply):
		return "broken"
	default:
		return "_OTHER"
	}
}
