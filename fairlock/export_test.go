package fairlock

// What tests of this package look at from outside.
var NextRenewal = nextRenewal

// Registered is how many acquisitions a client knows, and of how many locks. No call is under way.
func (c *Client) Registered() [2]int { return [2]int{len(c.waiters), len(c.locals)} }
