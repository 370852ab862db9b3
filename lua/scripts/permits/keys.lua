-- The keys of permits. number.lua says what is in number, queue.lua what is in queue
-- and alive.
--
-- KEYS[4] permits  zset  token -> when the lease ends, in µs of server time
-- KEYS[5] holders  hash  token -> weight and fence; capacity; used: the sum of the holders' weights;
--                        fence: the highest. It lasts longer
--                        than any lease and any waiter TTL, so that the capacity stands while anyone holds or waits
-- KEYS[6] wants    hash  token -> the weight of a waiter that asks for more than one permit; capacity, so that the key
--                        exists while anyone waits

local queue, alive, permits, holders, wants = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
