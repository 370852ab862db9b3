-- What every verb builds on: the server's clock, texts of numbers, and the facts in a token.

local KEPT = 660000 -- ms for which the keys of a queue outlast its waiters, and a tombstone lasts
local now, now_text -- the server's time in µs; exact below 2^53

-- Facts of a token: its TTL in ms, and how many permits it asks for. 0: it is no token.
local function ttl_of(token) return tonumber(string.sub(token, -47, -37)) or 0 end
local function weight_of(token) return tonumber(string.sub(token, -35, -26)) or 0 end

-- Flags of a token; RELEASED: the lease was released before its minimum hold was over, and nobody has its token.
local RELEASED, RESUMED = 2, 4
local function has_flag(token, flag) return (tonumber(string.sub(token, -24, -24), 16) or 0) % (2 * flag) >= flag end

-- flagged returns the token with a further flag.
local function flagged(token, flag)
  if has_flag(token, flag) then return token end
  local flags = string.format('%x', tonumber(string.sub(token, -24, -24), 16) + flag)
  return string.sub(token, 1, -25) .. flags .. string.sub(token, -23)
end

-- without returns the token without a flag.
local function without(token, flag)
  if not has_flag(token, flag) then return token end
  local flags = string.format('%x', tonumber(string.sub(token, -24, -24), 16) - flag)
  return string.sub(token, 1, -25) .. flags .. string.sub(token, -23)
end

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
