-- release: ends a lease, and hands the lock off to the head of the queue in the same step.
-- ARGV  fence_ttl token fence kept by
--       fence     of the lease
--       kept      ms for which the lock stays taken; 0 if it is free at once
--       by        the token that holds the lock for that time, or nothing
-- reply released state grants...
--       released  1 if that lease held the lock, or if the lock is kept; else 0
--       state     of the queue afterwards: empty, blocked, or more (a bound was reached, call again)
--       grants    token, fence and ms of each
local token, fence, kept, by = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
return hand_off(release(token, fence, tonumber(kept), by))
