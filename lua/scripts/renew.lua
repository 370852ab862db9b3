-- renew: extends a lease, never shortens it, and keeps the fence.
-- KEYS  queue alive fence
-- ARGV  token ttl known
--       ttl in ms; known: the fence of the lease, 0 if the caller does not know it
-- reply renewed fence     fence: of the lease
--     | lost
local token, ttl, known = ARGV[1], ARGV[2], ARGV[3]
if not holds(token) then return { 'lost' } end
return { 'renewed', extend_lease(token, tonumber(ttl), tonumber(known)) }
