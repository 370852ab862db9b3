package fairlock

import "time"

// Stats describes a Client at one moment.
type Stats struct {
	Leases   int // leases that are held
	Waiters  int // waiters that Redis has queued
	Requests int // requests to Redis that have not ended, including those that wait to be sent

	// OutageSince is the time of the first failure in the present outage, else zero. It begins with a second failure 1 s
	// or more after the first, and ends 5 s after the latest if a request has succeeded since (on a Cluster one for the
	// same lock), else a minute after it. No reply for 2 s is a failure, too.
	OutageSince time.Time

	// RefusedSince is since when Redis, or a proxy before it, refuses what the client tries again, else zero. It begins
	// and ends as an outage does, for each lock by itself.
	RefusedSince time.Time
}

// Stats returns what the client does now. It does no I/O, and works after Close.
func (c *Client) Stats() Stats {
	since, _ := c.calls.Outage()
	refused, _ := c.calls.Refusals()
	leases, _ := c.tasks.Held()
	return Stats{
		Leases: leases, Waiters: c.waiters.Queued(), Requests: c.calls.Requests(), OutageSince: since, RefusedSince: refused,
	}
}
