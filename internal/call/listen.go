package call

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// confirmation is how long to wait for the confirmation of a subscription. The connection may be half-open.
	confirmation = 5 * time.Second
	// silence is the time without a message after which the connection is pinged, and then replaced. A half-open
	// connection shows no error for minutes.
	silence = 3 * time.Second
)

// Subscriber is the part of a go-redis client that Listen needs.
type Subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Listen subscribes to the last of some channels. It calls up when Redis has confirmed that, and then message for each
// message, until the connection breaks or ctx ends. In the second case the error is the cause of ctx. go-redis would
// resubscribe by itself, but would not report that the subscription was down. The error has an origin, as that of a
// request.
//
// The first channel says which node of a Cluster the connection is to: go-redis takes the master of its slot. Any node
// will do, because a PUBLISH reaches all of them.
func Listen(ctx context.Context, rdb Subscriber, channels []string, up func(), message func(string)) error {
	return WithOrigin(listen(ctx, rdb, channels, up, message))
}

func listen(ctx context.Context, rdb Subscriber, channels []string, up func(), message func(string)) error {
	pubsub := rdb.Subscribe(ctx)
	for _, channel := range channels {
		if err := pubsub.Subscribe(ctx, channel); err != nil {
			_ = pubsub.Close()
			return err
		}
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { // ends ReceiveTimeout
		defer close(closed)
		_ = pubsub.Close()
	})
	defer func() {
		if stop() {
			_ = pubsub.Close()
		} else {
			<-closed
		}
	}()
	// Before it returns an error, go-redis connects again, unless its ctx has ended.
	over, end := context.WithCancel(ctx)
	end()
	for timeout, pinged := confirmation, true; ; timeout = silence {
		received, err := pubsub.ReceiveTimeout(over, timeout)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		var reply redis.Error
		if timeout == silence && pinged && errors.As(err, &reply) { // without +ping: the connection is alive
			pinged = false
			continue
		}
		var late net.Error
		if !pinged && errors.As(err, &late) && late.Timeout() {
			err = pubsub.Ping(over)
			pinged = true
		} else {
			pinged = false
		}
		if err != nil {
			return err
		}
		switch m := received.(type) {
		case *redis.Subscription:
			if m.Channel == channels[len(channels)-1] {
				up()
			}
		case *redis.Message:
			message(m.Payload)
		}
	}
}
