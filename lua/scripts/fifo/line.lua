-- The line of a lock without keys: the first waiter in the queue is next.
--
-- Contract. keyed/line.lua provides the same.
--   GRANTS, DROPS, ENDS     how many waiters one script grants the lock to, how many it drops, and how many holders it removes
--   key_of(token)           the key that it is for; nil: there are none
--   broken(waiting, record) whether a part of the lines was lost, for so many waiters; record: what count() has returned
--   forget()                forgets all lines
--   first()                 the waiter that is next; or nil, and why: empty, blocked (nobody can be granted the lock now) or
--                           more (a bound was reached). What it has found at its limit, it marks
--   key_fits(token, less)   whether the key limit leaves room for the token after so many permits of its key have ended
--   behind(token, state)    why others come before one that is not queued, after an admission that ended so: turn, or key if
--                           its key is at its limit; nil if it is next
--   joined(token, ticket, was)
--                           a waiter has joined the queue, and had the ticket was before
--   left(token...)          waiters are about to leave the queue, perhaps since the first of them was granted the lock
--   granted(token, fence)   the lock is about to be granted. Returns fields and values to store with the holder
--   ended(tokens)           leases have ended
--   lines_last(ms)          the keys of lines last for ms
--   position(token, ticket) of a waiter in its line, or if ticket is nil that of the next one that joins it; nil: as in the queue
--   list_keys(limit)        the first keys for which somebody waits, as inspect replies them

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
