-- The store of a mutex: at most one holder.
--
-- lock  string  "<token> <fence>" of the holder; it exists while the lock is held, and expires with the lease
--
-- Contract. permits/store.lua provides the same.
--   count()              removes expired holders, or all holders if a part of their records was lost. Call read_number
--                        before. Returns the record of the used permits, or false
--   more_expired         whether count() has left expired holders, because it removes a bounded number
--   weight_of(token)     the number of permits that it requests
--   full()               whether no token fits, whatever its weight
--   fits(token, less)    whether enough is free for the token, or would be once less permits have ended; less is optional
--   resized_to           the number of permits that a resize has set, from the number or read_resized(); nil: none has
--   read_resized()       reads it from its key, for scripts that declare the key
--   too_large(token)     whether the token requests more permits than that
--   fence_of(token)      the text of the fence of the token's lease; nil if it holds no lease
--   holder()             the token of a holder, of permits the one whose lease ends last; '' if there is none
--   highest_fence()      the highest of all holders; 0 if there is none
--   put(token, fence, ms) makes the token a holder, of a mutex in place of the present one
--   extend(token, ms)    makes a holder's lease last for ms from now. It takes no memory
--   remove(token)        ends a holder's lease. It takes no memory
--   end_leases(seen, from)
--                        ends the leases whose fences are not above seen, of a bounded number of holders. Returns whether
--                        it ended one, and the from of the next call; '0' after the last. The first from is '0'
--   next_end()           ms after which a lease has ended; -1 if none will
--   free_after(token)    ms after which enough rests of minimum holds have ended for the token, and the holder of them
--                        that ends last. -1 and another holder if leases that may be renewed block the token, or if there
--                        are more holders than are read
--   clear()              deletes the records, if nothing is held
--   usage(limit)         used permits, the number that a resize has set or 0, and at most limit holders {token, fence, ms left}

local owner, fence = string.match(held or '', '^(.*) (%d+)$')
local more_expired = false
local highest = tonumber(fence or 0) -- it counts even when its lease has ended

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
