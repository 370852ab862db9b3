-- acquire of idle permits: no holder, no waiter, no tombstone.
local token, ticket, weight, capacity = ARGV[1], ARGV[4], ARGV[5], ARGV[6]

if ticket == '0' and call('EXISTS', queue, alive, permits, holders) == 0 then
  read_clock()
  local ttl = ttl_of(token)
  local given, text = next_fence(ttl)
  call('HSET', holders, 'capacity', capacity, 'used', weight, token, weight .. ' ' .. text)
  call('ZADD', permits, now + ttl * 1000, token)
  call('PEXPIRE', permits, ttl + 900)
  call('PEXPIRE', holders, ttl + 900)
  return { 'granted', given, 'empty' }
end
