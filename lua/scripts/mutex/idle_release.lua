-- release of a mutex without waiters.
local token, fence = ARGV[2], ARGV[3]

if call('EXISTS', queue) == 0 then
  return call('GET', lock) == token .. ' ' .. fence and call('DEL', lock) == 1 and '1 empty' or '0 empty'
end
