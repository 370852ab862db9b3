-- The keys of a mutex. number.lua says what is in number, queue.lua what is in queue and alive.
--
-- KEYS[4] lock  string  the owner's token and its fence; it exists exactly while the lock is held, and it always has an
--                       expiry

local queue, alive, lock = KEYS[2], KEYS[3], KEYS[4]
