-- leave: takes a waiter out of the queue and, if it had been granted the lock meanwhile, releases that.
-- KEYS  queue alive fence
-- ARGV  token ttl bury
--       ttl: ms, the most a waiter is given; bury: for how many ms this token is refused from now on, 0 for none
-- reply released state grants   as release
local token, ttl, bury = ARGV[1], ARGV[2], ARGV[3]

local mine = holds(token)
if mine then drop(token) end
forget(token)
if bury ~= '0' then -- with a negative time; those whose time is over go at the next occasion
  call('ZREMRANGEBYSCORE', alive, digits(-now), 0)
  call('ZADD', alive, digits(-now - bury * 1000), short(token))
  if call('PTTL', alive) < tonumber(bury) then call('PEXPIRE', alive, bury) end
end
local grants, state = handover(tonumber(ttl))
return { mine and 1 or 0, state, grants }
