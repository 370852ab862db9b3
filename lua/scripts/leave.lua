-- leave: takes a waiter out of the queue and, if it had been granted the lock meanwhile, releases that.
-- KEYS  queue alive fence lock
-- ARGV  token ttl
--       ttl: ms, the most a waiter is given
-- reply released state grants   as release
local token, ttl = ARGV[1], ARGV[2]

local mine = holds(token)
if mine then drop(token) end
forget(token)
local grants, state = handover(tonumber(ttl))
return { mine and 1 or 0, state, grants }
