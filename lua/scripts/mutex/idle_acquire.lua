-- acquire of an idle mutex: no holder, no waiter, no tombstone.
local token, ticket = ARGV[1], ARGV[4]

if ticket == '0' and call('EXISTS', lock, queue, alive) == 0 then
  read_clock()
  local ttl = ttl_of(token)
  local given = next_fence(ttl)
  call('SET', lock, token, 'NX', 'PX', ttl)
  return { 'granted', given, 'empty' }
end
