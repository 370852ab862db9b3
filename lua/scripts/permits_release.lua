-- The only holder, and nobody waits.
local ends = tonumber(call('ZSCORE', permits, token) or 0)
if ends > now and call('ZCARD', permits) == 1 and call('HEXISTS', holders, token) == 1
  and call('EXISTS', queue, wants) == 0 then
  call('DEL', permits, holders)
  return { 1, 'empty', {} }
end
