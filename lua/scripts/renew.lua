-- renew: extends a holding, never shortens it, and keeps the fence alive.
-- KEYS  queue alive fence
-- ARGV  token ttl held
--       ttl in ms; held: the fence of the holding, 0 if the caller does not know it
-- reply renewed fence     fence: of the holding
--     | lost
local token, ttl, held = ARGV[1], ARGV[2], ARGV[3]
if not holds(token) then return { 'lost' } end
held = tonumber(held)
local mine = digits(fenceof(token, held > 0 and held or nil))
local kept = keepfence(ttl)
extend(token, tonumber(ttl))
if kept == 0 then call('SET', fence, mine, 'PX', math.max(DAY, 2 * ttl)) end
return { 'renewed', mine }
