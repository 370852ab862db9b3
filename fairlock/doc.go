// Package fairlock has strict-FIFO distributed locks on Redis: waiters are granted a lock in the order of their requests,
// over all processes.
//
// A [Client] makes locks on one Redis. A [Mutex] is a name; it has no state of its own. [Mutex.Lock] waits for the lock
// and returns a [Lease], which is one holding: it is renewed in the background, it ends once and for one reason, and
// [Lease.Unlock] hands the lock to the next waiter. [Mutex.Do] does all of that around a function. Use it unless the lock
// must be held beyond one function. [Mutex.TryDo] and [Mutex.TryLock] do not wait.
//
// A [Semaphore] has as many holders as it has permits, an [RWMutex] one writer or any number of readers. Everything said about a
// lock applies to both. Each holder has its own lease.
//
// Options give a lock settings of its own. [WithMaxWait] bounds waiting alone. [WithMinHold] keeps the lock taken for some time
// after each grant: so a job is done at most once in that time, and a semaphore limits a rate. [Lease.Wanted] is for holders that stop early if somebody waits.
// [Semaphore.Resize] sets the number of permits for all clients. [Client.Ping], [Client.Stats] and [Client.Shutdown] serve
// the program around the locks, and package leader elects one leader of many processes.
//
// # Promises
//
//   - Exclusion. While a lease is held ([Lease.Err] is nil), no other client holds the lock (of a semaphore, no more than
//     its permits; of an RWMutex, nobody beside a writer), as long as Redis keeps its data, its clock does not step
//     forward beyond the end of the lease, and nobody takes the lock by force ([Mutex.ForceRelease]).
//   - Order. Waiters are granted the lock in the order in which Redis received their first requests. A holder that unlocks
//     and locks again queues behind all waiters. [Mutex.TryLock] fails while others wait. A request for one permit never
//     passes one for three, and no reader passes a writer. Lost messages, a restart of Redis that keeps its data, a
//     stall, and a step of its clock do not change the order. Several stalls or steps within WaiterTTL/3 can; so can a
//     step forward by more than 10 min, after which Redis has forgotten the queue. An outage of more than WaiterTTL/2, or
//     TTL, can cost one waiter its turn: one that was granted the lock just before, and has not heard of it.
//   - Fences. Every grant has a number greater than those of all earlier grants of the lock, see [Lease.Fence]; also
//     after Redis has lost its data, unless its clock has stepped back, or that of a new primary is behind the old one's by
//     more than the failover took.
//   - Early notice. A lease ends here before it can end in Redis, even if Redis hangs: [Lease.Done] closes first, then
//     another client may be granted the lock. After a step forward of the server's clock beyond the end of the lease,
//     Done closes only at the next renewal.
//   - Bounded cost of a crash. Of a holder, what is left of its TTL, or of its minimum hold if that is longer; of waiters,
//     however many, one WaiterTTL.
//   - Nothing stays behind. Every key expires by itself. Only the last number is kept, for FenceTTL, and the number of permits
//     that Semaphore.Resize has set.
//
// The package cannot promise what Redis does not. Replication is asynchronous: after a failover to a replica that
// missed the last writes, or a restart that lost them (appendonly no, the default), two clients can hold the lock at
// once, until the first one's next renewal, a third of TTL later at most. Fences tell them apart. Redis must not evict the
// keys (maxmemory-policy noeviction). And no lock protects a resource from a holder that was paused between its last look
// at the lease and its write. Only a resource that checks fences is safe from that.
//
// # Concurrency
//
// Everything here is safe for concurrent use. A Mutex may be copied and made anew as often as needed. A lease belongs
// to one call of Lock, not to a goroutine: any goroutine may unlock it. Locks are not reentrant. A call of a
// Mutex or an RWMutex whose ctx carries a lease of it, held through the same Client, returns [ErrReentrant] at once. With
// another ctx, through another Client, or if the permits of a Semaphore do not suffice, locking twice deadlocks until ctx ends.
//
// Waiters wait in their callers' goroutines, and timers renew leases. A request that is alone is sent on its caller's
// goroutine, if nothing but Redis has to end it early (see [New]). A few goroutines of the Client send the others: on a
// *redis.Client, requests that coincide share a pipeline. From its first contention on, a client has one Pub/Sub connection. It
// sends heartbeats for its goroutines that wait, one per lock and second. [Client.Close] waits for every goroutine that the
// client has started; close it before the Redis client. [Client.Shutdown] lets holders finish first.
//
// [Trace] callbacks run where the event occurs: they should be quick, and must not close the client.
//
// # Failure
//
// Errors are an [*Error] that names the operation and the lock, around one of the package's sentinels (use
// [errors.Is]), a [*HeldError], a [*CapacityError], an error of ctx, or one of Redis. After an error from Lock the caller
// does not hold the lock, and the waiter leaves the queue as soon as Redis answers.
//
//   - ctx bounds waiting and nothing else. When it ends, Lock returns within 100 ms, also if Redis hangs. A lease
//     does not end with the ctx of its Lock. [WithMaxWait] bounds waiting too, with an error of its own,
//     [ErrWaitTimeout]; with Do, ctx also bounds the function.
//   - A queued waiter survives lost connections, failovers and restarts of Redis for as long as its ctx lasts, and keeps
//     its ticket. So does a call of Lock whose first request Redis does not serve, unless no server has ever answered the
//     client: then Lock gives up after 10 s, because the address may be wrong. Calls that do not wait for the lock try for
//     3 s. Errors that a retry cannot cure are returned at once: missing rights, a key that another program has written
//     ([ErrNumber], if it is that of the lock's numbers), a server out of memory, a node of a Cluster behind a
//     *redis.Client.
//   - The end of a lease shows in Done, in its [Lease.Context], and in Err: [ErrUnlocked], [ErrDetached], [ErrClosed], or
//     [ErrLost] with the reason: [ErrExpired], [ErrTaken] or [ErrUnreachable]. Work under a lease should watch one of
//     them. A loss is also logged, to [log/slog.Default] unless [Config] says otherwise.
//   - Unlock works after its ctx has ended, and retries until the lease would have ended. Nil means that the lock is
//     released, ErrLost that another client may have it already. After any other error the lock may still be held: call
//     Unlock again, or let the TTL end the lease.
//   - Bad input is an [ErrInvalid] that names the field and its bounds. Nothing has been sent then.
//
// # Time
//
// Times in Redis are the server's; a lease here is measured by this process's monotonic clock, from just before the
// request was sent that granted or renewed it. Clocks of different machines are never compared. A lease of a given TTL
// is trusted for TTL minus a safety margin of TTL/100 + 2 ms. It is renewed after about a third of TTL, so that at least
// two renewals may fail.
//
// A holder that is paused beyond its lease finds it ended as soon as it looks. [Config] says what TTL and WaiterTTL cost.
// Tests control the time: they run in a testing/synctest bubble, or with a [Clock] of their own.
package fairlock
