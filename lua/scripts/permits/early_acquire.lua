-- There are no holders and no waiters, no token has a tombstone, and the number of permits was not resized.
if ARGV[5] == '0' and call('EXISTS', permits, holders, queue, heartbeats, tombstones, resized) == 0 then
  local ttl = ttl_of(ARGV[2])
  local fence = idle_fence(ttl)
  if fence then
    call('HSET', holders, 'used', weight_of(ARGV[2]), 'fence', fence, ARGV[2], fence)
    call('ZADD', permits, text_of(now + ttl * 1000), ARGV[2])
    call('PEXPIRE', permits, ttl + 1000)
    call('PEXPIRE', holders, ttl + 1000)
    return 'granted ' .. fence .. ' empty'
  end
end
