package fairlock

import "time"

// Stats is what a Client does at one moment.
type Stats struct {
	Leases   int // that are held
	Waiters  int // that Redis has queued
	Requests int // to Redis that have not ended, including those that wait to be sent

	// OutageSince is when a renewal, a heartbeat or the subscription failed, and since then one of them, or the first request
	// after them, has not succeeded. It is zero if there is no outage, or if nothing has been sent that would show it. On a
	// client that sends nothing more, it stays: Client.Ping, for example, finds out.
	OutageSince time.Time
}

// Stats returns what the client does now. It does no I/O, and can be called as often as a monitoring system likes, also after
// Close.
func (c *Client) Stats() Stats {
	return Stats{
		Leases: c.rt.held(), Waiters: c.queues.waiting(), Requests: c.dispatch.Requests(), OutageSince: c.rt.outage.began(),
	}
}

// held returns how many leases are held.
func (rt *runtime) held() (n int) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for l := range rt.leases {
		if l.life.Err() == nil { // else it will be released because it was lost
			n++
		}
	}
	return n
}

// waiting returns how many waiters are queued.
func (qs *queues) waiting() (n int) {
	qs.mu.Lock()
	all := make([]*queue, 0, len(qs.byLock))
	for _, q := range qs.byLock {
		all = append(all, q)
	}
	qs.mu.Unlock()
	for _, q := range all {
		q.mu.Lock()
		n += len(q.queued)
		q.mu.Unlock()
	}
	return n
}
