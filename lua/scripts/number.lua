-- The server's clock, and the lock's one series of numbers: tickets and fences. Every script builds these functions, also
-- one that finds the lock idle: keep them few.
--
-- KEYS[1] number  string  "<layout> <last> <served>": the layout of all keys, the last number that was given or brought, and the
--                         highest ticket that left the queue, 16 digits each, and what a later version adds
--
-- A number is not less than the time, so that numbers also rise after a loss of data. It is higher than the last one, so
-- that they also rise when the clock stands still or steps back. The key outlives all others of the lock by fence_ttl.
--
-- ARGV[1] fence_ttl: ms, the first argument of every verb.

local call = redis.call
local number, fence_ttl = KEYS[1], tonumber(ARGV[1])

-- µs; exact below 2^53. A number that is given to redis.call or returned to the caller is written in full, but Lua's ..
-- and tostring round it to 14 digits, and the time has 16.
local now
local last, served, rest -- what the number says

-- The length of a lease, ms: a token's 11 digits before the point and the 22 characters at its end. 0: it is no token.
local function ttl_of(token) return tonumber(string.sub(token, -34, -24)) or 0 end

-- read_clock reads the time, once.
local function read_clock()
  if now then return end
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- read_number reads the number, once. Without one, last and served are 0.
local function read_number()
  if last then return end
  local text = call('GET', number) or '1 0000000000000000 0000000000000000'
  local layout, a, b, others = string.match(text, '^(%d+) (%d*) ?(%d*)(.*)$')
  if layout and layout ~= '1' then error('the number has layout ' .. layout) end
  if not layout or #a ~= 16 or #b ~= 16 or a > '9006099743113216' then error('the number is damaged') end -- 2^53 - 2^40
  last, served, rest = tonumber(a), tonumber(b), others
end

-- next_number returns the next number. write_number records it.
local function next_number()
  last = last < now and now or last + 1
  return last
end

-- write_number records what has changed, for as long as a key that lasts for another ms, and fence_ttl. keep_number only
-- keeps it for so long. Neither shortens its life.
local function write_number(ms)
  local px, text = ms + fence_ttl, string.format('1 %016.0f %016.0f', last, served) .. rest
  if call('PTTL', number) < px then call('SET', number, text, 'PX', px) else call('SET', number, text, 'KEEPTTL') end
end
local function keep_number(ms)
  if call('PTTL', number) < ms + fence_ttl then call('PEXPIRE', number, ms + fence_ttl) end
end
