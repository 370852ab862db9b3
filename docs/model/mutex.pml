/*
 * The mutex of docs/protocol.md, for spin. README.md says what is in here and what is not; ./check runs it.
 *
 *   -DN=3          clients, 2 to 4; each makes one acquisition after the other, with a new token each time, without end
 *   -DFAULTS=2     how many faults there may be in a run; without it any number, and progress is not checked
 *   -DMUTANT_x     one thing is left out or spoiled
 *   -DTRACE        to read a counterexample: clients keep their numbers
 *
 * Time goes in ticks. All times are relative: counters that a tick takes up or down.
 */

#ifndef N
#define N 3
#endif
#ifndef TTL
#define TTL 3        // of a lease
#endif
#ifndef PATIENCE
#define PATIENCE 2   // WaiterTTL
#endif
#ifdef MUTANT_NO_MARGIN
#define MARGIN 0
#else
#define MARGIN 1     // by how much a lease ends earlier at its holder's than in Redis
#endif
#ifdef MUTANT_SLOW_CLOCK
#define DRIFT 2
#else
#define DRIFT 1      // by how much a client's clock may be late in the course of a lease: the margin just suffices
#endif
#ifndef BOUND
#define BOUND TTL    // ticks: within so many somebody gets in, if somebody waits and nothing fails
#endif

#ifdef TRACE
#define SEEN(what)
#else
#define printf(...) skip
#define SEEN(what) c_code { static int once; if (!once) { once = 1; puts("seen: " #what); } }
#endif

mtype = {
  none,
  away, waiting, trying, holding, gone,                // where a client is
  join, ask, try, beat, renew, release, leave,         // questions; join: the first one, which brings no ticket
  granted, queued, busy, ask_again, renewed, lost,     // answers
  answered, repeated, swallowed, failed, doubled, hung, arrived, vanished, unheard // fates of a question or a wake-up
}

typedef Client {
  mtype at = away;
  unsigned clock : 3;   // waiting: ticks since it sent the question that last found it queued; holding: ticks to go
  unsigned ticket : 4;  // that it was told; 0: none
  unsigned floor : 2;   // the fence when it was last found queued

  mtype msg = none;     // its question to Redis, later the answer
  unsigned sent : 3;    // ticks since the question was sent
  unsigned rticket : 4; // in the answer
  unsigned rfence : 2;  // in the answer

  mtype stray = none;   // a question that hangs somewhere: nobody waits for its answer, and it may still arrive

  unsigned given : 3;   // by the wake-up that is under way, in ticks; 0: none is
  unsigned wfence : 2;  // in the wake-up

  bool owns;            // Redis: its token is in lock
  unsigned place : 4;   // Redis: its ticket in queue; 0: it is not in there
  unsigned alive : 3    // Redis: ticks of patience left
}

Client C[N];
unsigned left : 3;      // Redis: ticks to go of lock; 0: nobody has it
unsigned fence : 2 = 2; // Redis

#ifdef FAULTS
byte faults = FAULTS;
byte stall;             // ticks for which somebody has waited, nobody has got in, and nothing has failed
#define may_fail (faults > 0)
#define fault faults--; stall = 0
#define calm stall = 0
#else
#define may_fail true
#define fault skip
#define calm skip
#endif

hidden byte c, i, j, h, n;
hidden int key_i, key_j;
hidden mtype what, reply, fate;
hidden byte two_holders, two_owners, overtaken, fence_not_raised, stuck;

#define MIN(x, y) (x < y -> x : y)
#define MAX(x, y) (x > y -> x : y)
#define NOBODY N
#define is_question(m) (m == join || m == ask || m == try || m == beat || m == renew || m == release || m == leave)
#define in_line(i) (C[i].place > 0)

/* ---- Redis (lua/scripts). What stands here is always part of one step: a script is atomic. ---- */

#ifdef MUTANT_SAME_FENCE
#define next_fence fence
#else
#define next_fence fence + 1
#endif

/* grant in mutex/store.lua. */
inline grant(who, ticks) {
  overtaken = 0;
  for (i : 0 .. N-1) {
    if
    :: i != who && in_line(i) && C[i].alive > 0 && (!in_line(who) || C[i].place < C[who].place) -> overtaken = 1
    :: else
    fi
  }
  assert(!overtaken);
  fence_not_raised = next_fence <= fence;
  assert(!fence_not_raised);
  fence = next_fence;
  printf("redis    grants the lock to client %d for %d\n", who, ticks);
  C[who].owns = true;
  left = ticks;
  C[who].place = 0;
  C[who].alive = 0
}

#ifdef MUTANT_LIFO
#define before(i, h) (C[i].place > C[h].place)
#else
#ifdef MUTANT_ANY
#define before(i, h) true
#else
#define before(i, h) (C[i].place < C[h].place)
#endif
#endif

/* admit in queue.lua. One can hold a mutex, so there is at most one grant. */
inline admit(asker) {
  do
  :: left > 0 -> break
  :: else ->
    h = NOBODY;
    for (i : 0 .. N-1) {
      if
      :: in_line(i) && (h == NOBODY || before(i, h)) -> h = i
      :: else
      fi
    }
    if
    :: h == NOBODY -> break
    :: else ->
      if
      :: h == asker -> grant(h, TTL)
      :: h != asker && C[h].alive > 0 ->
#ifdef MUTANT_TTL_TO_THE_DEAD
        n = TTL;
#else
        n = MIN(C[h].alive, TTL);
#endif
        grant(h, n);
        if
        :: C[h].at == waiting -> C[h].given = n; C[h].wfence = fence // in place of an older one, which is lost
        :: else -> SEEN(granted_to_nobody)
        fi
      :: else ->
#ifdef MUTANT_NO_DROP
        break
#else
        printf("redis    drops client %d\n", h);
        C[h].place = 0;
        SEEN(dropped)
#endif
      fi
    fi
  od
}

/* acquire.lua and what follows it; try is one with patience 0. */
inline acquire() {
  n = (what == ask -> C[c].ticket : 0);
  if
  :: C[c].owns ->
    left = MAX(left, TTL);
    reply = granted;
    SEEN(owner_asks)
  :: else ->
#ifdef MUTANT_NO_NX
    if
    :: !in_line(0) && !in_line(1) && !in_line(N-1) -> grant(c, TTL)
    :: else
    fi;
#endif
    if
    :: n > 0 && !in_line(c) && left == 0 ->
      C[c].place = n;
      C[c].alive = PATIENCE;
      SEEN(returned)
    :: else
    fi;
#ifdef MUTANT_BARGING
    if
    :: left == 0 -> grant(c, TTL)
    :: else
    fi;
#endif
    admit(c);
    if
    :: C[c].owns -> reply = granted
    :: !C[c].owns && left == 0 && h == NOBODY -> // the queue is empty
      grant(c, TTL);
      reply = granted
    :: !C[c].owns && (left > 0 || h != NOBODY) && what == try ->
      reply = busy
    :: else ->
      n = (what == ask -> C[c].ticket : 0);
      if
      :: !in_line(c) && n == 0 ->
        for (i : 0 .. N-1) { n = MAX(n, C[i].place); n = MAX(n, C[i].ticket); n = MAX(n, C[i].rticket) }
        C[c].place = n + 1
      :: !in_line(c) && n > 0 ->
        C[c].place = n
      :: else
      fi;
      C[c].alive = PATIENCE;
      reply = queued
    fi
  fi
}

/* Any script, for the client c. */
inline script() {
  reply = none;
  if
  :: what == join || what == ask || what == try -> acquire()
  :: what == beat ->
    if
    :: in_line(c) ->
      C[c].alive = PATIENCE;
      reply = queued
#ifdef MUTANT_NO_NEWS
    :: C[c].owns -> reply = queued
#endif
    :: else ->
      reply = ask_again; // it was granted the lock, or it is gone
      SEEN(beat_finds_it_out)
    fi;
    admit(NOBODY);
    if
#ifndef MUTANT_NO_NEWS
    :: C[c].owns -> reply = ask_again; SEEN(beat_finds_grant)
#endif
    :: else
    fi
  :: what == renew ->
    if
    :: C[c].owns ->
      left = MAX(left, TTL);
      reply = renewed
    :: else ->
      reply = lost
    fi
  :: what == release || what == leave ->
    if
    :: C[c].owns ->
      C[c].owns = false;
      left = 0
    :: else ->
      if
      :: left > 0 && fate == arrived -> SEEN(stray_denied)
      :: left > 0 && fate != arrived && what == release -> SEEN(release_denied)
      :: else
      fi;
#ifdef MUTANT_NO_OWNER_CHECK
      for (i : 0 .. N-1) { C[i].owns = false }
      left = 0
#endif
    fi;
    if
    :: what == leave -> C[c].place = 0
    :: else
    fi;
    admit(NOBODY)
  :: else
  fi;
  printf("redis    answers to client %d: %e\n", c, reply);
  C[c].rticket = C[c].place;
  C[c].rfence = fence
}

/* ---- After every step ---- */

#define SWAP(f) n = C[i].f; C[i].f = C[j].f; C[j].f = n
#define KEY1(i) (((((C[i].at * 32 + C[i].msg) * 32 + C[i].stray) * 8 + C[i].clock) * 8 + C[i].sent) * 8 + C[i].alive)
#define KEY2(i) (((((((C[i].place * 16 + C[i].ticket) * 16 + C[i].rticket) * 4 + C[i].rfence) * 4 + C[i].wfence) \
  * 4 + C[i].floor) * 8 + C[i].given) * 2 + C[i].owns)

/* Checks what must hold in every state, and brings the state into a form in which states that differ in nothing that
   matters are one: what nobody will look at is 0, numbers keep their order but not their size, clients are sorted. */
inline settle() {
  h = 0;
  n = 0;
  for (i : 0 .. N-1) {
    h = h + (C[i].at == holding);
    n = n + C[i].owns
  }
  two_holders = h > 1;
  two_owners = n > 1;
  assert(!two_holders);
  assert(!two_owners);

  for (i : 0 .. N-1) {
    if
    :: C[i].at == gone && !C[i].owns && !in_line(i) && C[i].stray == none && C[i].msg == none -> C[i].at = away
    :: C[i].at == gone && C[i].msg == leave && !in_line(i) && C[i].stray == none -> C[i].msg = release
    :: else
    fi;
    if
    :: C[i].at == waiting
    :: else ->
      C[i].given = 0;
      if
      :: C[i].at != holding -> C[i].clock = 0
      :: else
      fi;
      if
      :: C[i].stray != ask -> C[i].ticket = 0
      :: else
      fi
    fi;
    if
    :: C[i].at == gone || C[i].msg == none || C[i].msg == busy || C[i].msg == ask_again || C[i].msg == lost ->
      C[i].sent = 0
    :: C[i].at != gone && (C[i].msg == beat || C[i].msg == queued) ->
      C[i].sent = MIN(C[i].sent, PATIENCE)
    :: else
    fi;
    if
    :: C[i].msg != queued ->
      C[i].rticket = 0;
      C[i].rfence = 0
    :: else
    fi;
    if
    :: !in_line(i) -> C[i].alive = 0
    :: else
    fi;

    // A client compares its fences with that of the wake-up under way; those to come are above all of them.
    if
    :: C[i].given == 0 ->
      C[i].wfence = 0;
      C[i].floor = 0;
      C[i].rfence = 0
    :: else ->
      C[i].floor = (C[i].wfence > C[i].floor -> 0 : 2);
      C[i].rfence = (C[i].wfence > C[i].rfence -> 0 : 2);
      C[i].wfence = 1
    fi
  }
  fence = 2;

  // Tickets: no gaps.
  for (n : 1 .. 3*N) {
    j = 255; // the lowest of those that are left
    for (i : 0 .. N-1) {
      if :: C[i].place >= n -> j = MIN(j, C[i].place) :: else fi;
      if :: C[i].ticket >= n -> j = MIN(j, C[i].ticket) :: else fi;
      if :: C[i].rticket >= n -> j = MIN(j, C[i].rticket) :: else fi
    }
    if
    :: j == 255 -> break
    :: j == n
    :: else ->
      for (i : 0 .. N-1) {
        if :: C[i].place == j -> C[i].place = n :: else fi;
        if :: C[i].ticket == j -> C[i].ticket = n :: else fi;
        if :: C[i].rticket == j -> C[i].rticket = n :: else fi
      }
    fi
  }
#ifndef TRACE
  for (i : 0 .. N-2) {
    for (j : i+1 .. N-1) {
      key_i = KEY1(i);
      key_j = KEY1(j);
      if
      :: key_i == key_j ->
        key_i = KEY2(i);
        key_j = KEY2(j)
      :: else
      fi;
      if
      :: key_i > key_j ->
        SWAP(at); SWAP(clock); SWAP(ticket); SWAP(floor); SWAP(msg); SWAP(sent); SWAP(rticket); SWAP(rfence);
        SWAP(stray); SWAP(given); SWAP(wfence); SWAP(owns); SWAP(place); SWAP(alive)
      :: else
      fi
    }
  }
#endif
  i = 0; j = 0; h = 0; n = 0; c = 0
}

/* ---- A client (fairlock) ---- */

#define asks(q) C[c].msg = q; C[c].sent = 0; printf("client %d sends %e\n", c, C[c].msg)

/* believed: what is left of a lease of so many ticks that began after a question was sent so many ticks ago. */
#define believed(ticks, ago, late) (ticks - MARGIN - ago + late)

#ifdef MUTANT_FROM_REPLY
#define since_sent 0
#else
#define since_sent C[c].sent
#endif
#ifdef MUTANT_FULL_TTL
#define given_to(c) TTL
#else
#define given_to(c) C[c].given
#endif

/* It hears of a grant (wait, sleep, suffices). */
inline hears(late) {
  printf("client %d hears of the grant, its clock being late by %d\n", c, late);
  if
  :: C[c].wfence <= C[c].floor ->
    C[c].given = 0;
    SEEN(wakeup_of_an_earlier_grant)
  :: C[c].wfence > C[c].floor && believed(given_to(c), C[c].clock, late) > 0 ->
    C[c].at = holding;
    C[c].clock = believed(given_to(c), C[c].clock, late);
    printf("client %d holds the lock, for %d\n", c, C[c].clock);
    C[c].msg = none; // a beat
    calm;
    SEEN(handed_over)
  :: else ->
    C[c].given = 0;
    SEEN(handed_over_too_late);
    if
    :: C[c].msg == none -> asks(ask)
    :: else
    fi
  fi
}

/* It is granted what it asked for (granted, newLease). */
inline takes(late) {
  printf("client %d reads that it was granted, its clock being late by %d\n", c, late);
  if
  :: believed(TTL, since_sent, late) > 0 ->
    C[c].at = holding;
    C[c].clock = believed(TTL, since_sent, late);
    printf("client %d holds the lock, for %d\n", c, C[c].clock);
    C[c].msg = none;
    calm;
    SEEN(granted)
  :: else ->
    SEEN(granted_too_late);
    if
    :: C[c].at == trying ->
      ends(leave)
    :: else ->
      asks((C[c].ticket > 0 -> ask : join))
    fi
  fi
}

/* It is told that it is in the queue (queued, confirm). */
inline is_queued() {
  C[c].ticket = C[c].rticket;
  C[c].clock = C[c].sent;
#ifndef MUTANT_NO_FLOOR
  C[c].floor = MAX(C[c].floor, C[c].rfence);
#endif
  C[c].msg = none;
  printf("client %d reads that it is queued\n", c)
}

/* Its lease is renewed (extended). */
inline extends(late) {
  printf("client %d reads that its lease is renewed, its clock being late by %d\n", c, late);
  if
  :: believed(TTL, C[c].sent, late) > C[c].clock -> C[c].clock = believed(TTL, C[c].sent, late)
  :: else
  fi;
  if
  :: C[c].sent > 0 -> SEEN(renewed_late)
  :: else -> SEEN(renewed)
  fi;
  C[c].msg = none
}

/* It is done with this acquisition, and sends that, or nothing. */
inline ends(q) {
  C[c].at = gone;
  C[c].msg = q;
  printf("client %d ends; it sends: %e\n", c, C[c].msg)
}

/* What it has sent and no longer waits for may still arrive. */
inline abandons() {
  if
  :: C[c].stray == none && is_question(C[c].msg) && C[c].msg != beat -> C[c].stray = C[c].msg
  :: else
  fi
}

#define is_free(me) (C[me].msg == none || C[me].msg == beat || C[me].msg == ask_again)

proctype client(byte me) {
  do
  :: atomic {
    if
    :: d_step { C[me].at == away -> c = me; C[c].at = waiting; asks(join) }
    :: d_step { C[me].at == away -> c = me; C[c].at = trying; asks(try) }

    // Waiting: it beats or asks once between two ticks, and asks whenever it is told to.
    :: d_step { C[me].at == waiting && C[me].msg == none && C[me].clock > 0 -> c = me; asks(beat) }
    :: d_step { C[me].at == waiting && C[me].msg == none && C[me].clock > 0 -> c = me; asks(ask) }
    :: d_step { C[me].msg == ask_again -> c = me; asks(ask) }
    :: d_step { C[me].msg == queued -> c = me; is_queued() }
    :: d_step { C[me].msg == granted -> c = me; takes(0) }
    :: d_step { C[me].msg == granted -> c = me; takes(DRIFT) }
    :: d_step { C[me].given > 0 && is_free(me) -> c = me; hears(0) }
    :: d_step { C[me].given > 0 && is_free(me) -> c = me; hears(DRIFT) }
    :: d_step { C[me].msg == busy -> c = me; SEEN(busy); ends(none) }

    // Its ctx ends: it leaves once its question is answered, or will not be.
    :: d_step { C[me].at == waiting && !is_question(C[me].msg) -> c = me; ends(leave) }
    :: d_step { C[me].at == waiting && is_question(C[me].msg) && may_fail -> c = me; fault; abandons(); ends(leave) }

    // Holding: it renews if that can make it longer, and unlocks when it likes, also while it renews.
    :: d_step { C[me].at == holding && C[me].msg == none && C[me].clock < TTL - MARGIN + DRIFT -> c = me; asks(renew) }
    :: d_step { C[me].msg == renewed -> c = me; extends(0) }
    :: d_step { C[me].msg == renewed -> c = me; extends(DRIFT) }
    :: d_step { C[me].msg == lost -> c = me; SEEN(renewal_denied); ends(none) }
    :: d_step { C[me].at == holding && C[me].msg != renew -> c = me; ends(release) }
    :: d_step { C[me].at == holding && C[me].msg == renew && may_fail -> c = me; fault; abandons(); ends(release) }

    // It crashes.
    :: d_step { (C[me].at == waiting || C[me].at == trying || C[me].at == holding) && may_fail -> c = me;
      fault; abandons(); ends(none) }
    fi;
    d_step { settle() }
  }
  od
}

/* ---- What lies between: questions, answers and wake-ups are late, lost, or doubled ---- */

/* No answer (wait, giveUp): who has no ticket gives up, and who only tries; others ask again when it is time. */
inline errs() {
  if
  :: C[c].at == trying || C[c].at == waiting && C[c].ticket == 0 ->
    C[c].at = gone;
    C[c].msg = leave
  :: else ->
    C[c].msg = none
  fi
}

#define can_hang(c) (C[c].stray == none && is_question(C[c].msg) && C[c].msg != beat && may_fail)

proctype network(byte me) {
  do
  :: atomic {
    if
    :: is_question(C[me].msg) -> fate = answered
    :: is_question(C[me].msg) && may_fail -> fate = repeated  // the answer is lost, and go-redis sends it once more
    :: is_question(C[me].msg) && may_fail -> fate = swallowed // it is carried out, and the answer is lost
    :: C[me].msg != none && may_fail -> fate = failed         // it is lost, or its answer is
    :: can_hang(me) -> fate = doubled                         // it hangs, and is sent again over another connection
    :: can_hang(me) -> fate = hung                            // it hangs, and the client waits no longer
    :: C[me].stray != none -> fate = arrived
    :: C[me].stray != none -> fate = vanished
    :: C[me].given > 0 && may_fail -> fate = unheard          // the wake-up
    fi;
    d_step {
      c = me;
      what = (fate == arrived || fate == vanished -> C[c].stray : C[c].msg);
      printf("network  %e of client %d: %e\n", what, c, fate);
      if
      :: fate == answered -> script(); C[c].msg = reply
      :: fate == repeated -> script(); fault; SEEN(repeated)
      :: fate == swallowed -> script(); fault; errs()
      :: fate == failed -> fault; errs()
      :: fate == doubled -> C[c].stray = what; fault
      :: fate == hung -> C[c].stray = what; fault; errs()
      :: fate == arrived -> C[c].stray = none; script(); calm; SEEN(stray_arrives)
      :: fate == vanished -> C[c].stray = none
      :: fate == unheard -> C[c].given = 0; fault; SEEN(wakeup_lost)
      fi
    };
    d_step { settle() }
  }
  od
}

/* ---- Time ---- */

/* A tick is a fault for a client whose message it finds under way, or whom Redis has not called queued since the last
   tick though it waits. With faults to spare, or without a bound on them, everything may be late by any time. */
#define late(i) (C[i].msg != none || C[i].given > 0 || C[i].at == waiting && C[i].clock > 0)

proctype time() {
  do
  :: d_step {
#ifdef FAULTS
    late(0) + late(1) + (N > 2 -> late(2 % N) : 0) + (N > 3 -> late(3 % N) : 0) <= faults ->
    n = late(0) + late(1) + (N > 2 -> late(2 % N) : 0) + (N > 3 -> late(3 % N) : 0);
    faults = faults - n;
    stall = (n > 0 -> 0 : stall + 1);
#endif
    n = 0; // who waits
    h = 0; // who holds
    for (i : 0 .. N-1) {
      if
      :: C[i].msg != none && C[i].sent < TTL -> C[i].sent++
      :: else
      fi;
      if
      :: C[i].at == holding ->
        C[i].clock--;
        if
        :: C[i].clock == 0 -> C[i].at = gone; C[i].msg = none; printf("client %d finds its lease over\n", i);
          SEEN(expired_at_the_holder)
        :: else -> h++
        fi
      :: C[i].at == waiting && C[i].ticket > 0 ->
        C[i].clock = MIN(C[i].clock + 1, PATIENCE);
        n++
      :: else
      fi;
      if
      :: C[i].alive > 0 -> C[i].alive--
      :: else
      fi;
#ifndef MUTANT_NO_EXPIRY
      if
      :: C[i].owns && left == 1 -> C[i].owns = false; SEEN(expired_in_redis)
      :: else
      fi
#endif
    }
#ifndef MUTANT_NO_EXPIRY
    left = MAX(left, 1) - 1;
#endif
    printf("time     a tick; %d to go in Redis\n", left);
#ifdef FAULTS
    stall = (n == 0 || h > 0 -> 0 : stall);
    stuck = stall > BOUND;
    assert(!stuck);
#endif
    settle()
  }
  od
}

init {
  atomic {
    c = 0;
    do
    :: c < N -> run client(c); run network(c); c++
    :: else -> break
    od;
    run time();
    c = 0
  }
}
