// Package fairlock has strict-FIFO distributed locks on Redis: waiters are granted a lock in the order of their requests, across
// all processes.
//
// A [Client] makes locks on one Redis. [Mutex.Do] waits for the lock, runs a function while it holds the lock, and releases it.
// [Mutex.Lock] is for a lock that must be held beyond one function. It returns a [Lease], which is one holding of the lock. The
// lease is renewed in the background until [Lease.Unlock], which hands the lock to the next waiter. [Mutex.TryDo] and
// [Mutex.TryLock] do not wait.
//
// A [Semaphore] has as many holders as it has permits. An [RWMutex] has one writer or any number of readers. Everything said
// about a lock applies to both. Each holder has its own lease. Options such as [WithMinHold] and [WithMaxWait] give a lock
// settings of its own. Package leader elects one leader of many processes.
//
// # Promises
//
//   - Exclusion. While [Lease.Err] is nil, no other client holds the lock, or more permits than there are, or an RWMutex beside a
//     writer. Redis must keep its data, its clock must not step forward beyond the end of the lease, and nobody may take the lock
//     by force ([Mutex.ForceRelease]).
//   - Order. Waiters are granted the lock in the order in which Redis received their first requests. No request overtakes an
//     earlier one: TryLock fails while others wait, a request for one permit never passes one for three, no reader passes a
//     writer, and a holder that locks again queues behind all waiters. Lost messages, a stall, a restart of Redis that keeps its
//     data, and a step of its clock do not change the order. Several stalls or steps within WaiterTTL/3 can. So can a step
//     forward by more than 10 min, after which Redis has forgotten the queue. An outage of more than WaiterTTL/2, or TTL, can
//     cost one waiter a grant of which it has not heard.
//   - Fences. Each grant has a number that is greater than those of all earlier grants of the lock ([Lease.Fence]). That holds
//     after a loss of Redis's data too, unless its clock has stepped back, or a new primary's clock is behind the old one's by
//     more than the failover took.
//   - Early notice. [Lease.Done] closes before another client can be granted the lock, even if Redis hangs. After a step forward
//     of the server's clock beyond the end of the lease, Done closes at the next renewal.
//   - A crash costs a bounded time. A crashed holder blocks the lock for the rest of its TTL or minimum hold, whichever is
//     longer. Any number of crashed waiters block it for one WaiterTTL in all.
//   - Nothing stays behind. Every key expires, but for a number of permits that [Semaphore.Resize] has set. The lock's last
//     number stays for FenceTTL.
//
// Replication is asynchronous. After a failover to a replica that missed the last writes, or a restart that lost them (appendonly
// no, the default), two clients can hold the lock until the first one's next renewal, a third of TTL later at most. Redis must
// not evict the keys (maxmemory-policy noeviction). No lock protects a resource from a holder that was paused between its last
// look at the lease and its write. A resource that checks fences is safe from all of these.
//
// # Concurrency
//
// Everything here is safe for concurrent use. A lock is a value without state of its own: copies, and locks of the same name from
// other clients, are the same lock. Locks of two kinds have nothing in common, also if they have one name. A lease belongs to one
// call of Lock, and any goroutine may unlock it.
//
// Locks are not reentrant. A call of a Mutex or an RWMutex returns [ErrReentrant] if its ctx carries a lease of the lock, held
// through the same Client, for which it would wait. Otherwise locking twice deadlocks until ctx ends.
//
// Waiters wait in their callers' goroutines. From its first contention on, a client has one Pub/Sub connection, and sends one
// heartbeat per lock and second for its waiters. [Client.Close] waits for every goroutine that the client has started. Close the
// client before the Redis client.
//
// # Failure
//
// Errors are an [*Error] with the operation and the lock, around an error of this package, of ctx, or of Redis. Use [errors.Is]
// and [errors.As]. After an error from Lock the caller does not hold the lock, and the waiter leaves the queue as soon as Redis
// answers.
//
//   - ctx bounds waiting, and not the lease. When it ends, Lock returns within 100 ms, even if Redis hangs. With Do, ctx also
//     bounds the function.
//   - Outages. A waiter keeps its ticket through lost connections, failovers and restarts of Redis for as long as its ctx lasts.
//     A Lock whose first request fails goes on as well. If no server has ever answered the client, Lock gives up after 10 s,
//     because the address may be wrong. Calls that do not wait for the lock try for 3 s. The error is [ErrUnreachable].
//   - Refusals. Errors that a retry cannot cure are returned at once. Examples are missing rights, a key that another program has
//     written, a server out of memory, and a node of a Cluster behind a *redis.Client.
//   - Loss. The end of a lease shows in [Lease.Done], [Lease.Context] and [Lease.Err]. Work under a lease should watch one of
//     them. A loss is also logged.
//   - Bad input is an [ErrInvalid] that names the field and its bounds. Nothing has been sent.
//
// # Time
//
// Times in Redis are the server's. A lease here is measured by this process's monotonic clock, from just before the request was
// sent that granted or renewed it. Clocks of different machines are never compared. A lease is trusted for TTL minus a safety
// margin of TTL/100 + 2 ms, and renewed after about a third of TTL, so that two renewals may fail. A holder that was paused finds
// the end of its lease as soon as it looks. Tests control the time with testing/synctest, or with a [Clock] of their own.
//
// # The Redis client
//
// Set ContextTimeoutEnabled in the options of the go-redis client. It obeys the deadlines of its requests then, so a request that
// is alone needs no other goroutine, which saves half of its time on a fast network. In return, such a request notices an earlier
// cancellation only when Redis replies, after ReadTimeout, or at the deadline.
//
// A command that blocks, such as BLPOP, keeps a connection. If such commands keep all connections of the pool, no lease is
// renewed. Give locks a client of their own, or a PoolSize of at least two more than the commands that block at a time.
//
// Hooks see every request once. A request that is sent alone carries the values of its caller's ctx. On a *redis.Client, requests
// that coincide share a pipeline, which cannot carry them. Most hooks run in goroutines of the Client, where a panic ends the
// process.
//
// If the go-redis client has a method ReloadState(context.Context), as a *redis.ClusterClient does, the Client calls it at most
// once a second while a request has been in flight for over 500 ms, or has ended without a reply. So the locks of a dead master
// go on once another one has its slots. A *redis.Ring is refused, because its clients may disagree about the shard of a lock.
package fairlock
