-- Idle permits: nobody holds any, nobody stands before the asker, nobody is buried.
if ticket == '0' and call('EXISTS', queue, alive, permits, holders) == 0 then
  local f = mark(ttl)
  call('HSET', holders, 'capacity', capacity, 'used', weight, token, weight .. ' ' .. f)
  call('ZADD', permits, digits(now + ttl * 1000), token)
  call('PEXPIRE', permits, ttl + 900)
  call('PEXPIRE', holders, ttl + 900)
  return { 'granted', f, 'empty' }
end
