-- What permits are.

local SWEEP_HOLDERS = 1000 -- expired holdings taken back in one call

local size, used  -- the capacity, and the holders' weights; known once vacant was called
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

local function drop(token)
  local weight = holding(token)
  call('ZREM', permits, token)
  call('HDEL', holders, token)
  if weight > 0 then call('HINCRBY', holders, 'used', -weight) end
  if used then used = used - weight end
end

-- Is there anything to give away? Only then is the head of the queue in the way, and judged. What expired holders had
-- is taken back first. If nobody holds anything nothing is used, whatever is written; if it is not written, all is.
local function vacant()
  if not used then
    local over = call('ZRANGEBYSCORE', permits, '-inf', digits(now), 'LIMIT', 0, SWEEP_HOLDERS)
    for _, token in ipairs(over) do drop(token) end
    local known = call('HMGET', holders, 'capacity', 'used')
    size = tonumber(known[1] or 0)
    used = call('EXISTS', permits) == 0 and 0 or tonumber(known[2] or math.huge)
  end
  return used < size
end

local function held()
  vacant()
  return call('EXISTS', permits) == 1
end

local function adopt(capacity) size = tonumber(capacity) end

-- meet notes what an asker wants, and of how many. Returns the capacity if another one is recorded.
local function meet(token, weight, capacity)
  wanted[token] = tonumber(weight)
  vacant()
  if size ~= 0 and size ~= tonumber(capacity) then return size end
  adopt(capacity)
end

local function weightof(token)
  return wanted[token] or tonumber(call('HGET', holders, 'wants ' .. token) or 1)
end

-- stand notes what a waiter wants, unwant forgets it.
local function stand(token)
  call('HSET', holders, 'capacity', digits(size))
  if weightof(token) > 1 then call('HSET', holders, 'wants ' .. token, digits(weightof(token))) end
end

local function unwant(token) call('HDEL', holders, 'wants ' .. token) end

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

-- Takes everything from everybody.
local function dropall()
  for _, token in ipairs(call('ZRANGE', permits, 0, -1)) do call('HDEL', holders, token) end
  call('DEL', permits)
  used = 0
end

-- tidy is called when nobody waits.
local function tidy()
  if used == 0 then call('DEL', holders) end
end

-- ms until a holding ends by itself; -1 if none will.
local function soonest()
  local ends = call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
  return ends and math.max(math.ceil((tonumber(ends) - now) / 1000), 0) or -1
end

-- What the queue keeps alive.
local function kept() return { queue, alive, permits, holders } end

local function count()
  vacant()
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
