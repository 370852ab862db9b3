-- renew: has a lease last for ttl from now, at most for the TTL in its token, and keeps the fence.
-- KEYS  queue alive fence
-- ARGV  token ttl known
--       ttl in ms; known: the fence of the lease, 0 if the caller does not know it
-- reply renewed fence     fence: of the lease
--     | lost
local token, ttl, known = ARGV[1], ARGV[2], ARGV[3]
if not holds(token) then return { 'lost' } end
return { 'renewed', extend_lease(token, math.min(tonumber(ttl), ttl_of(token)), tonumber(known)) }
