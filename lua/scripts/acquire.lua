-- acquire: requests the lock, and joins the queue unless told not to.
-- ARGV  fence_ttl token waiter_ttl max_waiters ticket capacity
--       waiter_ttl: ms, 0: do not queue; max_waiters: 0 for any number; ticket: the waiter's, 0 if it has none; capacity:
--       of permits, a mutex has none
-- reply granted fence state     state: of the queue afterwards, as in the reply of release
--     | queued ticket position last retry_after holder    last: the last number, after everything in this script;
--       retry_after: for the head, ms until another request can help, else -1; holder: token of a holder, or nothing
--     | busy state holder free    free: ms after which another request can help, if that holder was released
--     | full waiters
--     | capacity have want    want: the permits that are requested, more than there are; or the capacity, another than the one in
--       use
local token, waiter_ttl, max_waiters, ticket, capacity = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
waiter_ttl, max_waiters, ticket, capacity = tonumber(waiter_ttl), tonumber(max_waiters), tonumber(ticket), tonumber(capacity)
local ttl = ttl_of(token)

read_number(ticket)
-- The request was sent before its token left, and arrives after.
if tonumber(call('ZSCORE', tombstones, token) or 0) > now then return 'busy blocked' end

-- The reply to an earlier request was lost, or the notification of a grant.
local held_by = fence_of(token)
if held_by then
  extend(token, ttl)
  return 'granted ' .. held_by .. ' blocked'
end

local queued_as = tonumber(call('ZSCORE', queue, token) or nil)
call('ZCARD', heartbeats) -- it fails if the key is not ours, before anything is written
open(capacity)

local function join(as)
  local empty = call('EXISTS', queue) == 0
  if queued_as then call('PEXPIRE', queue, waiter_ttl + KEPT) end -- on a full server the rest passes
  call('ZADD', queue, text_of(as), token)
  if empty then
    clock = now
    call('UNLINK', heartbeats)
  end
  call('ZADD', heartbeats, text_of(clock + waiter_ttl * 1000), token)
  call('PEXPIRE', queue, waiter_ttl + KEPT)
  call('PEXPIRE', heartbeats, waiter_ttl + KEPT)
  if capacity then
    record_capacity()
    keep(waiter_ttl + KEPT)
  end
  queued_as = as
end

local function refuse(want)
  if call('EXISTS', queue) == 1 then write_number(KEPT) end -- its clock goes on
  return string.format('capacity %.0f %.0f', total, want)
end

-- A capacity that was not resized stands until the last holder and waiter is gone. A token that is queued has the one in force.
if capacity and total ~= capacity and not fixed and not queued_as then
  drop_expired()
  if used > 0 or call('EXISTS', queue) == 1 then
    local refusal, expired = refuse(capacity), call('ZCOUNT', heartbeats, '-inf', text_of(clock + 999)) > 0
    return (more_expired or expired) and 'busy more ' or refusal
  end
  brought, total, free = capacity, capacity, capacity - used
end

-- A waiter that returns is queued by its ticket before others are dropped and admitted.
if waiter_ttl > 0 and (queued_as or ticket > 0) then
  join(ticket > 0 and queued_as and math.min(ticket, queued_as) or queued_as or ticket)
end
drop_expired()
local state, given = admit(token)
if capacity and weight_of(token) > total and not call('ZSCORE', queue, token) then return refuse(weight_of(token)) end -- new, or dropped
if state == 'empty' and not given then
  if weight_of(token) <= free then
    given = grant(token, ttl, 0)
  elseif more_expired then
    state = 'more'
  end
end
if given then return 'granted ' .. given .. ' ' .. state end
if waiter_ttl == 0 then
  if call('EXISTS', queue) == 1 then write_number(KEPT) end
  local by = holder()
  return 'busy ' .. state .. ' ' .. by .. (has_flag(by, RELEASED) and ' ' .. next_end() or '')
end

local ahead = 0
if not queued_as then
  ahead = call('ZCARD', queue)
  if max_waiters > 0 and ahead >= max_waiters then
    write_number(waiter_ttl + KEPT)
    return 'full ' .. ahead
  end
  join(next_number())
else
  ahead = call('ZRANK', queue, token)
end
write_number(waiter_ttl + KEPT)
local after = state == 'more' and 0 or ahead == 0 and next_end() or -1
return 'queued ' .. text_of(queued_as) .. ' ' .. ahead + 1 .. ' ' .. text_of(last) .. ' ' .. after .. ' ' .. holder()
