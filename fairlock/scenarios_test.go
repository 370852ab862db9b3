package fairlock_test

import "testing"

// Requests, heartbeats, and what Stats counts.
//
//fairlock:promise All requests are sent by the user's client: its hooks see every command once, and so each copy of a request that has no reply for a second; a pair over a long link takes two commands and no further connection, while a round trip takes less than a second
//fairlock:promise Waiting is cheap: one heartbeat per lock each second, for up to 250 waiters of a client; leases cost timers, not goroutines
//fairlock:fault A master of a cluster stays dead
//fairlock:fault Close, Redis hangs: it takes one go-redis timeout, not one for each waiter
//fairlock:fault Redis refuses a connection: all calls without a ticket or a lease that should have gone over it return its reply, an ErrRefused
func TestClient(t *testing.T) { scenarios(t, "client") }

// How waiters are handed the lock, and how they leave.
//
//fairlock:fault Redis hangs for longer than TTL and WaiterTTL, and ctx ends: the lock is free as soon as Redis answers
//fairlock:promise A handoff is prompt: the release notifies the next waiter, no heartbeat has to find it; a waiter with too little trusted time sends acquire
//fairlock:promise Readers and writers
//fairlock:promise MaxWaiters: one more is refused with ErrQueueFull
//fairlock:fault A notification is lost: the next waiter, or all who were admitted, are in within one heartbeat; the order holds; the subscription is replaced
//fairlock:fault ctx ends, Redis hangs: Lock returns within 100 ms; nothing is left once Redis answers
//fairlock:fault ctx ends while the first connection is being made: the same
//fairlock:fault A request arrives after its waiter has left: it is refused, or given back
//fairlock:fault The lock is granted before the client's subscription has come up: found as soon as the reply to its request arrives: the waiter sends acquire again
//fairlock:fault A waiter is stopped while the lock is handed to it: beyond the time given it does not trust the grant; within it, it has the lock
func TestWaiter(t *testing.T) { scenarios(t, "waiter") }

// How leases end, and what Renew, Unlock and Detach do then.
//
//fairlock:promise A lease ends here first: one safety margin before its TTL, counted from before the request was sent
//fairlock:promise Unlock: can be called again; works under a ctx that has ended
//fairlock:promise Waiting: a holder can ask how many wait for its lock, those that have expired excepted
//fairlock:fault Unlock cannot reach Redis
//fairlock:promise Force-release: the next waiter has the lock, the fence rises, the old holder finds out
//fairlock:promise Detach: the lease ends here, its lock stays held so that another process can resume it, and nothing more is sent
//fairlock:fault A copy of an acquire arrives after the lease was lost or unlocked: it is refused, and the lock is free
func TestLease(t *testing.T) { scenarios(t, "lease") }

// What Do and TryDo do, and what their function sees.
//
//fairlock:promise Do: never runs without the lock, reports a loss, releases after a panic; its ctx has the lease
func TestDo(t *testing.T) { scenarios(t, "do") }

// Calls whose ctx carries leases.
//
//fairlock:promise Nested locking: a call whose ctx carries a lease for which it would wait gets ErrReentrant, or ErrBusy if it is a Try…; nothing is sent. Others are not refused
func TestReentrant(t *testing.T) { scenarios(t, "reentrant") }

// Processes that resume a lease of another one.
//
//fairlock:promise Resume: a lease goes on in another process, with a new fence and a new handle, and is lost where it was; ErrLost if its handle was used before, or the lease has ended
//fairlock:promise Every holder has its own lease: token, fence, renewal, loss, Resume
//fairlock:promise Late requests of a resumed lease: what the process sends late that had the lease before changes nothing
//fairlock:promise Several resume one lease: never do two of them hold it for longer than one's next renewal, also if a reply is lost, or a request comes late
func TestResume(t *testing.T) { scenarios(t, "resume") }

// WithMaxWait.
//
//fairlock:promise A limit for waiting: WithMaxWait bounds the wait, and the error says whether it or ctx has ended; the lease and f have no limit by it
//fairlock:promise Errors name a holder: ErrBusy and the error of a Lock that timed out, of all kinds; no further request is sent
//fairlock:fault ctx ends, Redis hangs
func TestMaxWait(t *testing.T) { scenarios(t, "maxwait") }

// A minimum hold lasts through what happens to its holder, and no longer. The next one starts within 100 ms.
//
//fairlock:fault The holder of a lock with a minimum hold crashes, or releases it and the reply is lost: it stays taken until the minimum is over
//fairlock:promise A minimum hold: the lock stays taken until d after the grant, whatever its holder does; at most so many holders start in d, in order, and the next one starts within 100 ms after d
//fairlock:promise At most once in d: of replicas that do TryDo with a minimum hold, one does the job each time, though their clocks differ; a crash costs at most one time
//fairlock:fault The message that tells the first waiter when a minimum hold ends is lost: a heartbeat tells it
func TestMinHold(t *testing.T) { scenarios(t, "minhold") }

// Two numbers of permits, and what an operator does about them.
//
//fairlock:promise Resize
//fairlock:promise Two numbers of permits
//fairlock:promise Two numbers of permits in use, as during a deploy: no error; at most the larger one is held, never the sum
//fairlock:promise Shrinking a semaphore: holders finish; the first waiter, if it wants more than there are, gets a CapacityError by its next heartbeat, and those behind it keep their places
func TestResize(t *testing.T) { scenarios(t, "resize") }

// The limit of a keyed semaphore in all, and one for each key. A busy try says why, as does a full queue.
//
//fairlock:promise Limits of a keyed semaphore: no more permits are held than there are, and by no key more than its limit; a key at its limit lets others pass
func TestKeyed(t *testing.T) { scenarios(t, "keyed") }

// Clients that crash.
//
//fairlock:fault A holder crashes: the next one is in when the rest of its TTL has passed, and not before
//fairlock:fault Waiters crash, a hundred in a row: one WaiterTTL in all, and at most one interval between heartbeats
func TestCrash(t *testing.T) { scenarios(t, "crash") }

// Redis cannot be reached, or does not reply.
//
//fairlock:promise One call that hangs does not hold up the others: of the same client; a request waits at most 50 ms behind one that hangs, and no more are in flight than the bound
//fairlock:fault A renewal fails or hangs: tried again until the deadline; a hung connection costs no lease and no ticket
//fairlock:fault Redis hangs, crashes, or is cut off from a holder: Done closes before the TTL ends in Redis; ErrLost
//fairlock:fault Redis refuses writes when a lock is released, and has lost the grant when it accepts them: Unlock returns nil, because an earlier copy may have released it
//fairlock:fault Redis is away just after a grant whose notification is lost: the waiter has the lock if Redis is back within what is left of its WaiterTTL, which is at least half, and within TTL; if not, the next one passes it
//fairlock:fault CLIENT KILL, SCRIPT FLUSH, a pause, a restart with or without persistence: no error for a waiter whose ctx has time
//fairlock:promise A limit for waiting
//fairlock:fault The reply to a script is lost: it takes effect once: no false loss, no lock that nobody holds, one step of the fence
//fairlock:fault Redis refuses the renewals of a lease: the reason of its loss is ErrExpired with ErrRefused, and not ErrUnreachable
//fairlock:fault The reply to a release is lost, and another client has the lock meanwhile: released; the lock of the other client is untouched
func TestOutage(t *testing.T) { scenarios(t, "outage") }

// Redis refuses requests.
//
//fairlock:fault Redis refuses to release a lock (rights, password, memory, a proxy)
//fairlock:fault The user lacks rights, the password was changed, the server is full, or a proxy replies by itself
//fairlock:fault The connection of a request is half-open, and its reply never comes: an acquire, a try, a release, a leave, Resume or ForceRelease is sent again on another connection after a second
func TestRefused(t *testing.T) { scenarios(t, "refused") }

// A failover loses the last release. Then the waiters are served in their order, also one that was handed the lock by
// that release. What a lost grant brings about no lock on Redis can prevent, but it is bounded.
//
//fairlock:fault A planned failover, and clients that work all the while: what was released on the old primary is free on the new one within 2 s of the move
//fairlock:fault Failover to a replica that missed a grant: its holder is told at the next renewal that reaches the new primary; the fence of the next one is higher
//fairlock:fault Failover to a replica that missed a release: its client sends again what it has released in the last 3 s when it reaches the new primary, and the next waiter is in; if it does not live any more, when what was left of that lease has passed
func TestFailover(t *testing.T) { scenarios(t, "failover") }

// When a client subscribes, and what happens when its subscription breaks.
//
//fairlock:fault The connection of a subscription is half-open, and shows no error: replaced within 6 s, also while the client waits for no lock
//fairlock:fault A notification is lost
//fairlock:fault The connection of a subscription dies before Redis has confirmed it: replaced after 5 s; heartbeats find the grants meanwhile
//fairlock:fault A fresh client queues, and is granted the lock before its subscription is up: no event and no line of the log
//fairlock:fault The user lacks rights
//fairlock:fault A proxy swallows or cuts subscriptions: the log says that the subscription is down, and there is no outage
func TestSubscriber(t *testing.T) { scenarios(t, "subscriber") }

// What Ping finds.
//
//fairlock:promise Ping: fails while Redis is away, loading, full or read-only, rights or commands are missing, which it names, or the subscription has been down for 5 s; ErrClosed from Shutdown on
func TestPing(t *testing.T) { scenarios(t, "ping") }

// Which calls and leases Shutdown ends.
//
//fairlock:promise Shutdown: waiters return ErrClosed at once, holders finish, and may take a further lock under the ctx of their lease; nothing is left in Redis, and no goroutine
//fairlock:fault Redis is down during Shutdown: it returns when Redis is back and everything is released
//fairlock:fault ctx of Shutdown ends, or Close is called meanwhile: leases end with ErrClosed; Shutdown returns within 100 ms, also if Redis hangs
func TestShutdown(t *testing.T) { scenarios(t, "shutdown") }

// The callbacks of each acquisition and each lease.
//
//fairlock:promise Trace balances: each acquisition gives one Granted or Left, after one Queued if it has queued, and each Granted one Ended
func TestTrace(t *testing.T) { scenarios(t, "trace") }

// DoAll.
//
//fairlock:promise Several mutexes at once: DoAll locks them in the order of their bytes, runs f under all of them, and releases all at once; two calls cannot deadlock
func TestDoAll(t *testing.T) { scenarios(t, "doall") }

// WithMaxOutage.
//
//fairlock:promise A limit for outages: with WithMaxOutage, a call returns ErrUnreachable once Redis has not served the lock for that long, also if it is queued; it leaves the queue
func TestMaxOutage(t *testing.T) { scenarios(t, "maxoutage") }
