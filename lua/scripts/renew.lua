-- renew: has a lease last for ttl from now, at most for the TTL in its token.
-- ARGV  fence_ttl token ttl fence
--       ttl: ms; fence: of the lease
-- reply renewed
--     | lost fence     fence: of a later lease of the same token, 0 if there is none
local token, ttl, fence = ARGV[2], ARGV[3], ARGV[4]
local has = fence_of(token)
if not has then return 'lost 0' end
if fence ~= has then return 'lost ' .. has end
extend(token, math.min(tonumber(ttl), ttl_of(token)))
return 'renewed'
