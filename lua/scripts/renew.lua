-- renew: extends a holding, never shortens it, and keeps the fence alive.
-- KEYS  queue alive fence lock
-- ARGV  wake token ttl fence
--       ttl in ms; fence: of the holding, 0 if the caller does not know it
-- reply renewed fence     fence: of the holding
--     | lost
local token, ttl, held = select(2, unpack(ARGV))
if not holds(token) then return { 'lost' } end
local mine = math.max(tonumber(held), fenceof(token) or now())
extend(token, tonumber(ttl))
if call('PEXPIRE', fence, DAY) == 0 then record(mine) end
return { 'renewed', digits(mine) }
