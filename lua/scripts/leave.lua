-- leave: removes a waiter from the queue; if the token holds the lock, releases it.
-- KEYS  number queue alive
-- ARGV  fence_ttl token tombstone_ttl
--       tombstone_ttl: for how many ms the token is refused from now on, 0: not at all
-- reply released state grants...   as release
local token, tombstone_ttl = ARGV[2], ARGV[3]

local released = release_holders(remove_holder, token)
remove_waiter(token)
if tombstone_ttl ~= '0' then -- tombstones that are over are removed
  call('ZREMRANGEBYSCORE', alive, -now, 0)
  call('ZADD', alive, -now - tombstone_ttl * 1000, member(token))
  if call('PTTL', alive) < tonumber(tombstone_ttl) then call('PEXPIRE', alive, tombstone_ttl) end
end
return hand_off(released)
