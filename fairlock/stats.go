package fairlock

import "time"

// Stats is what a Client does at one moment.
type Stats struct {
	Leases   int // that are held
	Waiters  int // that Redis has queued
	Requests int // to Redis that have not ended, including those that wait to be sent

	// OutageSince is when the first request failed of an outage that goes on, else zero. A request fails if it has had no reply
	// for two seconds, or is to be sent again, because its connection broke or Redis cannot serve it now. It is an outage once
	// another one fails a second or more later. It is over 5 s after the latest failure if a request has succeeded since (on a
	// Cluster one for the same lock), and after a minute in any case.
	OutageSince time.Time
}

// Stats returns what the client does now. It does no I/O, also after Close.
func (c *Client) Stats() Stats {
	since, _ := c.calls.Outage()
	leases, _ := c.tasks.Held()
	return Stats{Leases: leases, Waiters: c.waiters.Queued(), Requests: c.calls.Requests(), OutageSince: since}
}
