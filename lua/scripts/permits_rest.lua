-- What else there is to know of permits. The same functions as in mutex_rest.lua.

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

-- stand notes what a waiter wants. A queue that begins has nothing to do with an earlier one.
local function stand(token)
  if call('EXISTS', queue) == 0 then call('DEL', wants) end
  call('HSET', holders, 'capacity', digits(size))
  call('HSET', wants, 'capacity', digits(size))
  if weightof(token) > 1 then call('HSET', wants, token, digits(weightof(token))) end
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

-- ms until a holding ends by itself; -1 if none will. If what was agreed upon is lost, asking helps at once.
local function soonest()
  if size == 0 then return 0 end
  local ends = call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
  return ends and math.max(math.ceil((tonumber(ends) - now) / 1000), 0) or -1
end

-- What the queue keeps alive, beside itself.
local function kept() return { permits, holders, wants } end

-- What is used, without what has expired. Those whose leases have ended are still in used; they or the others are summed
-- up, whoever is fewer.
local function count()
  look()
  local ended = call('ZCOUNT', permits, '-inf', digits(now)) * 2 <= call('ZCARD', permits)
  local from, sum = 0, 0
  repeat
    local some = call('ZRANGEBYSCORE', permits, ended and '-inf' or '(' .. digits(now), ended and digits(now) or '+inf',
      'LIMIT', from, SWEEP_HOLDERS)
    if #some > 0 then sum = sum + weights(some) end
    from = from + #some
  until #some < SWEEP_HOLDERS
  if ended or used == math.huge then sum = used - sum end
  return math.min(sum, size), size
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
