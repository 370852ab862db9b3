-- The keys of a mutex. number.lua says what is in number, queue.lua what is in queue, heartbeats and tombstones.
--
-- lock  string  the owner's token and its fence; it exists exactly while the lock is held, and it always has an
--               expiry
--
-- ARGV[1] fence_ttl: ms, the first argument of every verb: for how long the number outlasts the other keys

local call, fence_ttl = redis.call, tonumber(ARGV[1])
local number, lock, queue, heartbeats, tombstones = unpack(KEYS) -- a verb gets those that its header names
