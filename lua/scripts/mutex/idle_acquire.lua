-- acquire of an idle mutex: no holder, no waiter, no tombstone.
local token, ticket = ARGV[2], ARGV[5]

if ticket == '0' and call('EXISTS', lock, queue, heartbeats, tombstones) == 0 then
  local ttl = tonumber(string.sub(token, -34, -24))
  local fence, text = quick_number(ttl)
  if fence then
    call('SET', lock, token .. ' ' .. text, 'NX', 'PX', ttl)
    return { 'granted', fence, 'empty' }
  end
end
