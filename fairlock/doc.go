// Package fairlock provides distributed locks on Redis and Valkey that are granted in strict FIFO order, across all
// processes.
//
// A [Client] makes locks on one Redis. [Mutex.Do] waits for the lock, runs a function while it holds the lock, and
// releases it. [Mutex.Lock] is for a lock that is held beyond one function. It returns a [Lease], which is renewed in
// the background until [Lease.Unlock] hands the lock to the next waiter. [Mutex.TryDo] and [Mutex.TryLock] do not wait.
//
// A [Semaphore] has as many holders as it has permits, an [RWMutex] one writer or any number of readers. Everything
// said about a lock applies to both. Each holder has its own lease. A [KeyedSemaphore] shares its permits fairly
// between keys, such as tenants. Package leader elects one leader of many processes. Package admin looks at locks and
// intervenes.
//
// # Promises
//
//   - Exclusion. While [Lease.Err] is nil, no other client holds the lock, or more permits than there are, or an
//     RWMutex beside a writer.
//   - Order. Waiters are granted the lock in the order in which Redis received their first requests. No request
//     overtakes an earlier one. TryLock fails while others wait, a request for one permit never passes one for three,
//     and no reader passes a writer.
//   - Fences. Each grant has a number above those of all earlier grants ([Lease.Fence]).
//   - Early notice. [Lease.Done] closes before another client can be granted the lock, even if Redis hangs.
//   - A crash costs a bounded time. A crashed holder blocks the lock for the rest of its TTL or minimum hold, whichever
//     is longer. Any number of crashed waiters block it for one WaiterTTL in all.
//   - Nothing stays behind. Every key expires, except a number of permits that an operator has set. The lock's last
//     number stays for FenceTTL.
//
// Some events let two clients hold the lock until the first one's next renewal, within a third of TTL. These are a
// failover to a replica or a restart that lost the last writes, an eviction, a forced release, or a step of Redis's
// clock beyond the end of a lease. (Set appendonly yes and maxmemory-policy noeviction.) Fences rise all the same,
// unless Redis has lost the number and its clock is behind it. The order survives lost messages, and one stall, restart
// that keeps the data, or step of Redis's clock, up to 10 min. Two such events within WaiterTTL/3 can change it. After
// an outage longer than WaiterTTL/2 or TTL, one waiter may lose a grant whose notification was lost. A holder that is
// paused between its last look at the lease and its write can write too late. A resource that checks fences is safe
// from all of these; package fence does so in databases.
//
// # Concurrency
//
// Everything here is safe for concurrent use. A lock is a value without state: copies, and locks of the same name from
// other clients, are the same lock. Locks of two kinds are different locks, even if their names are equal. Any
// goroutine may unlock a lease.
//
// Locks are not reentrant. A call of a Mutex or an RWMutex returns [ErrReentrant] if it would wait for a lease in its
// ctx, held through the same Client. Otherwise locking twice deadlocks until ctx ends.
//
// Waiters wait in their callers' goroutines. From its first contention on, a client has one Pub/Sub connection, and
// sends one heartbeat per lock and second for its waiters. Close the client before the Redis client. Set
// ContextTimeoutEnabled in the options of the Redis client: a lone request then takes half of the time.
//
// # Failure
//
// Errors are an [*Error] with the operation and the lock, around an error of this package, of ctx, or of Redis. After
// an error from Lock the caller does not hold the lock, and the waiter leaves the queue as soon as Redis answers.
//
//   - ctx bounds waiting, and not the lease. When it ends, Lock returns within 100 ms, even if Redis hangs. With
//     ContextTimeoutEnabled, a ctx that is cancelled before its deadline may take the Redis client's ReadTimeout. With
//     Do, ctx also bounds the function.
//   - Outages. A waiter keeps its ticket through lost connections, failovers and restarts of Redis while its ctx lasts.
//     If no server has ever answered the client, Lock gives up after 10 s, because the address may be wrong. Calls that
//     do not wait for the lock try for 3 s. MaxOutage sets another limit for Lock and the Try forms. The error is
//     [ErrUnreachable].
//   - Refusals. A new call returns [ErrRefused] at once if only an administrator can fix the cause, such as missing
//     rights or a full server. It also returns errors that a retry cannot fix, such as a key of another program. A
//     queued waiter, a renewal and a release retry once a second.
//   - Loss. The end of a lease shows in [Lease.Done], [Lease.Context] and [Lease.Err]. Work under a lease should watch
//     one of them. A loss is also logged.
//   - Bad input is an [ErrInvalid] that names the field. Nothing was sent.
//
// # Time
//
// Times in Redis are the server's. A lease is measured by this process's monotonic clock, from just before its latest
// request was sent. It is trusted for TTL minus a safety margin of TTL/100 + 2 ms, and renewed after about a third of
// TTL. A holder that was paused finds the end of its lease as soon as it looks. Tests control the time with
// testing/synctest, or with a [Clock].
package fairlock
