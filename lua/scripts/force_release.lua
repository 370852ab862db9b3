-- force-release: takes the lock from whoever holds it, raises the fence, and hands over.
-- KEYS  queue alive fence lock
-- ARGV  wake ttl
--       ttl: ms, the most a waiter is given
-- reply released state grants   as release
local ttl = tonumber(ARGV[2])

local held = #holders() > 0
if held then
  local raised = math.max(now(), (last() or 0) + 1)
  dropall()
  record(raised)
end
local grants, state = handover(ttl)
return { held and 1 or 0, state, grants }
