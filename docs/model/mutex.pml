/*
 * The mutex of docs/protocol.md, for spin. README.md says what is in here and what is not; ./check runs it.
 *
 *   -DN=3          clients, 2 to 4. Each makes one acquisition after the other, with a new token each time, without end
 *   -DFAULTS=2     the number of faults in a run; ANY: then progress is not checked
 *   -DSTALLS=true  Redis can stall, and its clock can step
 *   -DLOSS=true    Redis can lose its data
 *   -DMUTANT=X     one rule is left out or spoiled; NONE
 *   -DTRACE        to read a counterexample: clients keep their numbers
 *
 * Time goes in ticks of a second. All times are relative: counters that a tick takes up or down.
 */

#define ANY 255

#define TTL 2
#define WAITER_TTL (MUTANT == SHORT_WAITER_TTL -> 2 : 3)
#define QUARANTINE (MUTANT == SHORT_QUARANTINE -> 1 : 3)
#define SECOND (MUTANT == SERVER_TIME -> 3 : 1) // by how much one update advances the queue's clock at most
#define MARGIN (MUTANT == NO_MARGIN -> 0 : 1)   // the safety margin
#define DRIFT 1 // by how much a client's clock is late at the end of each lease: the margin just suffices
#define BOUND (LOSS -> 6 : 3) // within so many ticks a waiter is granted a free lock, if nothing fails

#define WHEN(condition, action) if :: condition -> action :: else fi
#define NEVER(claim, condition) claim = condition; assert(!claim)
#ifdef TRACE
#define hidden
#define SEEN(what) skip
#else
#define printf(...) skip
#define SEEN(what) c_code { static int once; if (!once) { once = 1; puts("seen: " #what); } }
c_code {
  static int by_bytes(const void *a, const void *b) { return memcmp(a, b, sizeof(struct Client)); }
}
#endif

mtype = {
  none,
  idle, waiting, holding, ended,                        // states of a client
  acquire, reacquire, heartbeat, renew, release, leave, // requests; reacquire: an acquire that brings a ticket
  granted, queued, not_queued, renewed, lost            // replies
}

mtype = { NONE, NO_MARGIN, FROM_REPLY, TRUSTS_ALWAYS, RELEASE_ANY, TOKEN_ONLY, NO_NX, LIFO, BARGING,
  SAME_NUMBER, NO_SERVED, NO_TOMBSTONE, SHORT_WAITER_TTL, SERVER_TIME, NO_DROP, HANDOFF_FOR_TTL,
  HEARTBEAT_HIDES_GRANT, NO_EXPIRY, SHORT_QUARANTINE } // mutants

typedef Client {
  mtype at = idle;
  mtype msg = none;     // its request, later the reply
  mtype delayed = none; // a request that may still reach Redis, though the client waits for its reply no longer
  unsigned clock : 2;   // waiting: ticks since the latest request was sent that found it queued; holding: trusted ticks
  unsigned sent : 2;    // ticks since the request was sent
  unsigned ticket : 5;  // that it knows; 0: none
  bool again;           // waiting: it has sent several acquires, so it asks before it trusts a notification
  unsigned fence : 5;   // of its lease
  unsigned rticket : 5; // in the reply; 0: none
  unsigned number : 5;  // in the reply: a fence

  unsigned given : 2;   // in the notification that is under way: the length of the lease; 0: none is
  unsigned nfence : 5;  // in the notification

  unsigned place : 5;   // in Redis: its ticket in queue; 0: it is not queued
  unsigned alive : 2;   // in Redis: what is left of its WaiterTTL, by the queue's clock
  bool owns;            // in Redis: its token is in lock

  bool cut              // for two_holders: a step or a loss ended its lease in Redis early
}

Client C[N];
unsigned left : 2;       // in Redis: ticks left of lock; 0: it does not exist
unsigned lfence : 5;     // in Redis: the fence in lock
unsigned last : 5;       // in Redis: the last number
unsigned served : 5;     // in Redis: the highest ticket that was granted or dropped
unsigned since : 2;      // in Redis: ticks since the queue's clock was updated, at most SECOND
unsigned quarantine : 2; // in Redis: what is left of it, by the queue's clock

byte faults = FAULTS;    // that can still happen
byte waited;             // ticks for which a client has waited, none has held the lock, and nothing has failed
#define may_fail (faults > 0)
#define fault faults = faults - (FAULTS != ANY); waited = 0

hidden byte c, i, j, h, n, ticks, number, rank[32];
hidden int used;
hidden mtype what, reply;
hidden byte two_holders, two_owners, overtaken, number_reused, dropped_alive, false_quarantine, wrong_fence, stuck;

#define MIN(x, y) (x < y -> x : y)
#define MAX(x, y) (x > y -> x : y)
#define NOBODY N
#define is_acquire(m) (m == acquire || m == reacquire)
#define is_request(m) (is_acquire(m) || m == heartbeat || m == renew || m == release || m == leave)
#define in_queue(i) (C[i].place > 0)
#define expired(i) (C[i].alive <= since)
#define quarantined (quarantine > since)

/* ---- Redis (lua/scripts). What stands here is always part of one step: a script is atomic. ---- */

/* next_number in number.lua. */
inline next_number() {
  n = last + (MUTANT != SAME_NUMBER);
  NEVER(number_reused, n <= last);
  last = n
}

/* update_clock in queue.lua. */
inline update_clock() {
  for (i : 0 .. N-1) { C[i].alive = MAX(C[i].alive, since) - since }
  quarantine = MAX(quarantine, since) - since; since = 0
}

/* begin_quarantine in queue.lua. */
inline begin_quarantine() {
  NEVER(false_quarantine, !LOSS);
  next_number();
  served = last; quarantine = QUARANTINE; SEEN(quarantined);
  h = 0; // exclusion is claimed again from now on, if the lock was not granted since the loss
  for (i : 0 .. N-1) { h = h + C[i].cut }
  for (i : 0 .. N-1) { C[i].cut = C[i].cut && (left > 0 || h > 1) }
}

#define raise_served(to) served = (MUTANT == NO_SERVED -> served : MAX(served, to))

/* grant in mutex/store.lua, and what the queue does with it. */
inline grant(who, length) {
  n = 0;
  for (i : 0 .. N-1) { n = n + (i != who && in_queue(i) && !expired(i) && (!in_queue(who) || C[i].place < C[who].place)) }
  NEVER(overtaken, n > 0);
  raise_served(C[who].place); next_number();
  lfence = last; left = length;
  C[who].owns = true; C[who].place = 0;
  C[who].cut = C[who].cut && (C[who].at == holding || C[who].msg == granted); // it still trusts the earlier lease
  printf("redis    grants the lock to client %d for %d, with fence %d\n", who, length, lfence)
}

#define before(i, h) (MUTANT == LIFO -> C[i].place > C[h].place : C[i].place < C[h].place)

/* admit in queue.lua. Then h is the head, if it was not granted the lock. One waiter is granted it, at most. */
inline admit(asker) {
  do
  :: left > 0 -> break
  :: else ->
    h = NOBODY;
    for (i : 0 .. N-1) { h = (in_queue(i) && (h == NOBODY || before(i, h)) -> i : h) }
    if
    :: h == NOBODY || quarantined -> break
    :: !(h == NOBODY || quarantined) && (h == asker || !expired(h)) ->
      ticks = (h == asker || MUTANT == HANDOFF_FOR_TTL -> TTL : MIN(C[h].alive - since, TTL));
      grant(h, ticks);
      WHEN(h != asker && C[h].at == waiting, C[h].given = ticks; C[h].nfence = lfence); // an earlier notification is lost
      WHEN(h != asker && C[h].at == ended, SEEN(granted_to_nobody))
    :: else ->
      WHEN(MUTANT == NO_DROP, break);
      NEVER(dropped_alive, FAULTS != ANY && FAULTS - faults <= 1 && C[h].at == waiting);
      printf("redis    drops client %d\n", h);
      raise_served(C[h].place); C[h].place = 0; SEEN(dropped)
    fi
  od
}

/* acquire.lua. */
inline do_acquire() {
  if
  :: C[c].owns -> left = TTL; SEEN(holder_acquires)
  :: else ->
    update_clock();
    j = (what == reacquire -> C[c].ticket : 0);
    n = j > served && !in_queue(c);
    last = MAX(last, j);
    WHEN(n, begin_quarantine());
    WHEN(j > 0 && !in_queue(c) && left == 0, C[c].place = j; C[c].alive = WAITER_TTL; SEEN(returned));
    WHEN(MUTANT == BARGING && left == 0 || MUTANT == NO_NX && !in_queue(0) && !in_queue(1) && !in_queue(N-1),
      grant(c, TTL));
    admit(c);
    WHEN(left == 0 && h == NOBODY && !quarantined, grant(c, TTL));
    if
    :: C[c].owns
    :: else ->
      WHEN(!in_queue(c) && j == 0, next_number(); j = last);
      WHEN(!in_queue(c), C[c].place = j);
      C[c].alive = WAITER_TTL
    fi
  fi;
  number = (C[c].owns -> lfence : 0);
  reply = (C[c].owns -> granted : queued)
}

#define is_lease(c) (C[c].owns && (C[c].fence == lfence || MUTANT == TOKEN_ONLY))

inline expire() { for (i : 0 .. N-1) { C[i].owns = C[i].owns && left > 0 } }

/* Any script, for the client c. */
inline script() {
  reply = none; number = 0;
  if
  :: is_acquire(what) -> do_acquire()
  :: what == heartbeat ->
    update_clock();
    reply = (in_queue(c) -> queued : not_queued); // not_queued also: it was granted the lock
    C[c].alive = WAITER_TTL;
    admit(NOBODY);
    WHEN(C[c].owns, reply = (MUTANT == HEARTBEAT_HIDES_GRANT -> queued : not_queued); SEEN(heartbeat_finds_grant))
  :: what == renew ->
    number = (C[c].owns -> lfence : 0);
    reply = (is_lease(c) -> renewed : lost);
    WHEN(is_lease(c), left = TTL)
  :: what == release || what == leave ->
    if
    :: is_lease(c) || C[c].owns && what == leave || MUTANT == RELEASE_ANY -> left = 0; expire()
    :: else -> SEEN(release_denied)
    fi;
    C[c].place = (what == leave -> 0 : C[c].place);
    WHEN(what == leave && is_acquire(C[c].delayed) && MUTANT != NO_TOMBSTONE,
      C[c].delayed = none; SEEN(tombstone)); // it will be refused
    admit(NOBODY)
  fi;
  printf("redis    %e of client %d: %e\n", what, c, reply)
}

/* ---- After every step ---- */

/* If last is the highest number, later ones are compared with it alone. Of the others, tickets are compared with tickets,
   and fences with fences of the same token: so here all fences are above all tickets. */
inline forget_order_of_fences() {
  for (i : 0 .. N-1) {
    C[i].fence = (C[i].fence > 0 -> 30 : 0);
    C[i].number = (C[i].number > 0 -> 30 : 0);
    C[i].nfence = (C[i].given == 0 || C[i].again -> 0 : (C[i].owns && C[i].nfence == lfence -> 30 : 29))
  }
  lfence = (left > 0 -> 30 : 0); last = 31
}

#define EACH_NUMBER(i, f) f(C[i].ticket); f(C[i].fence); f(C[i].rticket); f(C[i].number); f(C[i].nfence); \
  f(C[i].place)
#define MARK(x) used = used | (1 << (x))
#define RANK(x) x = rank[x]
#define HIGHEST(x) n = MAX(n, x)

/* Checks what must hold in every state. Then brings the state into a form in which states that differ in nothing that
   matters are one: what is not used any more is 0, numbers keep their order but not their size, clients are sorted. */
inline normalize() {
  h = 0; n = 0;
  for (i : 0 .. N-1) { h = h + (C[i].at == holding && !C[i].cut); n = n + C[i].owns }
  NEVER(two_holders, h > 1);
  NEVER(two_owners, n > 1);

  n = 0;
  for (i : 0 .. N-1) {
    WHEN(C[i].at == ended && C[i].msg == leave && !in_queue(i) && !is_acquire(C[i].delayed),
      C[i].msg = release; C[i].fence = lfence);
    C[i].fence = (C[i].owns && C[i].fence == lfence -> C[i].fence : 0);
    WHEN(C[i].fence == 0 && (C[i].delayed == renew || C[i].delayed == release), C[i].delayed = none);
    WHEN(C[i].at == ended && !C[i].owns && !in_queue(i) && C[i].delayed == leave, C[i].delayed = none);
    WHEN(C[i].at == ended && !C[i].owns && !in_queue(i) && C[i].delayed == none && C[i].msg == none, C[i].at = idle);
    WHEN(C[i].at != waiting, C[i].given = 0; C[i].again = false; C[i].clock = (C[i].at == holding -> C[i].clock : 0);
      C[i].ticket = (C[i].delayed == reacquire -> C[i].ticket : 0));
    WHEN(C[i].again && C[i].given > 0, C[i].given = 1; C[i].nfence = 0);
    C[i].cut = C[i].cut && (C[i].at == holding || C[i].msg == granted || C[i].given > 0 && !C[i].again);
    WHEN(C[i].at == ended || C[i].msg == none || C[i].msg == not_queued || C[i].msg == lost, C[i].sent = 0);
    WHEN(C[i].msg == queued || !C[i].owns || C[i].number != lfence, C[i].number = 0);
    WHEN(C[i].msg != queued, C[i].rticket = 0); WHEN(C[i].given == 0, C[i].nfence = 0);
    WHEN(!in_queue(i) || expired(i), C[i].alive = 0);
    WHEN(C[i].place < C[i].ticket && C[i].ticket <= served, n = MAX(n, C[i].ticket));
    WHEN(C[i].place < C[i].rticket && C[i].rticket <= served, n = MAX(n, C[i].rticket))
  }
  served = n; // no lower ticket can be brought
  lfence = (left > 0 -> lfence : 0);
  n = quarantine;
  for (i : 0 .. N-1) { n = n + C[i].place }
  since = (n > 0 -> since : 0);

  n = MAX(served, lfence);
  for (i : 0 .. N-1) { EACH_NUMBER(i, HIGHEST) }
  WHEN(n <= last, forget_order_of_fences());
  used = 0;
  MARK(lfence); MARK(last); MARK(served);
  for (i : 0 .. N-1) { EACH_NUMBER(i, MARK) }
  n = 0;
  for (i : 1 .. 31) { n = n + ((used >> i) & 1); rank[i] = n }
  RANK(lfence); RANK(last); RANK(served);
  for (i : 0 .. N-1) { EACH_NUMBER(i, RANK) }
#ifndef TRACE
  c_code { qsort(now.C, N, sizeof(struct Client), by_bytes); };
#endif
  c = 0; i = 0; j = 0; h = 0; n = 0
}

/* ---- A client (fairlock) ---- */

#define sends(q) C[c].msg = q; C[c].sent = 0; printf("client %d sends %e\n", c, C[c].msg)

#define reacquires() sends((C[c].ticket > 0 -> reacquire : acquire)); C[c].again = (MUTANT != TRUSTS_ALWAYS)

/* trustedUntil: what is left of a lease of so many ticks that began after a request was sent so many ticks ago. */
#define trusted(length, ago) (MAX(length - MARGIN + DRIFT, ago) - ago)

inline holds(with) {
  C[c].at = holding; C[c].clock = ticks; C[c].fence = with;
  C[c].msg = none; // a heartbeat in flight does not matter any more
  waited = 0;
  printf("client %d holds the lock, for %d\n", c, C[c].clock)
}

/* Its acquisition ends with a last request, or with none. */
inline ends(with) {
  C[c].at = ended; C[c].msg = with;
  printf("client %d ends; it sends: %e\n", c, C[c].msg)
}

#define unlocks() ends((is_acquire(C[c].delayed) -> leave : release))

/* It waits no longer for a request that may still arrive. */
inline abandons() { WHEN(C[c].delayed == none && is_request(C[c].msg) && C[c].msg != heartbeat, C[c].delayed = C[c].msg) }

/* It gets an error (failed, renewalFailed). */
inline reads_error() { if :: C[c].at == waiting && C[c].ticket == 0 -> ends(leave) :: else -> C[c].msg = none fi }

#define is_free(me) (C[me].msg == none || C[me].msg == heartbeat || C[me].msg == not_queued)
#define can_hang(me) (C[me].delayed == none && is_request(C[me].msg) && C[me].msg != heartbeat && may_fail)

proctype client(byte me) {
  do
  :: atomic {
    if
    :: d_step { C[me].at == idle -> c = me; C[c].at = waiting; sends(acquire) }

    // Waiting: it sends a heartbeat or a reacquire once between two ticks, and a reacquire whenever a reply demands it.
    :: d_step { C[me].at == waiting && C[me].msg == none && C[me].clock > 0 -> c = me; sends(heartbeat) }
    :: d_step { C[me].at == waiting && C[me].msg == none && C[me].clock > 0 -> c = me; reacquires() }
    :: d_step { C[me].msg == not_queued -> c = me; reacquires() }
    :: d_step { C[me].msg == queued -> c = me; // startWaiting, foundQueued
      printf("client %d reads that it is queued\n", c);
      C[c].ticket = (C[c].rticket > 0 -> C[c].rticket : C[c].ticket);
      C[c].clock = C[c].sent; C[c].msg = none }
    :: d_step { C[me].msg == granted -> c = me; // granted, newLease
      ticks = trusted(TTL, (MUTANT == FROM_REPLY -> 0 : C[c].sent));
      if
      :: ticks > 0 -> holds(C[c].number); SEEN(granted)
      :: else -> SEEN(granted_too_late); reacquires()
      fi }
    :: d_step { C[me].given > 0 && is_free(me) -> c = me; // wait, suffices. See also normalize
      ticks = (C[c].again -> 0 : trusted(C[c].given, C[c].clock));
      C[c].given = 0;
      if
      :: ticks > 0 -> holds(C[c].nfence); SEEN(handoff)
      :: else -> SEEN(handoff_not_trusted); WHEN(C[c].msg == none, reacquires())
      fi }

    // Its ctx ends: it leaves when its request was answered, or will not be.
    :: d_step { C[me].at == waiting && !is_request(C[me].msg) -> c = me; ends(leave) }
    :: d_step { C[me].at == waiting && is_request(C[me].msg) && may_fail -> c = me; fault; abandons(); ends(leave) }

    // Holding: it renews, and unlocks at any time, also while it renews. It gives back a later lease of its token.
    :: d_step { C[me].at == holding && C[me].msg == none && C[me].clock < TTL -> c = me; sends(renew) }
    :: d_step { C[me].msg == renewed -> c = me; // extend
      printf("client %d reads that its lease is renewed\n", c);
      NEVER(wrong_fence, C[c].number != C[c].fence);
      C[c].clock = MAX(C[c].clock, trusted(TTL, C[c].sent)); C[c].msg = none; SEEN(renewed) }
    :: d_step { C[me].msg == lost -> c = me; SEEN(renewal_denied); C[c].fence = C[c].number;
      ends((C[c].fence > 0 -> release : none)) }
    :: d_step { C[me].at == holding && C[me].msg != renew -> c = me; unlocks() }
    :: d_step { C[me].at == holding && C[me].msg == renew && may_fail -> c = me; fault; abandons(); unlocks() }

    // It crashes.
    :: d_step { (C[me].at == waiting || C[me].at == holding) && may_fail -> c = me; fault; abandons(); ends(none) }

    // The network, and go-redis. A request is executed; or it or its reply is lost, and the client gets an error.
    :: d_step { is_request(C[me].msg) -> c = me; what = C[c].msg; script(); C[c].msg = reply; C[c].number = number;
      C[c].rticket = (is_acquire(what) -> C[c].place : 0) }
    :: d_step { C[me].msg != none && may_fail -> c = me; fault; printf("network  fails client %d\n", c); reads_error() }

    // It hangs, and is sent again over another connection, or the client gives up. It arrives at any time, or never.
    :: d_step { can_hang(me) -> c = me; fault; printf("network  %e of client %d hangs; it is sent again\n", C[c].msg, c);
      C[c].delayed = C[c].msg; C[c].again = C[c].again || C[c].at == waiting && MUTANT != TRUSTS_ALWAYS }
    :: d_step { can_hang(me) -> c = me; fault; printf("network  %e of client %d hangs\n", C[c].msg, c);
      C[c].delayed = C[c].msg; reads_error() }
    :: d_step { C[me].delayed != none -> c = me; what = C[c].delayed; C[c].delayed = none; script(); waited = 0;
      SEEN(delayed_request_arrives) }
    :: d_step { C[me].delayed != none -> C[me].delayed = none }
    :: d_step { C[me].given > 0 && may_fail -> fault; printf("network  loses a notification\n"); C[me].given = 0;
      SEEN(notification_lost) }
    fi;
    d_step { normalize() }
  }
  od
}

/* ---- Time, and faults of the server ---- */

/* A tick is a fault of each client that has a request, a reply or a notification under way, or that waits and was not
   found queued since the last tick. With faults to spare, everything may be late by any time. */
#define late(i) (C[i].msg != none || C[i].given > 0 || C[i].at == waiting && C[i].clock > 0)
#define all_late (late(0) + late(1) + (N > 2 -> late(2 % N) : 0) + (N > 3 -> late(3 % N) : 0))

inline tick() {
  for (i : 0 .. N-1) {
    C[i].sent = MIN(C[i].sent + 1, TTL);
    if
    :: C[i].at == holding ->
      C[i].clock--;
      WHEN(C[i].clock == 0, C[i].at = ended; C[i].msg = none; SEEN(expired_at_the_holder))
    :: C[i].at == waiting && C[i].ticket > 0 -> C[i].clock = MIN(C[i].clock + 1, TTL)
    :: else
    fi
  }
  left = (MUTANT == NO_EXPIRY -> left : MAX(left, 1) - 1); expire();
  since = MIN(since + 1, SECOND);
  printf("time     a tick; %d left in Redis\n", left)
}

proctype server() {
  do
  :: d_step {
    all_late <= faults ->
    waited = (all_late > 0 || FAULTS == ANY -> 0 : waited + 1);
    faults = (FAULTS == ANY -> ANY : faults - all_late);
    tick();
    n = 0; h = 0;
    for (i : 0 .. N-1) { n = n + (C[i].at == waiting && C[i].ticket > 0); h = h + (C[i].at == holding) }
    waited = (n == 0 || h > 0 -> 0 : waited);
    NEVER(stuck, waited > BOUND);
    normalize()
  }

  // Redis stalls for TTL or more, and then goes on with what has arrived.
  :: d_step { STALLS && may_fail -> fault; printf("redis    stalls\n"); tick(); tick(); normalize() }

  // The server's clock steps forward, by TTL or more.
  :: d_step { STALLS && may_fail && quarantine == 0 -> fault; printf("redis    its clock steps\n");
    for (i : 0 .. N-1) { C[i].cut = C[i].cut || C[i].owns }
    left = 0; expire(); since = SECOND; SEEN(step); normalize() }

  // Redis loses its data. If n is 1, its clock is behind, and numbers are given again.
  :: atomic { LOSS && may_fail -> if :: n = 0 :: n = 1 fi;
    d_step {
      fault; printf("redis    loses its data\n");
      for (i : 0 .. N-1) {
        C[i].cut = C[i].owns || C[i].at == holding || C[i].msg == granted || C[i].given > 0;
        C[i].place = 0
      }
      left = 0; expire(); served = 0; since = 0; quarantine = 0; last = (n == 1 -> 0 : last); normalize() } }
  od
}

init { atomic { for (i : 0 .. N-1) { run client(i) } run server(); i = 0 } }
