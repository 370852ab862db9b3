-- The store of a mutex: at most one holder, and one permit.
--
-- Contract. permits/store.lua provides the same. The functions marked * use what free() has read: a script calls free()
-- before them.
--   fence_of(token)         the fence of the token's lease; nil if it does not hold the lock, or its lease has expired
--   holder()                the token of a holder, of permits the one whose lease ends last, which may be over; false if there is none
--   free()                  number of free permits. It first removes expired holders, at most 1000 in one script; and all
--                           holders, if a part of their records was lost
--   expired_remain()        * whether free() has left expired holders
--   lost_ttl()              * the longest TTL, ms, of the holders that free() has removed because records were lost, once;
--                           nil if it has removed none
--   capacity_conflict(token, capacity)
--                           * the capacity in use, if it is not the one that the token's request has. Else it stands from now on
--   record_capacity()       * records the capacity for later scripts
--   grant(token, ms, weight)
--                           * makes the token a holder. Returns its fence, the next number, and its text. The caller has made sure that
--                           so many permits are free, that the token is no holder, and that no waiter is before it
--   remove_holder(token, fence)
--                           ends the token's lease, if it has that fence; nil: any. Returns 1 if it was a holder, 0 if not
--   remove_holders(seen)    ends the leases of all holders whose fence is not above seen. Returns whether there was
--                           one, and whether there may be more, because it has reached its bound
--   extend(token, ms)       has a holder's lease last for ms from now
--   next_expiry()           * ms until a lease ends; -1 if none will. If the clock has stepped back, so that more than its
--                           TTL is left of a lease, that is cut first, of permits at most 1000 in one script
--   highest_fence()         of all holders; 0 if there is none, or it is not known
--   keep_records(ms)        keeps what is recorded for another ms
--   remove_records()        * deletes what is recorded, if nothing is held. Call it only if the queue is empty
--   usage(limit)            used permits, capacity, and at most limit holders {token, fence, ms left, weight}

local owner, owner_fence = call('GET', lock), 0
if owner then
  local token, fence = string.match(owner, '^(.*) (%d+)$')
  if token then owner, owner_fence = token, tonumber(fence) end
end

local function fence_of(token) return owner == token and owner_fence or nil end

local function holder() return owner end

local function free() return owner and 0 or 1 end

-- The number comes first: a full server refuses it.
local function grant(token, ms)
  local given, text = next_number()
  write_number(ms)
  call('SET', lock, token .. ' ' .. text, 'NX', 'PX', ms)
  owner, owner_fence = token, given
  return given, text
end

local function remove_holder(token, fence)
  if owner ~= token or fence and fence ~= owner_fence then return 0 end
  owner = false
  return call('DEL', lock)
end

local function remove_holders(seen)
  return owner and owner_fence <= seen and remove_holder(owner) == 1
end

local function extend(_, ms) call('PEXPIRE', lock, ms) end

local function next_expiry()
  local left, ttl = call('PTTL', lock), ttl_of(owner or '')
  if ttl == 0 or left <= ttl then return left end
  call('PEXPIRE', lock, ttl)
  return ttl
end

local function highest_fence() return owner and owner_fence or 0 end

local function usage(limit)
  if not owner then return 0, 1, {} end
  return 1, 1, limit > 0 and { { owner, owner_fence, call('PTTL', lock), 1 } } or {}
end

-- Every caller asks for the only permit, and nothing is recorded but the owner.
local function nothing() end
local expired_remain, lost_ttl, capacity_conflict, record_capacity = nothing, nothing, nothing, nothing
local keep_records, remove_records = nothing, nothing
