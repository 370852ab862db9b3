-- The store of a mutex: at most one holder.
--
-- lock  string  "<token> <fence>" of the holder; it exists while the lock is held, and expires with the lease
--
-- Contract. permits/store.lua provides the same.
--   count()              removes expired holders, and all of them if a part of their records was lost. After read_number. Returns
--                        the record of the used permits; false if there is none
--   more_expired         whether count() has left expired holders, because it removes a bounded number
--   weight_of(token)     how many permits it asks for
--   full()               whether no token fits, whatever it asks for
--   fits(token, less)    whether so much is free as the token asks for, or would be after less permits had ended; less: optional
--   resized_to           the number of permits that a resize has set, as the number or read_resized() says; nil: none has
--   read_resized()       reads it from its key, for those who declare that
--   too_large(token)     whether it asks for more permits than that
--   fence_of(token)      the text of the fence of the token's lease; nil if it holds no lease
--   holder()             the token of a holder, of permits the one whose lease ends last; '' if there is none
--   highest_fence()      of all holders; 0 if there is none
--   put(token, fence, ms) makes the token a holder, of a mutex in place of the one that holds the lock
--   extend(token, ms)    has a holder's lease last for ms from now. It takes no memory
--   remove(token)        ends a holder's lease. It takes no memory
--   end_leases(seen, from)
--                        ends the leases whose fences are not above seen, of a bounded number of holders. Returns whether
--                        there was one, and from where to go on; '0': that was the last. from: '0', or what the call before
--                        has returned
--   next_end()           ms after which a lease has ended; -1 if none will
--   free_after(token)    ms after which enough rests of minimum holds have ended for the token, and the holder that ends last of
--                        these; -1 and another holder if leases that may be renewed are in the way, or more holders than are read
--   clear()              deletes what is recorded, if nothing is held
--   usage(limit)         used permits, the number that a resize has set or 0, and at most limit holders {token, fence, ms left}

local owner, fence = string.match(held or '', '^(.*) (%d+)$')
local more_expired = false
local highest = tonumber(fence or 0) -- it counts also when its lease has ended

local function weight_of() return 1 end

local function full() return held end

local function fits() return not held end

local function fence_of(token) return owner == token and fence or nil end

local function holder() return owner or '' end

local function highest_fence() return highest end

local function put(token, given, ms)
  call('SET', lock, token .. ' ' .. given, held and 'XX' or 'NX', 'PX', ms)
  held, owner, fence = true, token, given
end

local function extend(_, ms) call('PEXPIRE', lock, ms) end

local function remove(token)
  if token ~= owner then return false end
  call('DEL', lock)
  held, owner, fence = nil, nil, nil
  return true
end

local function end_leases(seen) return held and highest <= seen and remove(owner), '0' end

local function next_end()
  local left = call('PTTL', lock)
  return left < 0 and -1 or left + 1
end

local function free_after() return is_rest(holder()) and next_end() or -1, holder() end

local function usage(limit)
  if not held then return 0, 0, {} end
  return 1, 0, limit > 0 and { { owner or held, tonumber(fence or 0), call('PTTL', lock) } } or {}
end

local function nothing() end
local count, clear, too_large, read_resized, resized_to = nothing, nothing, nothing, nothing, nil
