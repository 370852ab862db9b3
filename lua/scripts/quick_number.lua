-- The next number in the common case, for a script that finds the lock idle: it returns before all other functions are
-- built.

-- quick_number records the next number for ms, and returns it and its text. It returns nothing if the number is not
-- below the time, or looks strange: number.lua knows all cases.
local function quick_number(ms)
  local time, text = call('TIME'), call('GET', number) or '1 0000000000000000 0000000000000 0000000000000000'
  local now_text = time[1] .. string.sub('00000' .. time[2], -6)
  local last, px = string.sub('0' .. now_text, -16), ms + fence_ttl
  local ends, at_least = tonumber(string.sub(text, 20, 32)), string.sub(last, 1, 13) + px
  if not string.find(text, '^1 %d+ %d+ %d') or not ends or string.sub(text, 3, 19) >= last then return end
  if ends < at_least then
    call('SET', number, '1 ' .. last .. ' ' .. string.sub('0' .. at_least, -13) .. string.sub(text, 33), 'PX', px)
  else
    call('SET', number, '1 ' .. last .. string.sub(text, 19), 'KEEPTTL')
  end
  return tonumber(now_text), now_text
end
