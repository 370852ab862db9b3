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

-- Another one holds it, nobody waits (there is no queue) or two or more do, and there is no tombstone: the waiter joins the
-- end of the queue.
if (there == 2 or there == 3) and ticket == '0' and waiter_ttl ~= '0' then
  local KEPT, KEPT_AT_MOST = 600000, 660000 -- as in queue.lua
  local member, waiting, stored = string.sub(token, -14), call('ZCARD', queue), call('MGET', lock, number)
  local found, holder = call('HMGET', heartbeats, 'clock', member), string.match(stored[1] or '', '^(.*) %d+$')
  local record = found[1] or ''
  if holder and holder ~= token and #record >= 84 and not found[2]
    and string.sub(record, 69, 84) <= string.sub(record, 1, 16) -- not quarantined
    and (max_waiters == '0' or waiting < max_waiters + 0) then
    local since = now - tonumber(string.sub(record, 18, 33))
    local clock = tonumber(string.sub(record, 1, 16)) + math.min(math.max(since, 0), 1000000)
    local expires, joins, after = string.format('%.0f', clock + waiter_ttl * 1000), false, -1
    if waiting > 1 and string.sub(record, 52, 67) == '0000000000000000' -- no sweep is due
      and clock - tonumber(string.sub(record, 35, 50)) < 60000000 and call('PTTL', queue) >= waiter_ttl + KEPT then
      joins = quick_number(stored[2] or '', now, waiter_ttl + KEPT_AT_MOST)
    elseif there == 2 and call('HLEN', heartbeats) == 1 then
      after = call('PTTL', lock) + 1
      if after <= (tonumber(string.sub(holder, -34, -24)) or 0) + 1 then -- the clock has not stepped back
        joins = quick_number(stored[2] or '', now, waiter_ttl + KEPT_AT_MOST)
      end
    end
    if joins then
      call('ZADD', queue, now, token)
      if there == 2 then
        local text = string.format('%016.0f ', clock)
        record = text .. string.sub('0' .. now, -16) .. ' ' .. text .. '0000000000000000' .. string.sub(record, 68)
        call('HSET', heartbeats, 'clock', record, member, expires)
        call('PEXPIRE', queue, waiter_ttl + KEPT_AT_MOST)
        call('PEXPIRE', heartbeats, waiter_ttl + KEPT_AT_MOST)
      elseif since < 0 or since > 20000 then -- WRITTEN_AGAIN
        record = string.format('%016.0f ', clock) .. string.sub('0' .. now, -16) .. string.sub(record, 34)
        call('HSET', heartbeats, 'clock', record, member, expires)
      else
        call('HSET', heartbeats, member, expires)
      end
      return 'queued ' .. now .. ' ' .. waiting + 1 .. ' ' .. after .. ' ' .. holder
    end
  end
end
