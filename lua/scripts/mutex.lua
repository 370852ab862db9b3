-- Who may hold a mutex: one. KEYS[4] lock is a string, the owner's token; it exists exactly while the lock is held.

local lock = KEYS[4]
local owner = call('GET', lock)

local function holds(token) return owner == token end

-- Is there anything to give away? Only then is the head of the queue in the way, and judged.
local function vacant() return not owner end

-- Does what is vacant suffice for this waiter?
local function fits() return true end

local function take(token, ms)
  call('SET', lock, token, 'NX', 'PX', ms)
  owner = token
end

local function drop(_)
  call('DEL', lock)
  owner = false
end

local function extend(_, ms)
  if call('PTTL', lock) < ms then call('PEXPIRE', lock, ms) end
end

-- The fence of a holder: the last one, for nobody was granted the lock since.
local function fenceof() return last() end

-- ms until a holding ends by itself; -1 if none will.
local function soonest() return call('PTTL', lock) end

local function holders()
  if not owner then return {} end
  return { { owner, digits(last() or 0), call('PTTL', lock) } }
end

local function dropall() drop(owner) end
