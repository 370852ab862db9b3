-- There are no holders and no waiters, and no token has a tombstone.
if not held and ARGV[5] == '0' and call('EXISTS', queue, heartbeats, tombstones) == 0 then
  local ttl = ttl_of(ARGV[2])
  local fence = idle_fence(ttl)
  if fence then
    call('SET', lock, ARGV[2] .. ' ' .. fence, 'NX', 'PX', ttl)
    return 'granted ' .. fence .. ' empty'
  end
end
