-- acquire of a mutex in the common cases. In all others nothing is written here, and acquire.lua goes on.
local token, waiter_ttl, max_waiters, ticket = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local there, time = call('EXISTS', lock, queue, heartbeats, tombstones), call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)

-- Nobody holds it or waits, and there is no tombstone.
if there == 0 and ticket == '0' then
  local ttl = tonumber(string.sub(token, -34, -24))
  if quick_number(call('GET', number), now, ttl) then
    call('SET', lock, token .. ' ' .. now, 'NX', 'PX', ttl)
    return 'granted ' .. now .. ' empty'
  end
end

-- Another one holds it, two or more wait, and there is no tombstone: the waiter joins the end of the queue.
if there == 3 and ticket == '0' and waiter_ttl ~= '0' then
  local member, waiting = string.sub(token, -14), call('ZCARD', queue)
  local owner, found = call('GET', lock), call('HMGET', heartbeats, 'clock', member)
  local holder, record = string.match(owner or '', '^(.*) %d+$'), found[1] or ''
  if holder and holder ~= token and waiting > 1 and #record >= 84 and not found[2]
    and call('HLEN', heartbeats) == waiting + 1 and (max_waiters == '0' or waiting < max_waiters + 0)
    and string.sub(record, 69, 84) <= string.sub(record, 1, 16) -- not quarantined
    and call('PTTL', queue) >= waiter_ttl + 600000 then -- KEPT
    local since = now - tonumber(string.sub(record, 18, 33))
    local clock = tonumber(string.sub(record, 1, 16)) + math.min(math.max(since, 0), 1000000)
    local swept = string.sub(record, 52, 67) == '0000000000000000' and clock - tonumber(string.sub(record, 35, 50)) < 60000000
    local last = swept and quick_number(call('GET', number) or '', now, waiter_ttl + 660000) -- KEPT_AT_MOST
    if last then
      call('ZADD', queue, now, token)
      local expires = string.format('%.0f', clock + waiter_ttl * 1000)
      if since < 0 or since > 20000 then -- WRITTEN_AGAIN
        record = string.format('%016.0f ', clock) .. string.sub('0' .. now, -16) .. string.sub(record, 34)
        call('HSET', heartbeats, 'clock', record, member, expires)
      else
        call('HSET', heartbeats, member, expires)
      end
      return 'queued ' .. now .. ' ' .. waiting + 1 .. ' ' .. last .. ' -1 ' .. holder
    end
  end
end
