-- What admission needs to know of permits. The same functions as in mutex_more.lua.

local SWEEP_HOLDERS = 1000 -- expired holdings taken back in one call

local size, used  -- the capacity, and the holders' weights; known once vacant was called
local partly      -- as many had expired as are taken back in one call
local wanted = {} -- what the asker wants

local function holds(token) return tonumber(call('ZSCORE', permits, token) or 0) > now end

local function weights(tokens)
  local sum = 0
  for _, record in ipairs(call('HMGET', holders, unpack(tokens))) do
    sum = sum + tonumber(string.match(record or '', '^(%d+) ') or 0)
  end
  return sum
end

-- Takes back what these hold. It belongs together: whoever comes later finds nothing to take back.
local function dropthese(tokens)
  if #tokens == 0 then return end
  local back = weights(tokens)
  call('ZREM', permits, unpack(tokens))
  call('HDEL', holders, unpack(tokens))
  if back > 0 then call('HINCRBY', holders, 'used', -back) end
  if used then used = used - back end
end

local function drop(token) dropthese({ token }) end

-- Holdings whose leases have ended and that nobody has given back.
local function expired(from)
  return call('ZRANGEBYSCORE', permits, '-inf', digits(now), 'LIMIT', from, SWEEP_HOLDERS)
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
    local over = expired(0)
    dropthese(over)
    partly = #over == SWEEP_HOLDERS
    look()
  end
  return used < size
end

local function unswept() return partly end

local function weightof(token) return wanted[token] or tonumber(call('HGET', wants, token) or 1) end

-- A waiter is gone: what it wanted is of no interest.
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

-- tidy is called when nobody waits.
local function tidy()
  if used == 0 then call('DEL', holders, wants) end
end
