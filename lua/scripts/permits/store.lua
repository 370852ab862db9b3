-- The store of permits: any number of holders. A token has its number of permits (its weight), and the number of permits of the
-- lock, which counts unless the lock was resized. A read-write lock has 2^30 permits. A reader takes one of them, a
-- writer all.
--
-- permits  zset    token -> when the lease ends, in µs of server time
-- holders  hash    token -> fence; used: the sum of the holders' weights; fence: the highest fence
-- resized  string  the number of permits for all tokens; without it the number in each token counts. It does not expire
--
-- Permits and holders have the same holders, and expire together, not before the last lease. mutex/store.lua has the contract.

local LISTED = 200 -- upper bound on the holders that one script examines
local resized_to -- the number of permits that a resize has set; nil: none has
local more_expired = false
local stale -- a token whose lease has ended

local function full() return false end

local function fits(token, less) return used - (less or 0) + weight_of(token) <= (resized_to or permits_of(token)) end

local function too_large(token) return resized_to and weight_of(token) > resized_to end

-- has_all reads used, and reports whether both keys exist or neither does. Otherwise one was lost, and it is unknown
-- what is held. Then it removes both, and each holder learns of it at its next renewal. It also returns the record of
-- used, or false.
local function has_all()
  local record = call('HGET', holders, 'used')
  used = tonumber(record or 0)
  return (used > 0) == (call('ZCARD', permits) > 0), record
end

local function holder() return call('ZRANGE', permits, -1, -1)[1] or '' end

local function highest_fence() return tonumber(call('HGET', holders, 'fence') or 0) end

local function remove_holders(tokens)
  if #tokens == 0 then return end
  local weight = 0
  for _, token in ipairs(tokens) do weight = weight + weight_of(token) end
  call('ZREM', permits, unpack(tokens))
  if call('HDEL', holders, unpack(tokens)) > 0 then -- else that key was lost
    used = call('HINCRBY', holders, 'used', -weight)
    ended(tokens)
  end
end

-- count removes a lease that has ended, at the latest before the token gets another one.
local function fence_of(token)
  read_time()
  local ends = tonumber(call('ZSCORE', permits, token) or nil)
  if ends and ends > now then return call('HGET', holders, token) or nil end
  if ends then stale = token end
end

local function read_resized() resized_to = tonumber(call('GET', resized) or nil) or resized_to end

local function count()
  local whole, record = has_all()
  if not whole then
    call('UNLINK', permits, holders)
    used, record = 0, false
  end
  if stale then remove_holders({ stale }) end
  local expired = call('ZRANGEBYSCORE', permits, '-inf', now_text, 'LIMIT', 0, ENDS)
  remove_holders(expired)
  more_expired = #expired == ENDS
  return record
end

local function put(token, given, ms)
  used = (used or tonumber(call('HGET', holders, 'used') or 0)) + weight_of(token)
  call('HSET', holders, 'used', used, 'fence', given, token, given, granted(token, given))
  call('ZADD', permits, text_of(now + ms * 1000), token)
  keep(ms + 1000)
end

local function extend(token, ms)
  keep(ms + 1000)
  call('ZADD', permits, 'XX', text_of(now + ms * 1000), token)
end

local function remove(token)
  remove_holders({ token })
  return true
end

-- It continues where the previous call has stopped. HSCAN returns every holder that is there all the time. In the order
-- of permits, a renewal would move some holders past that position.
local function end_leases(seen, from)
  if not has_all() then return true, '0' end -- count ends all
  read_time()
  local cursor, some = unpack(call('HSCAN', holders, from, 'MATCH', '*:*', 'COUNT', LISTED)) -- tokens have a colon
  local found, any = {}, false
  for i = 1, #some, 2 do
    if tonumber(some[i + 1]) <= seen then found[#found + 1] = some[i] end
  end
  for _, ends in ipairs(#found > 0 and call('ZMSCORE', permits, unpack(found)) or {}) do
    any = any or tonumber(ends or 0) > now
  end
  remove_holders(found)
  return any, cursor
end

local function next_end()
  local ends = call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
  return ends and math.max(math.floor((ends - now) / 1000), 0) + 1 or -1
end

-- Rests end in the order of permits.
local function free_after(token)
  local less, of_key, live = 0, 0, nil
  local list = call('ZRANGE', permits, 0, LISTED - 1, 'WITHSCORES')
  for i = 1, #list, 2 do
    local other = list[i]
    if is_rest(other) then
      less = less + weight_of(other)
      if key_of(other) == key_of(token) then of_key = of_key + weight_of(other) end
      if fits(token, less) and key_fits(token, of_key) then return math.floor((list[i + 1] - now) / 1000) + 1, other end
    else
      live = other
    end
  end
  return -1, live or holder()
end

local function clear()
  if used == 0 then call('DEL', holders) end
end

-- Expired holders are still in used. Either they or the live ones are summed up: the fewer of both.
local function usage(limit)
  local after_now, sum, list = '(' .. now_text, 0, {}
  local fewer = call('ZCOUNT', permits, '-inf', now_text) * 2 <= call('ZCARD', permits)
  local some = fewer and call('ZRANGEBYSCORE', permits, '-inf', now_text) or call('ZRANGEBYSCORE', permits, after_now, '+inf')
  for _, token in ipairs(some) do sum = sum + weight_of(token) end
  if fewer then sum = math.max(tonumber(call('HGET', holders, 'used') or 0) - sum, 0) end
  local found = call('ZRANGEBYSCORE', permits, after_now, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    list[#list + 1] = { found[i], tonumber(call('HGET', holders, found[i]) or 0), math.ceil((found[i + 1] - now) / 1000) }
  end
  read_resized()
  return sum, resized_to or 0, list
end
