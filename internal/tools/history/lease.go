package history

import (
	"cmp"
	"slices"
)

// exclusion: after a grant, the weights of all holders do not exceed the number of permits: that of a resize, or else
// the largest that a holder uses. The weights of a key's holders do not exceed the largest key limit that one of them
// says.
//
// An acquisition is known to hold the lock from Granted, which is recorded after Lock has returned. It holds the lock
// until the first of these: Unlock (recorded before the call), Lost, the kill of its process, the last recorded Until.
// A pause changes nothing. If Unlock has returned nil, it held the lock until Unlock was called. Those between whose
// grants Redis may have lost its data are not added up.
func (c *checker) exclusion(l *lock) {
	var holders []*acquisition
	grants := slices.DeleteFunc(slices.Clone(l.grants), func(a *acquisition) bool { return a.end <= a.granted.At })
	slices.SortStableFunc(grants, func(a, b *acquisition) int { return cmp.Compare(a.granted.At, b.granted.At) })
	for _, b := range grants {
		holders = slices.DeleteFunc(holders, func(a *acquisition) bool { return a.end <= b.granted.At })
		sum, permits, rule, events := b.weight, b.permits, Exclusion, []*Event{b.granted}
		b.beside = b.weight
		ofKey, limit := b.weight, b.limit
		for _, a := range holders {
			b.beside += a.weight
			if c.firstLoss(l, min(a.request.At, b.request.At), max(a.latest(), b.latest()), Holders) != nil {
				continue
			}
			permits = max(permits, a.permits)
			if a.key == b.key {
				ofKey, limit = ofKey+a.weight, max(limit, a.limit)
			}
			if sum += a.weight; a.until <= b.granted.At { // Unlock has returned nil when its trusted time was over
				rule = Results
			}
			events = append(events, a.granted, a.first[Released])
		}
		if ofKey > limit {
			c.violate(rule, events, "key %q holds %d of %d when %v is granted it", b.key, ofKey, limit, b)
		}
		if most := l.most(b.request.At, b.granted.At, permits); sum > most {
			c.violate(rule, events, "%d of %d are held when %v is granted it", sum, most, b)
		} else if b.beside > most {
			c.excuse(Exclusion, dataLost)
		}
		holders = append(holders, b)
	}
}

// use: a lock is used only until the last Until, before Unlock and before Lost. (At of Used is read before Err.) When
// the lease was granted with that fence, or renewed, Redis let it last until then. That is not checked if the server
// was not observed. If Redis's clock was stepped back, a notification from before a loss of the number may be trusted
// after it.
func (c *checker) use(a *acquisition) {
	end := min(a.until+grain, a.time(Unlock), a.time(Lost))
	for _, e := range a.events {
		given := func(s ServerEvent) bool {
			return s.Seen <= e.At && e.Until <= s.Until+grain && (s.Ticket == e.Fence || e.Op == Renewed)
		}
		before := func(s ServerEvent) bool {
			return s.Seen <= e.At && s.Ticket == e.Fence && c.firstLoss(a.lock, s.Seen, e.At, Numbers) != nil
		}
		lasts := c.lasts[a.token]
		switch {
		case e.Op != Granted && e.Op != Renewed, lasts == nil, c.missed, slices.ContainsFunc(lasts, given):
		case c.ClockBack && e.Op == Granted && slices.ContainsFunc(lasts, before):
			c.excuse(Use, dataLost)
		default:
			c.violate(Use, []*Event{e}, "%v trusts its lease for longer than Redis lets it last", a)
		}
		if e.Op == Used && e.At > end {
			c.violate(Use, []*Event{a.granted, a.first[Lost], a.first[Unlock], e}, "%v used it after its end at %s", a,
				seconds(end))
		}
	}
}

// results: a live lease is not reported lost. Redis says so (Lost or NotHeld) only after its last Until, or if its data
// may be lost. A client finds it by its own clock after every Until. A renewal may be answered at that moment, so those
// of the last second do not count.
func (c *checker) results(a *acquisition) {
	for _, e := range a.events {
		until := min(a.trustedUntil(e.At-stall), a.trustedUntil(e.At)) // a resume may have shortened it since
		if byRedis(e) {
			until = a.until
		}
		switch {
		case e.Op != Lost && e.Op != NotHeld, byClose(e), e.At >= until-grain:
		case byRedis(e) && c.firstLoss(a.lock, a.request.At, e.At, Holders) != nil:
			c.excuse(Results, dataLost)
		default:
			c.violate(Results, []*Event{a.granted, e}, "%v was told that its lease is over, which lasts until %s", a,
				seconds(until))
		}
	}
}
