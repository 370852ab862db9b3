package history

// Interval is when something took effect: at one moment from From to To.
type Interval struct{ From, To int64 }

// Grant is one grant of a lock with what came of it, for package linear.
type Grant struct {
	Lock, Text       string
	Capacity, Weight int
	Made             Interval // between Request and Granted
	Renewed          Interval // the last renewal: not sent earlier than TTL before its Until; 0 if there is none
	Freed            Interval // between Unlock and Released; or after the trusted time, an ambiguous Unlock, or a loss of data
}

// GrantsInOrder returns the grants of each lock by fence. A Lock that failed may have been granted the lock for a while:
// it is left out, for an order with it is right without it. If Redis's clock was stepped back, fences may fall across a
// loss of data: each loss begins a new list.
func GrantsInOrder(events []Event, run Run) (all [][]Grant) {
	c := newChecker(events, run)
	for _, l := range c.locks {
		lists := make([][]Grant, 1+len(run.Losses))
		for _, a := range l.grants {
			losses := 0 // before it; too many if that is not known
			for _, loss := range run.Losses {
				if run.ClockBack && loss.To < a.request.At {
					losses++
				} else if run.ClockBack && loss.From <= a.latest() {
					losses += len(lists)
				}
			}
			if losses < len(lists) {
				lists[losses] = append(lists[losses], c.grant(l, a))
			}
		}
		all = append(all, lists...)
	}
	return all
}

func (c *checker) grant(l *lock, a *acquisition) Grant {
	g := Grant{l.name, a.String(), l.capacity, a.weight, Interval{a.request.At, a.latest()}, Interval{}, Interval{a.until, never}}
	for _, e := range a.renewed {
		if e.Until-int64(c.TTL) > g.Renewed.From {
			g.Renewed = Interval{max(a.request.At, e.Until-int64(c.TTL)), e.At}
		}
	}
	if a.state == Released {
		g.Freed = Interval{a.unlockedAt(), a.answers[len(a.answers)-1].At}
	} else if len(a.unlocks) > 1 || a.state == Unlock || a.state == Ambiguous {
		g.Freed.From = min(a.until, a.unlockedAt())
	}
	if c.lost(a.lock, a.request.At, g.Renewed.To) != nil {
		g.Renewed = Interval{} // data of a replica may have given it back what it had lost
	}
	if loss := c.lost(a.lock, a.request.At, g.Freed.To); loss != nil {
		g.Freed.From = min(g.Freed.From, max(loss.From, a.request.At))
	}
	return g
}
