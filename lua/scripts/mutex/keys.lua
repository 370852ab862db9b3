-- The keys of a mutex. number.lua says what is in number, queue.lua what is in queue, heartbeats and tombstones.
--
-- KEYS[5] lock  string  the owner's token and its fence; it exists exactly while the lock is held, and it always has an
--                       expiry
--
-- ARGV[1] fence_ttl: ms, the first argument of every verb: for how long the number outlasts the other keys

local call, fence_ttl = redis.call, tonumber(ARGV[1])
local number, queue, heartbeats, tombstones, lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
