// Package limithttp limits the requests of an HTTP handler by a semaphore that all replicas share. Examples are an
// endpoint that starts a hundred calls a second, a gateway with five open streams, and two uploads at once for each
// tenant.
//
//	limit := client.KeyedSemaphore("partner", 100, fairlock.WithMinHold(time.Second), fairlock.WithKeyLimit(20))
//	handler := limithttp.Handler(next, limithttp.Config{
//		StartsOnly: true,
//		Limit: func(r *http.Request) (limithttp.Acquirer, int, error) {
//			return limit.Key(tenantOf(r), fairlock.WithMaxWaiters(200)), 1, nil
//		},
//	})
//
// Take the key from authentication, because a key that a caller can make up gets turns of its own.
//
// An HTTP/1.1 server notices that a client has gone away only when it has read the body of the request. So the handler
// reads up to Config.MaxBody of it before it waits. A request with a longer body stays queued after its client has gone
// away, until fairlock.WithMaxWait ends the wait. ReadTimeout and WriteTimeout of the http.Server run during the wait.
//
// For gRPC, call Acquire and Unlock in an interceptor: its ctx ends when the client goes away.
package limithttp
