-- The next number in the common case, for a script that returns before all other functions are built.

-- quick_number records now as the next number, for ms, in the place of text. In a handoff it records the head's ticket as
-- served if it is higher, and deletes the lock before: a full server refuses the first command that writes if it takes
-- memory. It returns false, and writes nothing, if the last number is not below the time, or looks strange: number.lua knows
-- all cases. All are texts; those of one length compare as their numbers do.
local function quick_number(text, now, ms, ticket, lock)
  local recorded = string.sub('0' .. now, -16)
  local last, px = '1 ' .. recorded, ms + fence_ttl
  text = text or '1 0000000000000000 0000000000000 0000000000000000 ' .. recorded
  if string.sub(text, 1, 2) ~= '1 ' or #text < 66 or text < '1 0' or text >= last then return false end
  local ends, others = string.sub('0' .. string.sub(last, 3, 15) + px, -13), string.sub(text, 33)
  if ticket then
    if string.sub(text, 34, 49) < ticket then others = ' ' .. ticket .. string.sub(text, 50) end
    call('DEL', lock)
  end
  if string.sub(text, 20, 32) < ends then
    call('SET', number, last .. ' ' .. ends .. others, 'PX', px)
  else
    call('SET', number, last .. string.sub(text, 19, 32) .. others, 'KEEPTTL')
  end
  return true
end
