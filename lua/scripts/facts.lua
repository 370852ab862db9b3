-- What every verb builds on: the server's clock, texts of numbers, and the facts in a token.

local KEPT = 660000 -- ms for which the keys of a queue outlast its waiters, and a tombstone lasts
local now, now_text -- the server's time in µs; exact below 2^53

-- Facts of a token: its TTL in ms, and how many permits it asks for. 0: it is no token.
local function ttl_of(token) return tonumber(string.sub(token, -47, -37)) or 0 end
local function weight_of(token) return tonumber(string.sub(token, -35, -26)) or 0 end

-- flagged returns the token with that flag.
local function flagged(token, flag) return string.sub(token, 1, -25) .. flag .. string.sub(token, -23) end

-- The flags of a token are bits in one digit: 1, its holder wants to know that somebody waits; 4, the lease was resumed. A lease
-- that was released and is kept has RELEASED alone.
local function wants_to_know(token)
  local flags = string.sub(token, -24, -24)
  return flags == '1' or flags == '5'
end
local function resumed_as(token) return flagged(token, wants_to_know(token) and '5' or '4') end

-- A lease with a minimum hold that was released before that was over: nobody has its token.
local RELEASED = '2'
local function is_released(token) return string.sub(token, -24, -24) == RELEASED end

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
  local last = string.match(call('GET', number) or '1 0 ', '^1 (%d+) ')
  if not last or tonumber(last) >= now then return nil end
  call('SET', number, '1 ' .. now_text .. ' 0 0', 'PX', ms + fence_ttl)
  return now_text
end
