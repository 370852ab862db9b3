-- force_release: ends the leases of all holders up to a fence, and hands the lock off.
-- ARGV  fence_ttl seen
--       seen: the last number that the caller knows; a lease with a higher fence stays
-- reply released state grants...   as release
local seen = ARGV[2]
local released, more = end_leases(tonumber(seen))
local reply = hand_off(released)
return more and string.gsub(reply, '%a+', 'more', 1) or reply
