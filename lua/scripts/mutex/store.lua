-- The store of a mutex: at most one holder, and one permit.
--
-- lock  string  "<token> <fence>" of the holder; it exists while the lock is held, and expires with the lease
--
-- Contract. permits/store.lua provides the same.
--   free, total          the number of free permits, and of all that are in force, once count() has been called
--   fixed                whether that number was resized
--   more_expired         whether count() has left expired holders, because it removes a bounded number
--   count(capacity)      removes expired holders, and all of them if a part of their records was lost. capacity: that a
--                        request brings, of permits; nil: none. After read_number
--   fence_of(token)      the text of the fence of the token's lease; nil if it holds no lease
--   holder()             the token of a holder, of permits the one whose lease ends last; '' if there is none
--   highest_fence()      of all holders; 0 if there is none
--   put(token, fence, ms) makes the token a holder
--   extend(token, ms)    has a holder's lease last for ms from now. Its first write takes no memory
--   end_lease(token, fence, kept)
--                        ends the token's lease, if it has that fence; nil: any. Returns whether it did. If kept is above 0, the
--                        lock stays taken for so many ms, under the token with the flag RELEASED. The first write takes no memory
--   end_leases(seen, from)
--                        ends the leases whose fences are not above seen, of a bounded number of holders. Returns whether
--                        there was one, and from where to go on; '0': that was the last. from: '0', or what the call before
--                        has returned
--   next_end()           ms after which a lease has ended; -1 if none will
--   any_released()       whether a lease was released that is kept
--   keep(ms)             keeps what is recorded of holders for another ms
--   clear()              deletes what is recorded, if nothing is held. The queue is empty
--   usage(limit)         used permits, capacity, and at most limit holders {token, fence, ms left}

local owner, fence = string.match(held or '', '^(.*) (%d+)$')
local free, total, fixed = held and 0 or 1, 1, false
local more_expired = false
local highest = tonumber(fence or 0) -- it counts also when its lease has ended

local function fence_of(token) return owner == token and fence or nil end

local function holder() return owner or '' end

local function highest_fence() return highest end

local function put(token, given, ms)
  call('SET', lock, token .. ' ' .. given, 'NX', 'PX', ms)
  owner, fence, free = token, given, 0
end

local function extend(_, ms) call('PEXPIRE', lock, ms) end

local function delete()
  call('DEL', lock)
  owner, fence, free = nil, nil, 1
  return true
end

local function end_lease(token, given, kept)
  if owner ~= token or given and given ~= fence then return false end
  if kept <= 0 then return delete() end
  call('PEXPIRE', lock, kept)
  owner = flagged(token, RELEASED)
  call('SET', lock, owner .. ' ' .. fence, 'PX', kept)
  return true
end

local function any_released() return owner and has_flag(owner, RELEASED) end

local function end_leases(seen) return held and highest <= seen and delete(), '0' end

local function next_end()
  local left = call('PTTL', lock)
  return left < 0 and -1 or left + 1
end

local function usage(limit)
  if not held then return 0, 1, {} end
  return 1, 1, limit > 0 and { { owner or held, tonumber(fence or 0), call('PTTL', lock) } } or {}
end

local function nothing() end
local count, keep, clear = nothing, nothing, nothing
