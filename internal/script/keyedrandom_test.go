package script_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
)

// How many histories of random steps are tried, and from which seed on.
var (
	keyedRuns = flag.Int("keyed.runs", 40, "histories of random steps of a keyed semaphore")
	keyedSeed = flag.Uint64("keyed.seed", 1, "the first")
)

// keyedRandom draws random steps, with faults: keys that are lost, replies that are lost, requests that run twice or
// arrive late, steps of the clock, and stalls.
type keyedRandom struct {
	*keyedMachine
	*rand.Rand

	all []*caller
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

func (r *keyedRandom) anyone() *caller {
	if len(r.all) == 0 {
		return r.new()
	}
	recent := r.all[max(len(r.all)-14, 0):]
	return recent[r.IntN(len(recent))]
}

func (r *keyedRandom) new() *caller {
	terms := tokens.Terms{
		TTL: pick(r.Rand, ttl, ttl, 5*ttl), Permits: pick(r.Rand, 4, 4, 4, 3, 6), Key: pick(r.Rand, "A", "B", "C", "AB",
			"a b"),
		KeyLimit: pick(r.Rand, 0, 0, 1, 2, 3), Share: pick(r.Rand, 1, 1, 2, 3),
	}
	terms.Weight = 1 + r.IntN(min(terms.Permits, max(terms.KeyLimit, 1)))
	if terms.KeyLimit == 0 {
		terms.Weight = pick(r.Rand, 1, 1, 1, 2, terms.Permits)
	}
	c := r.add(fmt.Sprint("p", len(r.callers)), terms)
	r.all = append(r.all, c)
	return c
}

// successor is a token for a lease of c.
func (r *keyedRandom) successor(c *caller) *caller {
	if c.successor == nil {
		terms := c.terms
		terms.TTL = pick(r.Rand, ttl, 5*ttl)
		if r.IntN(6) == 0 {
			terms.Key = "D"
		}
		c.successor = r.add(fmt.Sprint("p", len(r.callers)), terms)
		c.successor.left = true
	}
	return c.successor
}

func (r *keyedRandom) request(try bool) script.Request {
	return script.Request{
		Try: try, WaiterTTL: pick(r.Rand, waiterTTL, waiterTTL, 2*ttl), MaxWaiters: pick(r.Rand, 0, 0, 0,
			6), MaxLine: pick(r.Rand, 0, 0, 0, 2),
	}
}

func (r *keyedRandom) next() {
	r.once = r.IntN(2) == 0
	switch n := r.IntN(100); {
	case n < 30:
		c := r.new()
		c.try = r.IntN(4) == 0
		r.acquire(c, r.request(c.try))
		if r.IntN(10) == 0 {
			c.ticket, c.fence = 0, 0 // the reply was lost
		}
	case n < 42:
		if c := r.anyone(); !c.left || r.read().Tombstones[c.token.Text()] > r.clock {
			q := r.request(c.try)
			if r.IntN(2) == 0 && !c.try {
				q.Ticket = script.Ticket(c.ticket)
			}
			r.acquire(c, q)
		}
	case n < 62:
		c := r.anyone()
		if o := r.oldest(); o != nil && r.IntN(3) > 0 {
			c = o
		}
		if r.read().Waiter(c.token.Text()) == nil {
			c.left = true
			if r.IntN(4) == 0 {
				r.release(c, pick(r.Rand, 0, ttl, 5*ttl), r.successor(c))
			} else {
				r.release(c, 0, nil)
			}
		}
	case n < 70:
		who := []*caller{r.anyone()}
		if r.IntN(3) == 0 {
			who = append(who, r.anyone(), r.anyone())
		}
		for _, c := range who {
			c.left = true
		}
		r.leave(r.IntN(2) == 0, who...)
	case n < 78:
		var who []*caller
		for _, c := range r.all[max(len(r.all)-12, 0):] {
			if r.IntN(2) == 0 {
				who = append(who, c)
			}
		}
		r.heartbeat(pick(r.Rand, waiterTTL, 2*ttl), who...)
	case n < 82:
		r.resize(pick(r.Rand, 0, 0, 2, 3, 5))
	case n < 84:
		r.force(r.read().Last - uint64(r.IntN(2)))
	case n < 87:
		c := r.anyone()
		if r.resume(c, r.successor(c)) > 0 {
			c.left = true
		}
	case n < 89:
		r.renew(r.anyone())
	case n < 95:
		r.pass(pick(r.Rand, time.Millisecond, time.Second, 10*time.Minute, 31*time.Minute, 70*time.Minute), r.IntN(3) > 0)
	case n < 97:
		r.pass(pick(r.Rand, -time.Second, -time.Minute), true)
	case n < 98 && r.IntN(3) == 0:
		r.lose()
		r.pass(2*time.Minute, true)
	case r.IntN(3) == 0:
		key := pick(r.Rand, "number", "permits", "holders", "queue", "heartbeats", "lines", "turns", "tombstones", "resized")
		r.do(r.t, "DEL", r.keys[key])
		r.history = append(r.history, key+" is lost")
		r.pass(2*time.Minute, true)
	}
}

// The rules hold for random steps with faults.
func TestKeyed_RandomSteps(t *testing.T) {
	for _, part := range []int{0, 1} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			s := real(t)
			for i := part; i < *keyedRuns; i += 2 {
				seed := *keyedSeed + uint64(i)
				m := newKeyed(t, s, 4)
				r := &keyedRandom{keyedMachine: m, Rand: rand.New(rand.NewPCG(seed, 0))}
				m.history = append(m.history, fmt.Sprint("seed ", seed))
				for range 120 {
					r.next()
				}
				for _, c := range r.callers { // nothing is kept
					m.once = true
					m.leave(false, c)
				}
				m.pass(10*ttl, true)
				m.heartbeat(waiterTTL)
				a := m.read()
				require.Empty(t, a.Held)
				require.Empty(t, a.Lines)
				require.Empty(t, a.Levels)
			}
		})
	}
}
