-- release: gives the lock back and hands it over to the head of the queue in the same step.
-- KEYS  queue alive fence
-- ARGV  token ttl
--       ttl: ms, the most a waiter is given
-- reply released state grants   released: 1 if the token held the lock; state: of the queue afterwards, empty,
--       blocked or more (call again); grants: {token fence ms} each
local token, ttl = ARGV[1], ARGV[2]
