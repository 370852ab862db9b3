// Package wait takes an acquisition from its first request until it is granted the lock, or has left the queue.
//
// A client has one Waiters. It knows each of its waiters before that sends its first request, because the grant may
// arrive before the reply. For each lock it sends one heartbeat for all local waiters, and one request at a time for
// those that leave. One subscription for all locks receives the notifications of handoffs.
//
// A Waiter only tells what has happened. Its caller begins the lease and makes the errors that users see.
package wait
