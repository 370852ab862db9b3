-- Nobody holds permits or waits, no token has a tombstone, the number of permits was not resized, and it suffices.
local asked = weight_of(ARGV[2])
if ARGV[5] == '0' and asked <= tonumber(ARGV[6]) and call('EXISTS', permits, holders, queue, tombstones, resized) == 0 then
  local ttl, weight = ttl_of(ARGV[2]), string.format('%.0f', asked)
  local fence = idle_fence(ttl)
  if fence then
    call('HSET', holders, 'capacity', ARGV[6], 'used', weight, 'fence', fence, 'released', '0', ARGV[2], fence)
    call('ZADD', permits, text_of(now + ttl * 1000), ARGV[2])
    call('PEXPIRE', permits, ttl + 1000)
    call('PEXPIRE', holders, ttl + 1000)
    return 'granted ' .. fence .. ' empty'
  end
end
