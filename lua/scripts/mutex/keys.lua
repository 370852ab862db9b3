-- The keys of a mutex. number.lua says what is in number, queue.lua what is in queue, heartbeats and tombstones.
--
-- KEYS[5] lock  string  the owner's token and its fence; it exists exactly while the lock is held, and it always has an
--                       expiry

local queue, heartbeats, tombstones, lock = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
