-- leave: removes waiters from the queue; ends the leases of those that hold the lock, and hands it off.
-- ARGV  fence_ttl kept by refused token...
--       kept, by  as for release
--       refused   how many of the tokens, from the first on, get a tombstone
-- reply released state grants...
--       released  1 if one of the tokens held the lock; the others as in the reply of release
local kept, by, refused = ARGV[2], ARGV[3], ARGV[4]
kept, refused = tonumber(kept), tonumber(refused)
local FIRST = 5

-- A broken queue does not undo a release.
local released = false
pcall(read_number, 0) -- what leaves counts if the number was lost
for i = FIRST, #ARGV do released = release(ARGV[i], nil, kept, by) or released end
pcall(left, unpack(ARGV, FIRST))
local removed = redis.pcall('ZREM', queue, unpack(ARGV, FIRST))
redis.pcall('ZREM', heartbeats, unpack(ARGV, FIRST))
local reply = hand_off(released)
if refused > 0 then set_tombstones({ unpack(ARGV, FIRST, FIRST + refused - 1) }) end
-- A server that refuses writes for a while has removed nothing. It replies the error again, and the client retries.
if not released and type(removed) == 'table' and not string.find(removed.err, 'WRONGTYPE') then call('ZREM', queue, unpack(ARGV, FIRST)) end
return reply
