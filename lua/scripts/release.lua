-- release: gives the lock back and hands it over to the head of the queue in the same step.
-- KEYS  queue alive fence lock
-- ARGV  wake token ttl try
--       ttl: ms, the most a waiter is given; try: how often this call was sent, for who reads along
-- reply released state grants   released: 1 if the token held the lock; state: of the queue afterwards, empty,
--       blocked or more (call again); grants: {token fence ms} each
local token, ttl, try = select(2, unpack(ARGV))

local mine = holds(token)
if mine then drop(token) end
local grants, state = handover(tonumber(ttl))
return { mine and 1 or 0, state, grants }
