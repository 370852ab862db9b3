-- force_release: ends the leases of all holders up to a fence, and hands the lock off.
-- ARGV  fence_ttl seen from
--       seen  the last number that the caller knows; a lease with a higher fence stays
--       from  0, or next of the previous call, which has examined some of the holders
-- reply next released state grants...
--       next  0 if all holders were examined; the others as in the reply of release
local seen, from = ARGV[2], ARGV[3]
local released, cursor = end_leases(tonumber(seen), from)
return cursor .. ' ' .. hand_off(released)
