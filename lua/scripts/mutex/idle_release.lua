-- release of a mutex without waiters.
local token = ARGV[1]

if call('EXISTS', queue) == 0 then
  return { call('GET', lock) == token and call('DEL', lock) or 0, 'empty' }
end
