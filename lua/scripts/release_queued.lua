-- release, continued.
local mine = holds(token)
if mine then drop(token) end
local grants, state = handover(tonumber(ttl))
return { mine and 1 or 0, state, grants }
