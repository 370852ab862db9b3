-- acquire of an idle mutex: no holder, no waiter, no tombstone.
local token, ticket = ARGV[2], ARGV[5]

if ticket == '0' and call('EXISTS', lock, queue, heartbeats, tombstones) == 0 then
  read_clock()
  read_number()
  local ttl, given, text = ttl_of(token), next_number()
  write_number(ttl)
  call('SET', lock, token .. ' ' .. text, 'NX', 'PX', ttl)
  return { 'granted', given, 'empty' }
end
