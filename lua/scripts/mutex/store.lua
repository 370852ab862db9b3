-- The store of a mutex: at most one holder, and one permit.
--
-- Contract. permits/store.lua provides the same. last is the last fence, 0 if there is none. The functions marked * use
-- what free() has read: a script calls free() before them.
--   holds(token)            whether the token holds the lock, by a lease that has not expired
--   holder()                the token of a holder, of permits the one whose lease ends first; false if there is none
--   free()                  number of free permits. It first removes expired holders, at most 1000 in one script
--   expired_remain()        * whether free() has left expired holders
--   weight_of(token)        the weight that a waiter, or the caller of capacity_conflict, asks for
--   capacity_conflict(token, weight, capacity)
--                           records what the caller asks for. If the lock is in use with another capacity, returns that
--   record_want(token)      * records for later scripts what a waiter asks for. Call it before the token is queued
--   forget_want(token)      removes that record
--   grant(token, ms, weight)
--                           * makes the token a holder. Returns its fence as next_fence does. The caller has made sure
--                           that so many permits are free, that the token is no holder, and that no waiter is before it
--   remove_holder(token)    ends the token's lease. Returns 1 if it was a holder, 0 if not
--   remove_holders(seen, last)
--                           ends the leases of all holders whose fence is not above seen. Returns whether there was
--                           one, and whether there may be more, because it has reached its bound
--   extend(token, ms, known, last)
--                           has a holder's lease last for ms from now. Returns the holder's fence; known is what the caller knows of it, or 0. And what to record as the last fence if that was lost
--   next_expiry()           * ms until a lease ends; -1 if none will
--   keep_records(ms)        keeps what is recorded of holders and waiters for a waiter TTL of ms
--   remove_records()        * deletes what is recorded, if nothing is held. Call it only if the queue is empty
--   usage(limit, last)      used permits, capacity, and at most limit holders {token, fence, ms left, weight}

read_clock()
local owner = call('GET', lock)

local function holds(token) return owner == token end

local function holder() return owner end

local function free() return owner and 0 or 1 end

local function weight_of() return 1 end

-- The fence comes first: it can have the wrong type, the lock cannot.
local function grant(token, ms)
  local given, text = next_fence(ms)
  call('SET', lock, token, 'NX', 'PX', ms)
  owner = token
  return given, text
end

local function remove_holder(token)
  if owner ~= token then return 0 end
  owner = false
  return call('DEL', lock)
end

local function remove_holders(seen, last)
  return owner and last <= seen and remove_holder(owner) == 1
end

-- The last fence is the owner's: no waiter was granted the lock since.
local function extend(_, ms, known, last)
  call('PEXPIRE', lock, ms)
  local given = known > last and known or last > 0 and last or now
  return given, given
end

local function next_expiry() return call('PTTL', lock) end

local function usage(limit, last)
  if not owner then return 0, 1, {} end
  return 1, 1, limit > 0 and { { owner, last, call('PTTL', lock), 1 } } or {}
end

-- Every caller asks for the only permit, and nothing is recorded but the owner.
local function nothing() end
local expired_remain, capacity_conflict, record_want, forget_want = nothing, nothing, nothing, nothing
local keep_records, remove_records = nothing, nothing
