package fairlock

// Registered is how many acquisitions a client knows, and of how many locks. No call is under way.
func (c *Client) Registered() [2]int { return [2]int{len(c.queues.byToken), len(c.queues.byLock)} }
