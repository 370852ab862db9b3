-- What a mutex is, for those who do not find it idle. The same functions as in permits_more.lua.

local owner = call('GET', lock)

local function holds(token) return owner == token end

-- Is there anything to give away? Only then is the head of the queue in the way, and judged.
local function vacant() return not owner end

local function held() return owner end

-- There is one permit, so nobody can want another number of them, or of another capacity.
local function meet() end
local function adopt() end
local function stand() end
local function unwant() end
local function unswept() end

-- Does what is vacant suffice for this waiter?
local function fits() return true end

-- Every grant to a waiter is made here. The fence comes first: it can have the wrong type, the lock cannot.
local function grant(token, ms)
  local f = mark(ms)
  call('SET', lock, token, 'NX', 'PX', ms)
  owner = token
  return f
end

local function extend(_, ms)
  if call('PTTL', lock) < ms then call('PEXPIRE', lock, ms) end
end

local function drop()
  call('DEL', lock)
  owner = false
end

local function dropall(seen)
  local taken = owner and (last() or 0) <= seen
  if taken then drop() end
  return taken
end

local function tidy() end

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
