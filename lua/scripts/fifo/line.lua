-- The line of a lock without keys: the first waiter in the queue is next.
--
-- Contract. keyed/line.lua provides the same.
--   GRANTS, DROPS, ENDS     bounds for one script: waiters that it grants the lock, waiters that it drops, holders that it
--                           removes
--   key_of(token)           the token's key; nil without keys
--   broken(waiting, record) whether a part of the lines was lost, given the number of waiters and the result of count()
--   forget()                forgets all lines
--   first()                 the next waiter; or nil, and why: empty, blocked (no waiter can be granted the lock now) or more
--                           (a bound was reached). It marks keys that it finds at their limits
--   key_fits(token, less)   whether the key limit leaves room for the token once less permits of its key have ended
--   behind(token, state)    why a token that is not queued is not next, after an admission with that state: turn, or key if
--                           its key is at its limit; nil if it is next
--   joined(token, ticket, was)
--                           a waiter has joined the queue; was is its earlier ticket
--   left(token...)          waiters are about to leave the queue; the first of them may have been granted the lock
--   granted(token, fence)   the lock is about to be granted. Returns fields and values to store with the holder
--   ended(tokens)           leases have ended
--   lines_last(ms)          makes the keys of lines last for ms
--   position(token, ticket) the position of a waiter in its line, or without ticket that of the next one to join it; nil: as
--                           in the queue
--   list_keys(limit)        the first keys with waiters, as in the reply of inspect

local GRANTS, DROPS, ENDS = 64, 100, 500

local function first()
  local head = call('ZRANGE', queue, 0, 0)[1]
  return head, 'empty'
end

local function behind(_, state) return state ~= 'empty' and 'turn' or nil end

local function key_fits() return true end

local function list_keys() return {} end

local function nothing() end
local key_of, broken, forget, joined, left, granted, ended, lines_last, position =
  nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
