-- The store of permits: any number of holders, whose weights make up at most the capacity. A semaphore has as many
-- permits as its callers say; a read-write lock has 2^30, of which a reader takes one and a writer all.
--
-- Contract. mutex/store.lua describes it; this is the same list.
--   fence_of(token)
--   holder()
--   free()
--   expired_remain()
--   lost_ttl()
--   capacity_conflict(token, capacity)
--   record_capacity()
--   grant(token, ms, weight)
--   remove_holder(token, fence)
--   remove_holders(seen)
--   extend(token, ms)
--   next_expiry()
--   highest_fence()
--   keep_records(ms)
--   remove_records()
--   usage(limit)

read_clock()
local total, used, highest -- the capacity, the sum of the holders' weights, the text of the highest fence: what free() has read
local expired_reached      -- whether free() has removed as many expired holders as it may
local ttl_of_lost          -- what lost_ttl returns next

-- The weight and the fence of a holder.
local function record_of(token)
  local weight, given = string.match(call('HGET', holders, token) or '', '^(%d+) (%d+)$')
  return tonumber(weight or 0), tonumber(given or 0)
end

local function fence_of(token)
  if tonumber(call('ZSCORE', permits, token) or 0) <= now then return nil end
  local _, fence = record_of(token)
  return fence > 0 and fence or nil -- 0: its record was lost
end

local function holder() return call('ZRANGE', permits, -1, -1)[1] or false end

local function sum_of_weights(tokens)
  local sum = 0
  for _, record in ipairs(call('HMGET', holders, unpack(tokens))) do
    sum = sum + tonumber(string.match(record or '', '^(%d+) ') or 0)
  end
  return sum
end

-- Ends these leases. All that is known of a holder goes at once: nothing of it can be removed a second time.
local function remove(tokens)
  if #tokens == 0 then return end
  local weight = sum_of_weights(tokens)
  call('ZREM', permits, unpack(tokens))
  call('HDEL', holders, unpack(tokens))
  if weight > 0 then call('HINCRBY', holders, 'used', -weight) end
  if used then used = used - weight end
end

local function read_totals()
  local known = call('HMGET', holders, 'capacity', 'used', 'fence')
  total, used, highest = tonumber(known[1] or 0), tonumber(known[2] or 0), known[3] or '0'
end

-- Both keys have the same holders, and three more fields. If not, one of them was lost, and nobody knows what is held:
-- each holder learns of it at its next renewal. permits does not expire before holders, and what is left of it then has
-- expired.
local function remove_lost()
  local tokens, fields = call('ZCARD', permits), call('HLEN', holders)
  if fields == tokens + 3 or tokens + fields == 0 then return end
  local left = tokens > 0 and call('ZRANGEBYSCORE', permits, '(' .. string.format('%.0f', now), '+inf', 'LIMIT', 0, 1000)
    or call('HSCAN', holders, 0, 'COUNT', 1000)[2] -- enough to know a long TTL
  for _, token in ipairs(left) do ttl_of_lost = math.max(ttl_of_lost or 0, ttl_of(token)) end
  call('UNLINK', permits, holders)
end

local function free()
  if not used then
    remove_lost()
    local MAX_EXPIRED = 1000
    local expired = call('ZRANGEBYSCORE', permits, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)
    remove(expired)
    expired_reached = #expired == MAX_EXPIRED
    read_totals()
  end
  return total - used
end

local function expired_remain() return expired_reached end

local function lost_ttl()
  local ms = ttl_of_lost
  ttl_of_lost = nil
  return ms
end

-- The capacity is not known (0) if nobody holds or waits, or if it was lost. A lease of the caller has expired, and was
-- left by free().
local function capacity_conflict(token, capacity)
  if call('ZSCORE', permits, token) then remove({ token }) end
  if total ~= 0 and total ~= tonumber(capacity) and (holder() or call('EXISTS', queue) == 1) then return total end
  total = tonumber(capacity)
end

local function record_capacity() call('HSET', holders, 'capacity', total, 'used', used, 'fence', highest) end

-- Has both keys last for at least so many ms; if that has to be set, for most.
local function keep(least, most)
  local left = call('PTTL', holders)
  if left >= least and call('PTTL', permits) ~= -1 then return end
  call('PEXPIRE', holders, math.max(left, most))
  call('PEXPIRE', permits, math.max(left, most))
end

-- They last a little longer than any lease. Not at every call: only once half of that little is used up.
local function keep_holders(ms) keep(ms + 400, ms + 900) end

local longest = 0 -- lease that was granted in this script
local function grant(token, ms, weight)
  local given, text = next_number()
  write_number(ms)
  used, highest = used + weight, text
  call('HSET', holders, 'capacity', total, 'used', used, 'fence', text,
    token, string.format('%.0f ', weight) .. text)
  call('ZADD', permits, now + ms * 1000, token)
  if longest < ms then
    keep_holders(ms)
    longest = ms
  end
  return given, text
end

local function remove_holder(token, fence)
  local has = fence_of(token)
  if not has or fence and fence ~= has then return 0 end
  remove({ token })
  return 1
end

local function remove_holders(seen)
  free()
  local MAX_REMOVED = 1000
  local all, found = call('ZRANGE', permits, 0, -1), {}
  for from = 1, #all, MAX_REMOVED do
    for i, record in ipairs(call('HMGET', holders, unpack(all, from, math.min(from + MAX_REMOVED - 1, #all)))) do
      if tonumber(string.match(record or '', ' (%d+)$') or 0) <= seen then found[#found + 1] = all[from + i - 1] end
    end
    if #found >= MAX_REMOVED then break end
  end
  remove(found)
  return #found > 0, #found >= MAX_REMOVED
end

-- A server without memory lets a script finish that has written, and PEXPIRE is always allowed.
local function extend(token, ms)
  call('PEXPIRE', permits, math.max(call('PTTL', permits), ms + 900))
  call('ZADD', permits, now + ms * 1000, token)
  keep_holders(ms)
end

-- Cuts the leases that end latest, ten by ten, until ten need no cut: so ten holders with longer TTLs hide the others.
local function cut_leases()
  local MAX_PASSES = 100
  for _ = 1, MAX_PASSES do
    local found, cut = call('ZRANGE', permits, -10, -1, 'WITHSCORES'), false
    for i = 1, #found, 2 do
      local ttl = ttl_of(found[i])
      local latest = now + ttl * 1000
      if ttl > 0 and tonumber(found[i + 1]) > latest then
        call('ZADD', permits, latest, found[i])
        cut = true
      end
    end
    if not cut then return end
  end
end

-- If the capacity is lost, another request helps at once.
local function next_expiry()
  if total == 0 then return 0 end
  cut_leases()
  local ends = call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
  return ends and math.max(math.ceil((tonumber(ends) - now) / 1000), 0) or -1
end

local function highest_fence() return tonumber(call('HGET', holders, 'fence') or 0) end

local function keep_records(ms) keep(ms - 100, ms) end -- the keys of the queue may have been set some ms before

local function remove_records()
  if used == 0 then call('DEL', holders) end
end

-- Expired holders are still in used. Either they or the others are summed up, whichever are fewer.
local function usage(limit)
  local BATCH = 1000
  read_totals()
  local after_now = string.format('(%.0f', now)
  local ended = call('ZCOUNT', permits, '-inf', now) * 2 <= call('ZCARD', permits)
  local from, sum = 0, 0
  repeat
    local some = call('ZRANGEBYSCORE', permits, ended and '-inf' or after_now, ended and now or '+inf',
      'LIMIT', from, BATCH)
    if #some > 0 then sum = sum + sum_of_weights(some) end
    from = from + #some
  until #some < BATCH
  if ended then sum = used - sum end

  local list = {}
  local found = call('ZRANGEBYSCORE', permits, after_now, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    local weight, given = record_of(found[i])
    list[#list + 1] = { found[i], given, math.ceil((tonumber(found[i + 1]) - now) / 1000), weight }
  end
  return sum, total, list
end
