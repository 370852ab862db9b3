-- The keys of permits. number.lua says what is in number, queue.lua what is in queue, heartbeats and tombstones.
--
-- permits  zset  token -> when the lease ends, in µs of server time
-- holders  hash  token -> weight and fence; capacity; used: the sum of the holders' weights; fence: the highest. It
--                lasts longer than any lease and the queue, so that the capacity stands while anyone holds or waits
--
-- ARGV[1] fence_ttl: ms, the first argument of every verb: for how long the number outlasts the other keys

local call, fence_ttl = redis.call, tonumber(ARGV[1])
local number, permits, holders, queue, heartbeats, tombstones = unpack(KEYS) -- a verb gets those that its header names
