-- acquire: requests the lock, and joins the queue unless told not to.
-- ARGV  fence_ttl token waiter_ttl max_waiters ticket max_line
--       waiter_ttl   ms; 0: do not queue
--       max_waiters  the bound on waiters of the lock; 0: any number
--       ticket       the waiter's ticket; 0 if it has none
--       max_line     the bound on waiters of the token's key; 0: any number
-- reply granted fence state
--       state        of the queue afterwards, as in the reply of release
--     | queued ticket position last retry_after holder
--       position     in its line
--       last         the last number, after everything in this script
--       retry_after  for the first of the queue, ms until another request can help; else -1
--       holder       the token of a holder, or nothing
--     | busy state free why holder
--       free         ms after which rests of minimum holds that block the token have ended; -1 if something else blocks it
--       why          lock: too little is free; key: its key is at its limit; turn: others come first
--       holder       a holder that blocks the token, or nothing
--     | full waiters why
--       waiters      their number; why: of the lock, or of the key
--     | resized permits
--       permits      the number that a resize has set; more are requested
local token, waiter_ttl, max_waiters, ticket, max_line = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
waiter_ttl, max_waiters, ticket, max_line = tonumber(waiter_ttl), tonumber(max_waiters), tonumber(ticket), tonumber(max_line)
local ttl, life = ttl_of(token), waiter_ttl + KEPT

read_number(ticket)
read_resized()
-- This is a late copy: the waiter has already left.
if has_tombstone(token) then return 'busy blocked -1 lock' end

-- The reply to an earlier request was lost, or the notification of a grant.
local held_by = fence_of(token)
if held_by then
  extend(token, ttl)
  return 'granted ' .. held_by .. ' blocked'
end

open()
local queued_as = waiting > 0 and tonumber(call('ZSCORE', queue, token) or nil) or nil
local function join(as)
  if queued_as then call('ZREM', queue, '') end -- after it, a full server accepts the other writes
  waiting = waiting + call('ZADD', queue, text_of(as), token)
  call('ZADD', heartbeats, text_of(clock + waiter_ttl * 1000), token)
  joined(token, as, queued_as)
  keep_queue(life)
  queued_as = as
end

-- A waiter that returns is queued by its ticket before others are dropped and admitted.
if waiter_ttl > 0 and (queued_as or ticket > 0) then
  join(ticket > 0 and queued_as and math.min(ticket, queued_as) or queued_as or ticket)
end
drop_expired()
local state, given = admit(token)
local why = not given and (not fits(token) and 'lock' or behind(token, state))
if not given and not why then given = grant(token, ttl) end
if why == 'lock' and state == 'empty' and more_expired then state = 'more' end
tell_head(token)
if given then return 'granted ' .. given .. ' ' .. state end

local rank = queued_as and call('ZRANK', queue, token) -- false: it is new, or was dropped
local others = rank or waiting
local place = waiter_ttl > 0 and (position(token, rank and queued_as) or others + 1)
local free, by = -1, holder()
if waiter_ttl == 0 and waiting == 0 and state ~= 'more' then free, by = free_after(token) end
local refusal = not rank and too_large(token) and 'resized ' .. resized_to
  or waiter_ttl == 0 and 'busy ' .. state .. ' ' .. free .. ' ' .. why .. ' ' .. by
  or not rank and max_waiters > 0 and others >= max_waiters and 'full ' .. others .. ' lock'
  or not rank and max_line > 0 and place > max_line and 'full ' .. place - 1 .. ' key'
if refusal then
  if waiting > 0 then write_number(0) end
  return refusal
end
if not rank then join(next_number()) end
write_number(0)
local after = state == 'more' and 0 or others == 0 and next_end() or -1
return 'queued ' .. text_of(queued_as) .. ' ' .. place .. ' ' .. text_of(last) .. ' ' .. after .. ' ' .. holder()
