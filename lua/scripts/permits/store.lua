-- The store of permits: any number of holders, whose weights make up at most the capacity. A semaphore has as many
-- permits as its callers say, unless it was resized; a read-write lock has 2^30, of which a reader takes one and a writer all.
--
-- permits  zset  token -> when the lease ends, in µs of server time
-- holders  hash  token -> fence; capacity: that callers bring; used: the sum of the holders' weights; fence: the highest;
--                released: the number of holders that were released and are kept
-- resized  string  the number of permits, whatever callers bring; no such key: as many as they bring. It does not expire
--
-- Permits and holders have the same holders, and expire together, not before the last lease and the queue. mutex/store.lua
-- has the contract.

local EXPIRED = 500 -- holders that one script removes because they have expired
local LISTED = 200 -- holders that one script looks at, to remove them, and perhaps to admit waiters, too
local free, total, used, highest, released
local brought, fixed -- the capacity that callers bring, and the one that counts instead if the lock was resized
local more_expired = false

-- has_all reports whether both keys have the same holders. If not, one of them was lost, and nobody knows what is held: both are
-- removed, and each holder learns of it at its next renewal.
local function has_all()
  local tokens, fields = call('ZCARD', permits), call('HLEN', holders)
  return fields == tokens + 4 or tokens + fields == 0
end

local function holder() return call('ZRANGE', permits, -1, -1)[1] or '' end

local function highest_fence() return tonumber(call('HGET', holders, 'fence') or 0) end

-- remove_holders ends these leases. It takes no memory.
local function remove_holders(tokens)
  if #tokens == 0 then return end
  local weight, kept = 0, 0
  for _, token in ipairs(tokens) do
    weight = weight + weight_of(token)
    if has_flag(token, RELEASED) then kept = kept + 1 end
  end
  call('ZREM', permits, unpack(tokens))
  if call('HDEL', holders, unpack(tokens)) > 0 then -- else that key was lost
    call('HINCRBY', holders, 'used', string.format('%.0f', -weight))
    if kept > 0 then call('HINCRBY', holders, 'released', -kept) end
  end
end

-- A lease that has ended is removed: the token may get another one.
local function fence_of(token)
  local ends = call('ZSCORE', permits, token)
  read_time()
  if not ends then return nil end
  if tonumber(ends) > now then return call('HGET', holders, token) or nil end
  remove_holders({ token })
end

-- resized_to returns the number of permits that a resize has set; nil: none has.
local function resized_to() return tonumber(call('GET', resized) or nil) end

local function record_capacity()
  call('HSET', holders, 'capacity', string.format('%.0f', brought), 'used', string.format('%.0f', used), 'fence', highest, 'released', released)
end

local function count(capacity)
  fixed = resized_to()
  local whole = has_all()
  if whole then
    local expired = call('ZRANGEBYSCORE', permits, '-inf', now_text, 'LIMIT', 0, EXPIRED)
    remove_holders(expired)
    more_expired = #expired == EXPIRED
  end
  local known = call('HMGET', holders, 'capacity', 'used', 'fence', 'released')
  brought, used, highest = tonumber(known[1] or 0), tonumber(whole and known[2] or 0), known[3] or '0'
  released = whole and known[4] or '0'
  if not whole then
    call('UNLINK', permits, holders)
    local left = call('PTTL', queue)
    if known[1] and left > 0 then -- it stands for those that wait
      record_capacity()
      call('PEXPIRE', holders, left)
    end
  end
  if capacity and (fixed or brought == 0) then brought = capacity end
  total = fixed or brought
  free = total - used
end

-- keep has both keys last for another ms at least, and equally long. Its first write takes no memory. Redis rounds down what
-- is left of a key; without the 1, a thousand calls could take a second from a lease.
local function keep(ms)
  call('ZREM', permits, '')
  local one, other = call('PTTL', permits), call('PTTL', holders)
  if math.min(one, other) >= ms then return end
  ms = math.max(ms, one + 1, other + 1)
  call('PEXPIRE', permits, ms)
  call('PEXPIRE', holders, ms)
end

local function put(token, given, ms)
  used, highest = used + weight_of(token), given
  free = total - used
  call('HSET', holders, 'capacity', string.format('%.0f', brought), 'used', string.format('%.0f', used), 'fence', given, 'released', released, token, given)
  call('ZADD', permits, text_of(now + ms * 1000), token)
  keep(ms + 1000)
end

local function extend(token, ms)
  keep(ms + 1000)
  call('ZADD', permits, 'XX', text_of(now + ms * 1000), token)
end

local function end_lease(token, given, kept)
  local has = fence_of(token)
  if not has or given and given ~= has then return false end
  if kept <= 0 then
    remove_holders({ token })
    return true
  end
  local kept_as = flagged(token, RELEASED)
  keep(kept + 1000)
  call('ZADD', permits, text_of(now + kept * 1000), kept_as)
  call('ZREM', permits, token)
  call('HSET', holders, kept_as, has)
  call('HDEL', holders, token)
  call('HINCRBY', holders, 'released', 1)
  return true
end

local function any_released() return released ~= '0' end

-- It goes on where an earlier call has stopped: Redis returns every holder that is there all the while. In the order of
-- permits, a renewal would move some past that place.
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
  return ends and math.max(math.ceil((ends - now) / 1000), 0) + 1 or -1
end

local function clear()
  if used == 0 then call('DEL', holders) end
end

-- Expired holders are still in used. Either they or the others are summed up, whichever are fewer.
local function usage(limit)
  local after_now, known = '(' .. now_text, call('HMGET', holders, 'capacity', 'used')
  local ended = call('ZCOUNT', permits, '-inf', now_text) * 2 <= call('ZCARD', permits)
  local from, sum, some = 0, 0, nil
  repeat
    some = call('ZRANGEBYSCORE', permits, ended and '-inf' or after_now, ended and now_text or '+inf', 'LIMIT', from, 1000)
    for _, token in ipairs(some) do sum = sum + weight_of(token) end
    from = from + #some
  until #some < 1000
  if ended then sum = math.max(tonumber(known[2] or 0) - sum, 0) end
  local list, found = {}, call('ZRANGEBYSCORE', permits, after_now, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    local left = math.ceil((found[i + 1] - now) / 1000)
    list[#list + 1] = { found[i], tonumber(call('HGET', holders, found[i]) or 0), left }
  end
  return sum, resized_to() or tonumber(known[1] or 0), list
end
