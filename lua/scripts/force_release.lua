-- force_release: ends the leases of all holders up to a fence, raises the fence, and hands the lock off.
-- KEYS  queue alive fence
-- ARGV  seen
--       seen: the last fence that the caller knows; a lease with a higher fence stays
-- reply released state grants...   as release
local seen = ARGV[1]

local taken, more = remove_holders(tonumber(seen), last_fence())
if taken then next_fence(0) end
local reply = hand_off(taken and 1 or 0)
if more then reply[2] = 'more' end
return reply
