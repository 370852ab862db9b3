-- acquire of idle permits: no holder, no waiter, no tombstone.
local token, ticket, weight, capacity = ARGV[2], ARGV[5], ARGV[7], ARGV[8]

if ticket == '0' and call('EXISTS', queue, heartbeats, tombstones, permits, holders) == 0 then
  local ttl, time = tonumber(string.sub(token, -34, -24)), call('TIME')
  local fence = time[1] .. string.sub('00000' .. time[2], -6)
  if quick_number(call('GET', number), fence, ttl) then
    call('HSET', holders, 'capacity', capacity, 'used', weight, 'fence', fence, token, weight .. ' ' .. fence)
    call('ZADD', permits, fence + ttl * 1000, token) -- an idle lock's fence is the time
    call('PEXPIRE', holders, ttl + 900)
    call('PEXPIRE', permits, ttl + 900)
    return 'granted ' .. fence .. ' empty'
  end
end
