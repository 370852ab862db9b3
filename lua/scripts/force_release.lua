-- force-release: takes the lock from whoever holds it, raises the fence, and hands over.
-- KEYS  queue alive fence lock
-- ARGV  ttl
--       ttl: ms, the most a waiter is given
-- reply released state grants   as release
local ttl = ARGV[1]

local held = #holders() > 0
if held then
  mark()
  drop()
end
local grants, state = handover(tonumber(ttl))
return { held and 1 or 0, state, grants }
