-- force-release: takes the lock from whoever holds it, raises the fence, and hands over.
-- KEYS  queue alive fence
-- ARGV  ttl seen
--       ttl: ms, the most a waiter is given; seen: the last fence that the caller knows: who was granted the lock
--       after that keeps it
-- reply released state grants   as release
local ttl, seen = ARGV[1], ARGV[2]

local taken, more = dropall(tonumber(seen))
if taken then mark(0) end
local grants, state = handover(tonumber(ttl))
return { taken and 1 or 0, more and 'more' or state, grants }
