-- release of a mutex in the common cases. In all others nothing is written here, and release.lua goes on.
local token, fence = ARGV[2], ARGV[3]
local lease = token .. ' ' .. fence

-- Nobody waits.
if call('EXISTS', queue) == 0 then
  return call('GET', lock) == lease and call('DEL', lock) == 1 and '1 empty' or '0 empty'
end

-- The head has not expired, and the lock is not quarantined: it is handed off, as in admit (queue.lua). Whatever is
-- wrong with the other keys, what was released stays released.
local owner, text = unpack(call('MGET', lock, number))
if owner == lease then
  local first = redis.pcall('ZRANGE', queue, 0, 0, 'WITHSCORES')
  local head, ticket = first[1] or '', tonumber(first[2] or nil)
  local member = string.sub(head, -14)
  local found = redis.pcall('HMGET', heartbeats, 'clock', member)
  local record, expires = found[1] or '', tonumber(found[2] or nil)
  if ticket and expires and #record >= 84 and text
    and string.sub(record, 69, 84) <= string.sub(record, 1, 16) then -- not quarantined
    local time = call('TIME')
    local now = time[1] .. string.sub('00000' .. time[2], -6)
    local since = now - tonumber(string.sub(record, 18, 33))
    local clock = tonumber(string.sub(record, 1, 16)) + math.min(math.max(since, 0), 1000000)
    local ms = math.min(tonumber(string.sub(head, -34, -24)) or 0, math.floor((expires - clock) / 1000))
    if ms > 0 and quick_number(text, now, ms, string.format('%016.0f', ticket), lock) then
      call('SET', lock, head .. ' ' .. now, 'NX', 'PX', ms)
      call('ZREM', queue, head)
      call('HDEL', heartbeats, member)
      local grant = head .. ' ' .. now .. ' ' .. ms
      redis.pcall('PUBLISH', string.match(queue, '^(.-):{') .. ':notify:' .. string.sub(head, 1, -38), grant)
      return '1 blocked ' .. grant
    end
  end
end
