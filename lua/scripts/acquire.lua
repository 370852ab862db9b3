-- acquire: requests the lock, and joins the queue unless told not to.
-- ARGV  fence_ttl token waiter_ttl max_waiters ticket
--       waiter_ttl: ms, 0: do not queue; max_waiters: 0 for any number; ticket: the waiter's, 0 if it has none
-- reply granted fence state     state: of the queue afterwards, as in the reply of release
--     | queued ticket position last retry_after holder    last: the last number, after everything in this script;
--       retry_after: for the head, ms until another request can help, else -1; holder: token of a holder, or nothing
--     | busy state free holder    free: ms after which a lease ends, -1 if none does
--     | full waiters
--     | resized permits    more permits are requested than a resize has set
local token, waiter_ttl, max_waiters, ticket = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
waiter_ttl, max_waiters, ticket = tonumber(waiter_ttl), tonumber(max_waiters), tonumber(ticket)
local ttl, kept = ttl_of(token), waiter_ttl + KEPT

read_number(ticket)
-- The request was sent before its token left, and arrives after.
if has_tombstone(token) then return 'busy blocked -1' end

-- The reply to an earlier request was lost, or the notification of a grant.
local held_by = fence_of(token)
if held_by then
  extend(token, ttl)
  return 'granted ' .. held_by .. ' blocked'
end

open()
local queued_as = tonumber(call('ZSCORE', queue, token) or nil)
local function join(as)
  if queued_as then call('PEXPIRE', queue, kept) end -- on a full server the rest passes
  call('ZADD', queue, text_of(as), token)
  call('ZADD', heartbeats, text_of(clock + waiter_ttl * 1000), token)
  call('PEXPIRE', queue, kept)
  call('PEXPIRE', heartbeats, kept)
  queued_as = as
end

-- A waiter that returns is queued by its ticket before others are dropped and admitted.
if waiter_ttl > 0 and (queued_as or ticket > 0) then
  join(ticket > 0 and queued_as and math.min(ticket, queued_as) or queued_as or ticket)
end
drop_expired()
local state, given = admit(token)
if state == 'empty' and not given then
  if fits(token) then given = grant(token, ttl) elseif more_expired then state = 'more' end
end
tell_head(token)
if given then return 'granted ' .. given .. ' ' .. state end

local ahead = queued_as and call('ZRANK', queue, token) -- false: it is new, or was dropped
local others = ahead or call('ZCARD', queue)
local refusal = not ahead and too_large(token) and 'resized ' .. resized_to
  or waiter_ttl == 0 and 'busy ' .. state .. ' ' .. next_end() .. ' ' .. holder()
  or not ahead and max_waiters > 0 and others >= max_waiters and 'full ' .. others
if refusal then
  if waiting > 0 then write_number(0) end
  return refusal
end
if not ahead then join(next_number()) end
write_number(0)
local after = state == 'more' and 0 or others == 0 and next_end() or -1
return 'queued ' .. text_of(queued_as) .. ' ' .. others + 1 .. ' ' .. text_of(last) .. ' ' .. after .. ' ' .. holder()
