-- acquire: requests the lock, and joins the queue unless told not to.
-- KEYS  number store queue heartbeats tombstones
-- ARGV  fence_ttl token waiter_ttl max_waiters ticket if_lost weight capacity
--       waiter_ttl: ms, 0: do not queue; max_waiters: 0 for any number; ticket: the waiter's, 0 if it has
--       none; if_lost: ms for which the lock is quarantined if the ticket shows that data were lost, 0: it does not;
--       weight, capacity: of permits, a mutex has neither. A ticket without waiter_ttl is the fence of a lease that was
--       lost: nothing is requested
-- reply granted fence state     state: of the queue afterwards, as in the reply of release
--     | queued ticket position retry_after holder     retry_after: ms until another request can help, -1 unknown;
--       holder: token of a holder, '' if there is none
--     | busy state holder
--     | full waiters
--     | capacity have     the lock is in use with another capacity
local token, waiter_ttl, max_waiters, ticket, if_lost, weight, capacity = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
waiter_ttl, max_waiters, ticket, if_lost, weight =
  tonumber(waiter_ttl), tonumber(max_waiters), tonumber(ticket), tonumber(if_lost), tonumber(weight or 1)
local ttl = ttl_of(token)

find_number()
-- The request was sent before its token left, and arrives after.
if tonumber(call('ZSCORE', tombstones, member(token)) or 0) > now then return { 'busy', 'blocked', '' } end
check_number(ticket)

-- Every fence that was given is below the last number.
if ticket > 0 and waiter_ttl == 0 then
  if ticket > last then
    raise_number(ticket)
    begin_quarantine(if_lost)
  else
    read_clock_of_queue()
    lengthen_quarantine(if_lost)
  end
  return { 'busy', 'blocked', '' }
end

-- The reply to an earlier request was lost, or the notification of a grant.
local held = fence_of(token)
if held then
  extend_lease(token, ttl)
  return { 'granted', held, 'blocked' }
end

-- A capacity stands until the last holder and waiter is gone; those that have expired can be removed.
free() -- it reads what can have a wrong type, before update_clock writes
update_clock()
local have = capacity_conflict(token, capacity)
if have then
  admit()
  have = capacity_conflict(token, capacity)
end
if have then return { 'capacity', have } end

-- The ticket with which the token is queued; 0: it is not. tonumber rejects a score that miniredis writes as 1e+15.
local queued_as = tonumber(call('ZSCORE', queue, token) or nil) or 0

local returns = ticket > 0 and if_lost > 0 and queued_as == 0
local lost = returns and was_lost(ticket)
raise_number(ticket)
if lost then
  begin_quarantine(if_lost)
elseif returns then
  lengthen_quarantine(if_lost)
end

local function named_holder() return holder() or quarantined() and 'nobody:quarantined' or '' end

local function join(with_ticket)
  record_capacity()
  write_number(waiter_ttl + KEPT_AT_MOST)
  call('ZADD', queue, with_ticket, token)
  local record = text_of(clock + waiter_ttl * 1000) .. (weight > 1 and ' ' .. weight or '')
  if waiting > 0 then
    call('HSET', heartbeats, member(token), record)
  else
    call('HSET', heartbeats, 'clock', clock_text(), member(token), record)
  end
  keep_queue(waiter_ttl)
end

-- A waiter that returns is queued by its old ticket before others are admitted.
if ticket > 0 and queued_as == 0 and free() > 0 then
  queued_as = ticket
  join(queued_as)
end

local state, given = admit(token)
if not given and state == 'empty' and not quarantined() then
  if weight <= free() then
    given = grant(token, ttl, weight)
  elseif expired_remain() then
    state = 'more'
  end
end
if given then
  if waiting == 0 then call('UNLINK', heartbeats) end
  return { 'granted', given, state }
end
if waiter_ttl == 0 then return { 'busy', state, named_holder() } end

if queued_as == 0 then
  if max_waiters > 0 and ticket == 0 and call('ZCARD', queue) >= max_waiters then
    sweep(1000000)
    local waiters = call('ZCARD', queue)
    if waiters >= max_waiters then return { 'full', waiters } end
  end
  queued_as = ticket > 0 and ticket or next_number()
end
join(queued_as)
sweep()

-- Only the first two are told when to retry. Others are notified, or told by a heartbeat.
local ahead = call('ZRANK', queue, token)
local after = -1
if state == 'more' then
  after = 0
elseif ahead <= 1 then
  after = retry_after(ahead)
end
return { 'queued', queued_as, ahead + 1, after, named_holder() }
