-- Who may hold permits: any number of holders, whose weights make up at most the capacity. A semaphore has as many
-- permits as its users say; a read-write lock has 2^30, of which a reader takes one and a writer all.
--
-- KEYS[4] permits  zset  token -> when the lease ends, in µs of server time
-- KEYS[5] holders  hash  token -> weight and fence; capacity; used: the sum of the holders' weights. It lasts longer
--                        than any lease and any place in the queue, so that the capacity stands while anybody is there
-- KEYS[6] wants    hash  token -> how many permits a waiter wants, if more than one; capacity, so that the key is there
--                        while anybody waits

local permits, holders, wants = KEYS[4], KEYS[5], KEYS[6]
