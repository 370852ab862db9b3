-- What admission needs to know of a mutex. The same functions as in permits_more.lua.

local owner = call('GET', lock)

local function holds(token) return owner == token end

-- Is there anything to give away? Only then is the head of the queue in the way, and judged.
local function vacant() return not owner end

-- Does what is vacant suffice for this waiter?
local function fits() return true end

-- Every grant to a waiter is made here. The fence comes first: it can have the wrong type, the lock cannot.
local function grant(token, ms)
  local f = mark(ms)
  call('SET', lock, token, 'NX', 'PX', ms)
  owner = token
  return f
end

local function drop()
  call('DEL', lock)
  owner = false
end

-- There is one permit: nobody can want another number of them, or of another capacity, and nothing is written of it.
local function nothing() end
local unwant, unswept, tidy = nothing, nothing, nothing
