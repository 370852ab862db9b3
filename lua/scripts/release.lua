-- release: ends a lease, and hands the lock off to the head of the queue in the same step.
-- KEYS  queue alive fence
-- ARGV  token
-- reply released state grants...   released: 1 if the token held the lock, else 0; state: of the queue afterwards,
--       empty, blocked or more (a bound was reached, call again); grants: {token fence ms} each
local token = ARGV[1]
return hand_off(remove_holder(token))
