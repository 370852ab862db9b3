-- The only holder, and nobody waits.
local ends = tonumber(call('ZSCORE', permits, token) or 0)
if ends > now and call('ZCARD', permits) == 1 and call('EXISTS', queue) == 0 then
  call('DEL', permits, holders)
  return { 1, 'empty', {} }
end
