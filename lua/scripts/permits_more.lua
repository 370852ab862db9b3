-- What permits are. The same functions as in mutex_more.lua.

local SWEEP_HOLDERS = 1000 -- expired holdings taken back in one call

local size, used  -- the capacity, and the holders' weights; known once vacant was called
local partly      -- as many had expired as are taken back in one call
local wanted = {} -- what the asker wants

local function holds(token) return tonumber(call('ZSCORE', permits, token) or 0) > now end

-- The weight and the fence of a holding.
local function holding(token)
  local weight, f = string.match(call('HGET', holders, token) or '', '^(%d+) (%d+)$')
  return tonumber(weight or 0), tonumber(f or nil)
end

-- The fence of the holder, who may know it.
local function fenceof(token, known)
  local _, f = holding(token)
  return f or known or now
end

-- Takes back what these hold. It belongs together: whoever comes later finds nothing to take back.
local function dropthese(tokens)
  if #tokens == 0 then return end
  local weights = 0
  for _, record in ipairs(call('HMGET', holders, unpack(tokens))) do
    weights = weights + tonumber(string.match(record or '', '^(%d+) ') or 0)
  end
  call('ZREM', permits, unpack(tokens))
  call('HDEL', holders, unpack(tokens))
  if weights > 0 then call('HINCRBY', holders, 'used', -weights) end
  if used then used = used - weights end
end

local function drop(token) dropthese({ token }) end

-- Holdings whose leases have ended and that nobody has given back.
local function expired()
  return call('ZRANGEBYSCORE', permits, '-inf', digits(now), 'LIMIT', 0, SWEEP_HOLDERS)
end

-- Reads size and used. Keys can be lost: if nobody holds anything nothing is used, whatever is written; if somebody
-- does and nothing is written, all is; if it is not known what waiters want, the capacity is not known either.
local function look()
  local known = call('HMGET', holders, 'capacity', 'used')
  size = tonumber(known[1] or 0)
  used = call('EXISTS', permits) == 0 and 0 or tonumber(known[2] or math.huge)
  if call('EXISTS', queue) > call('HEXISTS', wants, 'capacity') then size = 0 end
end

-- Is there anything to give away? Only then is the head of the queue in the way, and judged. What has expired is taken
-- back first.
local function vacant()
  if not used then
    local over = expired()
    dropthese(over)
    partly = #over == SWEEP_HOLDERS
    look()
  end
  return used < size
end

local function unswept() return partly end

local function held()
  vacant()
  return call('EXISTS', permits) == 1
end

local function adopt(capacity) size = tonumber(capacity) end

-- meet notes what an asker wants, and of how many. Returns the capacity if another one is recorded. If none is, nobody
-- knows what those want who wait: they are to ask again, with their tickets. What the asker had before has expired.
local function meet(token, weight, capacity)
  wanted[token] = tonumber(weight)
  vacant()
  if call('ZSCORE', permits, token) then drop(token) end
  if size ~= 0 and size ~= tonumber(capacity) then return size end
  if size == 0 and call('ZCARD', queue) > 0 then
    call('ZREMRANGEBYSCORE', queue, '-inf', '+inf')
    call('ZREMRANGEBYSCORE', alive, 0, '+inf')
  end
  adopt(capacity)
end

local function weightof(token) return wanted[token] or tonumber(call('HGET', wants, token) or 1) end

-- stand notes what a waiter wants, unwant forgets it. A queue that begins has nothing to do with an earlier one.
local function stand(token)
  if call('EXISTS', queue) == 0 then call('DEL', wants) end
  call('HSET', holders, 'capacity', digits(size))
  call('HSET', wants, 'capacity', digits(size))
  if weightof(token) > 1 then call('HSET', wants, token, digits(weightof(token))) end
end

local function unwant(token) call('HDEL', wants, token) end

-- Does what is vacant suffice for this waiter?
local function fits(token) return weightof(token) <= size - used end

-- Both keys last a little longer than any lease; not at every call: only once more than half of that little is used up.
local lasting
local function extendkeys(ms)
  if lasting and lasting >= ms then return end
  for _, key in ipairs({ permits, holders }) do
    if call('PTTL', key) < ms + 400 then call('PEXPIRE', key, ms + 900) end
  end
  lasting = ms
end

-- Every grant is made here. Nobody rests with less than all.
local function grant(token, ms)
  local weight = token == 'nobody:resting' and size or weightof(token)
  local f = mark(ms)
  used = used + weight
  call('HSET', holders, 'capacity', digits(size), 'used', digits(used), token, digits(weight) .. ' ' .. f)
  call('ZADD', permits, digits(now + ms * 1000), token)
  extendkeys(ms)
  return f
end

local function extend(token, ms)
  local ends = digits(now + ms * 1000)
  if tonumber(call('ZSCORE', permits, token)) < tonumber(ends) then call('ZADD', permits, ends, token) end
  extendkeys(ms)
end

-- Takes everything from everybody who was granted it with a fence not above seen, from so many in one call at least.
-- Returns whether there was anybody, and whether there may be more.
local function dropall(seen)
  vacant()
  local all, old = call('ZRANGE', permits, 0, -1), {}
  for from = 1, #all, SWEEP_HOLDERS do
    for i, record in ipairs(call('HMGET', holders, unpack(all, from, math.min(from + SWEEP_HOLDERS - 1, #all)))) do
      if tonumber(string.match(record or '', ' (%d+)$') or 0) <= seen then old[#old + 1] = all[from + i - 1] end
    end
    if #old >= SWEEP_HOLDERS then break end
  end
  dropthese(old)
  return #old > 0, #old >= SWEEP_HOLDERS
end

-- tidy is called when nobody waits.
local function tidy()
  if used == 0 then call('DEL', holders, wants) end
end

-- ms until a holding ends by itself; -1 if none will. If what was agreed upon is lost, asking helps at once.
local function soonest()
  if size == 0 then return 0 end
  local ends = call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
  return ends and math.max(math.ceil((tonumber(ends) - now) / 1000), 0) or -1
end

-- What the queue keeps alive, beside itself.
local function kept() return { permits, holders, wants } end

local function count()
  look()
  for _, token in ipairs(expired()) do
    local weight = holding(token)
    used = used - weight
  end
  return math.min(used, size), size
end

local function list(limit)
  local all = {}
  local found = call('ZRANGEBYSCORE', permits, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    local weight, f = holding(found[i])
    all[#all + 1] = { found[i], digits(f or 0), math.ceil((tonumber(found[i + 1]) - now) / 1000), weight }
  end
  return all
end
