-- acquire of idle permits: no holder, no waiter, no tombstone.
local token, ticket, weight, capacity = ARGV[2], ARGV[5], ARGV[6], ARGV[7]

if ticket == '0' and call('EXISTS', queue, heartbeats, tombstones, permits, holders) == 0 then
  read_clock()
  read_number()
  local ttl, given, fence = ttl_of(token), next_number()
  write_number(ttl)
  call('HSET', holders, 'capacity', capacity, 'used', weight, 'fence', fence, token, weight .. ' ' .. fence)
  call('ZADD', permits, now + ttl * 1000, token)
  call('PEXPIRE', permits, ttl + 900)
  call('PEXPIRE', holders, ttl + 900)
  return { 'granted', given, 'empty' }
end
