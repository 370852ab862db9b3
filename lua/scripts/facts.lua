-- What every verb builds on: the server's clock, texts of numbers, and how long a token's lease lasts.

local KEPT = 660000 -- ms for which the keys of a queue outlast its waiters, and a tombstone lasts
local now, now_text -- the server's time in µs; exact below 2^53

-- ttl_of returns the TTL of a token in ms; 0: it is no token.
local function ttl_of(token) return tonumber(string.sub(token, -30, -24), 36) or 0 end

-- is_rest reports whether a token holds a lock for the rest of a minimum hold only, after an Unlock.
local function is_rest(token) return (tonumber(string.sub(token, -23, -23), 36) or 0) % 2 == 1 end

-- read_time reads the server's clock, once.
local function read_time()
  if now then return end
  local time = call('TIME')
  now_text = time[1] .. string.sub('00000' .. time[2], -6) -- string.format takes longer
  now = tonumber(now_text)
end

-- text_of writes a number in full: Lua's .. rounds to 14 digits, and string.format takes longer.
local function text_of(n) return n == now and now_text or string.format('%.0f', n) end

-- idle_fence makes the time the next number of an idle lock, for ms and FenceTTL. It returns nil, and writes nothing, if the
-- last number is not below the time, or looks strange: number.lua knows all cases.
local function idle_fence(ms)
  read_time()
  local last = string.match(call('GET', number) or '2 0 ', '^2 (%d+) ')
  if not last or tonumber(last) >= now then return nil end
  call('SET', number, '2 ' .. now_text .. ' 0 0', 'PX', ms + fence_ttl)
  return now_text
end
