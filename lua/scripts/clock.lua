-- The server's clock, and the fences that are made from it. Every script builds these functions, also one that finds
-- the lock idle: keep them few.

local call = redis.call

local DAY = 86400000 -- ms: how long a fence is kept after a grant, or twice the lease if that is longer

-- µs; exact below 2^53. A number that is given to redis.call or returned to the caller is written in full, but Lua's ..
-- and tostring round it to 14 digits, and the time has 16.
local now, time

-- The length of a lease, ms: a token's 11 digits before the point and the 22 characters at its end. 0: it is no token.
local function ttl_of(token) return tonumber(string.sub(token, -34, -24)) or 0 end

-- read_clock reads the time, once. A verb calls it before anything else here; the store does that for most of them.
local function read_clock()
  if now then return end
  time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- next_fence(ms) records the next fence, for a lease of that length, and returns it as a number and as a text. A fence is
-- not less than the time, so that fences also rise after a loss of data. It is higher than the last one, so that they
-- also rise when the clock steps back. Call it only for a grant, or when no holder is left: a mutex records the fence of
-- its owner nowhere else. (Permits record one for each holder.)
local function next_fence(ms)
  local px = 2 * ms > DAY and 2 * ms or DAY
  local text = time[1] .. string.sub('00000' .. time[2], -6) -- now; string.format takes longer
  local last = call('SET', fence, text, 'PX', px, 'GET')
  if not last then return now, text end
  local given = tonumber(last)
  if not given then -- not a value of ours
    call('SET', fence, last)
    error('the fence is not a number')
  end
  if given < now then return now, text end
  given = given + 1
  text = string.format('%.0f', given)
  call('SET', fence, text, 'PX', px)
  return given, text
end
