-- leave: removes a waiter from the queue; if the token holds the lock, releases it.
-- KEYS  number store queue heartbeats tombstones
-- ARGV  fence_ttl token tombstone
--       tombstone: 1 if the token is refused from now on, else 0
-- reply released state grants...   as release
local token, tombstone = ARGV[2], ARGV[3]

local released = release_holders(remove_holder, token)
pcall(remove_waiter, token) -- whatever is wrong with the queue, what was released stays released
if tombstone == '1' then
  local TOMBSTONE_TTL = 660000 -- ms
  call('ZREMRANGEBYSCORE', tombstones, 0, now) -- those that are over
  call('ZADD', tombstones, now + TOMBSTONE_TTL * 1000, member(token))
  call('PEXPIRE', tombstones, TOMBSTONE_TTL)
end
return hand_off(released)
