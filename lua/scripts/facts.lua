-- What every verb uses: the server's clock, texts of numbers, and the facts of a token.

local KEPT = 660000 -- ms that the keys of a queue outlast its waiters, and that a tombstone lasts
local now, now_text -- the server's time in µs; exact below 2^53

-- The facts of a token, each at a fixed place from the end (internal/tokens). For a text that is not a token, they are
-- 0 or ''.
local function ttl_of(token) return tonumber(string.sub(token, -30, -24), 36) or 0 end -- in ms
local function permits_of(token) return tonumber(string.sub(token, -36, -31), 36) or 0 end -- that there are for it
local function weight_of(token) return tonumber(string.sub(token, -42, -37), 36) or 0 end -- permits that it requests
local function share_of(token) return math.max(tonumber(string.sub(token, -44, -43), 36) or 1, 1) end
local function limit_of(token) return tonumber(string.sub(token, -50, -45), 36) or 0 end -- of its key; 0: none
local function key_in(token) return string.sub(string.match(token, '^.*:2%.(.*)$') or '', 1, -51) end

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

-- idle_fence makes the time the next number of an idle lock, for ms and FenceTTL. If the last number is not below the
-- time, or looks strange, it writes nothing and returns nil: number.lua handles all cases.
local function idle_fence(ms)
  read_time()
  local last = string.match(call('GET', number) or '2 0 0 0', '^2 (%d+) %d+ %d+$')
  if not last or tonumber(last) >= now then return nil end
  call('SET', number, '2 ' .. now_text .. ' 0 0', 'PX', ms + fence_ttl)
  return now_text
end
