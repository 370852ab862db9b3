-- The server's clock, and the lock's one series of numbers: tickets and fences.
--
-- number  string  "<layout> <last> <ends> <served> <first>", and what a later version adds: the layout of all keys; the last
--                 number that was given or brought, 16 digits; when the key expires, in ms of the server's time, 13 digits;
--                 the highest ticket that was granted the lock or dropped, or the last number when the lock was quarantined,
--                 16 digits; the first number of this key, 0 once the lock was quarantined, 16 digits
--
-- A number is not less than the time, so that numbers also rise after a loss of data. It is higher than the last one, so
-- that they also rise when the clock stands still or steps back. The key outlives the lock, its holders and its queue by
-- fence_ttl.
--
-- A script that changes it calls find_number (queue.lua), then next_number or raise_number (queue.lua), then write_number. A
-- number from a client is checked before.

-- µs; exact below 2^53. A number that is given to redis.call or returned to the caller is written in full, but Lua's ..
-- and tostring round it to 14 digits, and the time has 16. So each has a text beside it.
local now, now_text
local last, last_text, ends, served, served_text, first_text, others -- what the number says; others, the text that follows, is nil
-- without one

-- The length of a lease, ms: a token's 11 digits before the point and the 22 characters at its end. 0: it is no token.
local function ttl_of(token) return tonumber(string.sub(token, -34, -24)) or 0 end

-- read_clock reads the time, once.
local function read_clock()
  if now then return end
  local time = call('TIME')
  now_text = time[1] .. string.sub('00000' .. time[2], -6) -- string.format takes longer
  now = tonumber(now_text)
end

-- read_number reads the clock and the number, once. Without one, last is 0.
local function read_number()
  if last then return end
  read_clock()
  local text = call('GET', number)
  if not text then
    last, last_text, ends, served, served_text = 0, '0000000000000000', 0, 0, '0000000000000000'
    return
  end
  if string.sub(text, 1, 2) ~= '1 ' then
    local layout = string.match(text, '^(%d+) ')
    error(layout and 'the number has layout ' .. layout or 'the number is damaged')
  end
  last_text, served_text = string.sub(text, 3, 18), string.sub(text, 34, 49)
  first_text, others = string.sub(text, 51, 66), string.sub(text, 67)
  last, ends, served = tonumber(last_text), tonumber(string.sub(text, 20, 32)), tonumber(served_text)
  if not last or not ends or not served or last < 0 or last > 9006099743113216 then -- 2^53 - 2^40
    error('the number is damaged')
  end
end

-- next_number returns the next number, and its text. write_number records it. After find_number (queue.lua), or
-- read_number if the verb has no key queue.
local function next_number()
  if last < now then
    last, last_text = now, now_text
  else
    last = last + 1
    last_text = string.format('%.0f', last)
  end
  return last, last_text
end

-- check_number raises an error if a number from a client is more than 2^45 µs (407 days) above the time and the last number.
-- After find_number.
local function check_number(n)
  if n > math.max(now, last) + 35184372088832 then error('the number is too far ahead') end
end

-- write_number records the last number, for as long as a key that lasts for another ms, and fence_ttl. It does not
-- shorten its life: 0 ms, if the script has no key last longer. (A number ahead of the time is forgotten then, too.)
local function write_number(ms)
  local px = ms + fence_ttl
  local keeps = others and ends >= math.floor(now / 1000) + px
  if not keeps then ends, others = math.floor(now / 1000) + px, others or '' end
  local recorded = string.sub('0' .. last_text, -16)
  first_text = first_text or recorded
  local text = '1 ' .. recorded .. ' ' .. string.sub('0' .. ends, -13) .. ' ' .. served_text .. ' ' .. first_text .. others
  if keeps then call('SET', number, text, 'KEEPTTL') else call('SET', number, text, 'PX', px) end
end
