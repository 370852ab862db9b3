-- Who may hold permits: any number of holders, whose weights make up at most the capacity. A semaphore has as many
-- permits as its users say; a read-write lock has 2^30, of which a reader takes one and a writer all.
--
-- KEYS[4] permits  zset  token -> when the lease ends, in µs of server time
-- KEYS[5] holders  hash  token -> weight and fence; "wants " and the token of a waiter that wants more than one permit
--                        -> how many; capacity; used: the sum of the holders' weights. It lasts as long as the others,
--                        so that the capacity stands while anybody holds or waits

local permits, holders = KEYS[4], KEYS[5]
