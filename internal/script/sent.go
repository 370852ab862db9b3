package script

import (
	"encoding"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// sentText is an argument that counts how often it is written to a connection. go-redis resends a command whose reply
// was lost, and does not tell; but it marshals the arguments each time.
type sentText struct {
	text  string
	count atomic.Int32
}

var _ encoding.BinaryMarshaler = (*sentText)(nil)

// MarshalBinary returns the text, and counts.
func (t *sentText) MarshalBinary() ([]byte, error) {
	t.count.Add(1)
	return []byte(t.text), nil
}

// String returns the text, for a hook or a log that prints the command.
func (t *sentText) String() string { return t.text }

// ambiguous reports whether a copy of the request may have run without the caller's knowledge, or may still run: more
// than one was written, or there is no reply that can be relied on. The count alone does not tell: a request may be
// written after the method that sends it has returned, unless its error has a method Sent that says it will not.
func (t *sentText) ambiguous(err error) bool {
	written := t.count.Load()
	if err == nil {
		return written > 1
	}
	var unsent interface{ Sent() bool }
	var reply redis.Error
	switch {
	case errors.As(err, &unsent) && !unsent.Sent():
		return written > 0
	case errors.As(err, &reply) && !errors.Is(err, ErrReply):
		return written > 1
	default:
		return true
	}
}
