package dispatch

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is the text of a script, and its hash in Redis.
type Script struct{ Text, Hash string }

// NewScript returns the Script with that text.
func NewScript(text string) Script {
	sum := sha1.Sum([]byte(text))
	return Script{text, hex.EncodeToString(sum[:])}
}

// Request is a script with its keys and arguments.
type Request struct {
	Lock       string // the name of its lock; "": none
	Script     Script
	Keys       []string
	Args       []any
	ReadOnly   bool // sent by EVALSHA_RO, so that Redis lets it read only, and a user needs no right to write
	Urgent     bool // does not wait behind requests that are not urgent
	Repeatable bool // sent again on another connection while it has no reply

	byText bool // sent by EVAL
}

// call calls the method of go-redis that sends the request.
func (r *Request) call(ctx context.Context, rdb Evaler) *redis.Cmd {
	switch {
	case r.ReadOnly && r.byText:
		return rdb.EvalRO(ctx, r.Script.Text, r.Keys, r.Args...)
	case r.ReadOnly:
		return rdb.EvalShaRO(ctx, r.Script.Hash, r.Keys, r.Args...)
	case r.byText:
		return rdb.Eval(ctx, r.Script.Text, r.Keys, r.Args...)
	default:
		return rdb.EvalSha(ctx, r.Script.Hash, r.Keys, r.Args...)
	}
}

// written adds n to the count of each argument that has one.
func (r *Request) written(n int32) {
	for _, a := range r.Args {
		if c, ok := a.(*Counted); ok {
			c.written.Add(n)
		}
	}
}

// Evaler is the part of a go-redis client that sends scripts.
type Evaler interface {
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
	EvalRO(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalShaRO(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
}

// Direct sends requests on their callers' goroutines, each once. Only go-redis interrupts them.
type Direct struct {
	rdb   Evaler
	evals evals
}

// NewDirect returns a Direct on rdb.
func NewDirect(rdb Evaler) *Direct { return &Direct{rdb: rdb} }

// Send sends a request and returns Redis's reply.
func (d *Direct) Send(ctx context.Context, r Request) (any, error) {
	return d.evals.send(r, func(r Request) (any, error) { return r.call(ctx, d.rdb).Result() })
}

// Counted is an argument that counts how often it is written to a connection. A command whose reply was lost is sent
// again by go-redis, which does not report it, but marshals the arguments each time.
type Counted struct {
	text    string
	written atomic.Int32
}

// Count returns a Counted with that text.
func Count(text string) *Counted { return &Counted{text: text} }

// MarshalBinary returns the text and counts the call.
func (c *Counted) MarshalBinary() ([]byte, error) {
	c.written.Add(1)
	return []byte(c.text), nil
}

// String returns the text, for a hook or a log that prints the command.
func (c *Counted) String() string { return c.text }

// Ambiguous reports whether a request that has ended with err may have run unnoticed, or may still run. That is so if
// it was written more than once, or its reply is missing. The count alone does not tell, because a request may be
// written after Send has returned, unless its error says that it was not sent.
func (c *Counted) Ambiguous(err error) bool {
	var abandoned *AbandonedError
	var reply redis.Error
	switch written := c.written.Load(); {
	case err == nil, errors.As(err, &reply) && !errors.Is(err, redis.Nil):
		return written > 1
	case errors.As(err, &abandoned) && !abandoned.sent:
		return written > 0
	default:
		return true
	}
}

// AbandonedError is the error of a request whose ctx ended before Redis had replied. Its text does not mention ctx,
// because that may be internal, for example one that ends with MaxWait. It does not wrap the cause of that ctx, which
// may be any error, even a reply of Redis to another request.
type AbandonedError struct {
	Over <-chan struct{} // closed when the request has ended; until then Redis may still execute it
	sent bool
	Why  error // no connection can be made for that reason; nil: it is not known
}

// Error says that there is no reply, and why.
func (e *AbandonedError) Error() string {
	if e.Why != nil {
		return "Redis did not reply: " + e.Why.Error()
	}
	return "Redis did not reply"
}

// ErrClosed is the error of a request after Close.
var ErrClosed = errors.New("dispatcher is closed")

// ErrNoReply stands for the error of a request that has no reply yet.
var ErrNoReply = errors.New("no reply yet")

// ErrCluster is added to MOVED and ASK replies to a *redis.Client, which does not follow them. A retry gets the same
// reply.
var ErrCluster = errors.New("the server is a node of a Redis Cluster, which needs a redis.ClusterClient")

// errEnded is the error of a request whose sender has ended, because a hook of the user's client has called
// runtime.Goexit.
var errEnded = errors.New("a hook of the Redis client has ended the goroutine")

// ReplyIn returns the error that the server replied, without what hooks have wrapped it in, or "" if err has no reply
// of the server. A reply of a Sentinel does not count, not even its nil in a failover.
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

// answered reports whether Redis has replied.
func answered(err error) bool {
	var reply redis.Error
	return err == nil || errors.As(err, &reply)
}
