// Package fairlock has strict-FIFO distributed locks on Redis: those who wait get in in the order in which they asked,
// over all processes.
//
// A [Client] makes locks on one Redis. A [Mutex] is a name; it has no state of its own. [Mutex.Lock] waits in line and
// returns a [Lease], which is one holding: it is renewed in the background, it ends once and for one reason, and
// [Lease.Unlock] hands the lock to the next in line. [Mutex.Do] does all of it around a function, and is what to use
// unless there is a reason not to.
//
// A [Semaphore] lets as many in as it has permits, an [RWMutex] one writer or any number of readers. Everything said
// here of a lock and its holder is true of them and each of their holders, who have a lease each.
//
// # Promises
//
//   - Exclusion. While a lease says that it is held ([Lease.Err] is nil), nobody else holds the lock (of a semaphore,
//     no more than its permits; of an RWMutex, no writer beside anybody), as long as Redis keeps its data and nobody
//     takes the lock by force ([Mutex.ForceRelease]).
//   - Order. Waiters get in in the order in which Redis saw them first. Whoever unlocks and locks again goes behind
//     all who wait. [Mutex.TryLock] never overtakes. Who asks for one permit does not pass one who waits for three,
//     nor a reader a writer. A lost message, a restart of Redis that keeps its data or a step of its clock does not
//     change the order.
//   - Fences. Every grant has a number greater than those of all earlier grants of the lock, see [Lease.Fence]; also
//     after Redis has lost its data, if its clock has not fallen back by then.
//   - No holder who does not know. A lease ends here before it can end in Redis, even if Redis hangs: [Lease.Done]
//     closes first, then the lock may go to somebody else.
//   - A crash costs a bounded time: of a holder, the rest of its TTL; of waiters, however many, one WaiterTTL.
//   - Nothing stays behind. Every key expires by itself; only the last fence is kept, for a day.
//
// What Redis cannot give, the package cannot either. Replication is asynchronous: after a failover to a replica that
// missed the last writes, or a restart that lost them (appendonly no, the default), two clients can hold the lock at
// once. Redis must not evict the keys (maxmemory-policy noeviction). A step forward of the server's clock ends leases
// early. And no lock protects a resource from a holder that was paused between looking at its lease and writing; only a
// resource that checks fences does.
//
// # Concurrency
//
// Everything here is safe for concurrent use. A Mutex may be copied and made anew as often as wanted. A lease belongs
// to one call of Lock, not to a goroutine: any goroutine may unlock it. Locks are not reentrant: who holds a lock and
// locks it again waits for itself.
//
// Waiters wait in their callers' goroutines, and leases are kept by timers. From its first contention on, a client has
// one Pub/Sub connection, and sends one message per lock and third of WaiterTTL (or of TTL, if that is shorter),
// however many of its goroutines wait. [Client.Close] joins every goroutine that the client has started; close it
// before the Redis client.
//
// [Trace] callbacks run where the thing happens: they should be quick, and must not close the client.
//
// # Failure
//
// Errors are an [*Error] that names the operation and the lock, around one of the package's sentinels (use
// [errors.Is]), a [*CapacityError], an error of ctx, or one of Redis. After an error from Lock the lock is not held, and
// the place in line is given up.
//
//   - ctx bounds waiting and nothing else. When it ends, Lock returns within 100 ms, also if Redis hangs. A lease
//     lives on when the ctx that it was asked for with ends.
//   - A waiter that is in line survives lost connections, failovers and restarts of Redis for as long as its ctx
//     lasts, and keeps its place. What does fail is a first request that cannot reach Redis (once go-redis has
//     given up on it), and what asking again does not cure: missing rights, a key that is not ours, a server out of memory.
//   - A lease that is over tells so by Done, by its [Lease.Context], and by Err: [ErrUnlocked], [ErrClosed], or
//     [ErrLost] with the reason: [ErrExpired], [ErrTaken] or [ErrUnreachable]. Work under a lease should watch one of
//     them.
//   - Unlock works under a ctx that has ended. Nil means released; ErrLost, that somebody else may have the lock
//     already; anything else, that Redis could not be asked: call it again, or let the TTL do it.
//   - Bad input is an [ErrInvalid] that names the field and its bound. Nothing has been sent then.
//
// # Time
//
// Times in Redis are the server's; a lease here is measured by this process's monotonic clock, from just before the
// request was sent that granted or renewed it. Clocks of different machines are never compared. A lease of a given TTL
// is believed for TTL minus a margin of TTL/100 + 2 ms, and renewed each time a third of that has passed, so that two
// renewals may fail.
//
// A holder that is paused for longer than that finds its lease over as soon as it looks. [Config] says what TTL and
// WaiterTTL cost. Tests own the time by running in a testing/synctest bubble or by a [Clock] of their own.
package fairlock
