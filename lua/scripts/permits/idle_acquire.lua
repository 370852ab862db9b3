-- acquire of idle permits: no holder, no waiter, no tombstone.
local token, ticket, weight, capacity = ARGV[2], ARGV[5], ARGV[7], ARGV[8]

if ticket == '0' and call('EXISTS', queue, heartbeats, tombstones, permits, holders) == 0 then
  local ttl = tonumber(string.sub(token, -34, -24))
  local fence, text = quick_number(ttl)
  if fence then
    call('HSET', holders, 'capacity', capacity, 'used', weight, 'fence', text, token, weight .. ' ' .. text)
    call('ZADD', permits, fence + ttl * 1000, token) -- an idle lock's fence is the time
    call('PEXPIRE', holders, ttl + 900)
    call('PEXPIRE', permits, ttl + 900)
    return { 'granted', fence, 'empty' }
  end
end
