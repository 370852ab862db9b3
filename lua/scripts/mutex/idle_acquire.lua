-- acquire of an idle mutex: no holder, no waiter, no tombstone.
local token, ttl, ticket = ARGV[1], ARGV[2], ARGV[5]

if ticket == '0' and call('EXISTS', lock, queue, alive) == 0 then
  read_clock()
  local given = next_fence(ttl)
  call('SET', lock, token, 'NX', 'PX', ttl)
  return { 'granted', given, 'empty' }
end
