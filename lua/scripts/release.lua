-- release: ends a lease, and hands the lock off to the head of the queue in the same step.
-- ARGV  fence_ttl token fence
--       fence: of the lease
-- reply released state grants...   released: 1 if it was held by that lease, else 0; state: of the queue afterwards,
--       empty, blocked or more (a bound was reached, call again); grants: token, fence and ms of each
local token, fence = ARGV[2], ARGV[3]
return hand_off(end_lease(token, fence))
