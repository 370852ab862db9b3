-- The keys of a mutex. queue.lua says what is in queue, alive and fence.
--
-- KEYS[4] lock  string  the owner's token; it exists exactly while the lock is held, and it always has an expiry

local queue, alive, fence, lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
