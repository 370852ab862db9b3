-- acquire of idle permits: no holder, no waiter, no tombstone.
local token, ttl, ticket, weight, capacity = ARGV[1], ARGV[2], ARGV[5], ARGV[6], ARGV[7]

if ticket == '0' and call('EXISTS', queue, alive, permits, holders) == 0 then
  read_clock()
  local given, text = next_fence(ttl)
  call('HSET', holders, 'capacity', capacity, 'used', weight, token, weight .. ' ' .. text)
  call('ZADD', permits, now + ttl * 1000, token)
  call('PEXPIRE', permits, ttl + 900)
  call('PEXPIRE', holders, ttl + 900)
  return { 'granted', given, 'empty' }
end
