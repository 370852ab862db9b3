-- The queue: what every script starts with, before the fragment that says who may hold (mutex.lua, permits.lua) and the verb.
--
-- KEYS[1] queue  zset   token -> ticket: the waiter's place, in µs of server time made strictly increasing
-- KEYS[2] alive  zset   the token's random end -> until when (µs of server time) this waiter keeps its
--                       place though it is silent; a negative time: until when a token that has left is refused
-- KEYS[3] fence  string the last fence; it outlives the lock by a day, so that lost data shows
--
-- Any script may run twice for one call, and nothing is rolled back when a later command fails. So each is idempotent
-- for its token, reads everything that can have the wrong type before it writes, and makes the write that a full
-- server refuses its first: once a script has written, Redis lets it finish.
--
-- Redis builds every function anew for every call, which costs as much as a small command. So a verb that has nothing
-- to do with the queue returns before the functions for it are reached (mutex_acquire.lua and
-- the others of that kind, on an idle lock).

local call = redis.call
local queue, alive, fence = KEYS[1], KEYS[2], KEYS[3]
