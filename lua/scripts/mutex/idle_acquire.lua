-- acquire of an idle mutex: no holder, no waiter, no tombstone.
local token, ticket = ARGV[2], ARGV[5]

if ticket == '0' and call('EXISTS', lock, queue, heartbeats, tombstones) == 0 then
  local ttl = tonumber(string.sub(token, -34, -24))
  local fence = quick_number(ttl)
  if fence then
    call('SET', lock, token .. ' ' .. fence, 'NX', 'PX', ttl)
    return 'granted ' .. fence .. ' empty'
  end
end
