-- force_release: ends the leases of all holders up to a fence, and hands the lock off.
-- KEYS  number queue heartbeats tombstones
-- ARGV  fence_ttl seen
--       seen: the last number that the caller knows; a lease with a higher fence stays
-- reply released state grants...   as release
local seen = ARGV[2]

local taken, more = release_holders(remove_holders, tonumber(seen))
local reply = hand_off(taken and 1 or 0)
if more then reply[2] = 'more' end
return reply
