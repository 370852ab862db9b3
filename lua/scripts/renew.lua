-- renew: extends a lease to ttl from now, at most to the TTL in its token.
-- ARGV  fence_ttl token ttl fence
--       ttl    ms
--       fence  of the lease
-- reply renewed | lost
local token, ttl, fence = ARGV[2], ARGV[3], ARGV[4]
if fence_of(token) ~= fence then return 'lost' end
extend(token, math.min(tonumber(ttl), ttl_of(token)))
return 'renewed'
