-- release by the only holder of permits without waiters.
local token, fence = ARGV[2], ARGV[3]

local ends, time = call('ZSCORE', permits, token), call('TIME')
if ends and tonumber(ends) > time[1] * 1000000 + time[2] and call('HLEN', holders) == 4 and call('EXISTS', queue) == 0
  and string.match(call('HGET', holders, token) or '', ' (%d+)$') == fence then
  call('DEL', permits, holders)
  return '1 empty'
end
