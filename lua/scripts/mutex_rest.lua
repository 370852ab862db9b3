-- What else there is to know of a mutex. The same functions as in permits_rest.lua.

local meet, adopt, stand = nothing, nothing, nothing

local function held() return owner end

local function extend(_, ms)
  if call('PTTL', lock) < ms then call('PEXPIRE', lock, ms) end
end

local function dropall(seen)
  local taken = owner and (last() or 0) <= seen
  if taken then drop() end
  return taken
end

-- The fence of the holder is the last one, for nobody was granted the lock since.
local function fenceof(_, known)
  local f = math.max(known or 0, last() or 0)
  return f > 0 and f or now
end

-- ms until a holding ends by itself; -1 if none will.
local function soonest() return call('PTTL', lock) end

-- What the queue keeps alive, beside itself.
local function kept() return {} end

local function weightof() return 1 end

local function count() return owner and 1 or 0, 1 end

local function list(limit)
  if not owner or limit == 0 then return {} end
  return { { owner, digits(last() or 0), call('PTTL', lock), 1 } }
end
