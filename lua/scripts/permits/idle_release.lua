-- release by the only holder of permits without waiters.
local token = ARGV[1]

read_clock()
local ends = call('ZSCORE', permits, token)
if ends and tonumber(ends) > now and call('ZCARD', permits) == 1 and call('HEXISTS', holders, token) == 1
  and call('EXISTS', queue, wants) == 0 then
  call('DEL', permits, holders)
  return { 1, 'empty' }
end
