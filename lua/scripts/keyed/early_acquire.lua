-- As permits/early_acquire.lua: there are no holders and no waiters, no token has a tombstone, and the number was not resized.
if ARGV[5] == '0' and call('EXISTS', permits, holders, queue, heartbeats, lines, turns, tombstones, resized) == 0 then
  local token, ttl = ARGV[2], ttl_of(ARGV[2])
  local fence = idle_fence(ttl)
  if fence then
    local weight, key = weight_of(token), key_in(token)
    call('HSET', holders, 'used', weight, 'fence', fence, token, fence, '=' .. key, weight .. ' ' .. fence)
    call('ZADD', permits, text_of(now + ttl * 1000), token)
    call('PEXPIRE', permits, ttl + 1000)
    call('PEXPIRE', holders, ttl + 1000)
    return 'granted ' .. fence .. ' empty'
  end
end
