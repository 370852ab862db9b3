-- release, continued: somebody waits.
local grants, state = handover(tonumber(ttl))
return { mine and 1 or 0, state, grants }
