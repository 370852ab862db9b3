-- acquire: requests the lock, and joins the queue unless told not to.
-- KEYS  number queue alive
-- ARGV  fence_ttl token waiter_ttl max_waiters ticket weight capacity
--       waiter_ttl: ms, 0: do not queue; max_waiters: 0 for any number; ticket: the waiter's, 0 if it has
--       none; weight, capacity: of permits, a mutex has neither
-- reply granted fence state     state: of the queue afterwards, as in the reply of release
--     | queued ticket position last retry_after holder     last: the last number before this request; retry_after: ms
--       until another request can help, -1 unknown; holder: token of a holder, '' if there is none
--     | busy state holder
--     | full waiters
--     | capacity have     the lock is in use with another capacity
local token, waiter_ttl, max_waiters, ticket, weight, capacity = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
waiter_ttl, max_waiters, ticket = tonumber(waiter_ttl), tonumber(max_waiters), tonumber(ticket)
local ttl = ttl_of(token)
find_number()

-- The reply to an earlier request was lost, or the notification of a grant.
local held = fence_of(token)
if held then
  extend_lease(token, ttl)
  return { 'granted', held, 'blocked' }
end

-- A capacity stands until the last holder and waiter is gone; those that have expired can be removed.
local have = capacity_conflict(token, weight, capacity)
if have and admit() then have = capacity_conflict(token, weight, capacity) end
if have then return { 'capacity', have } end

-- The request was sent before its token left, and arrives after.
if tonumber(call('ZSCORE', alive, member(token)) or 0) < 0 then return { 'busy', 'blocked', holder() or '' } end

-- 0: the token is not queued. tonumber rejects a score that miniredis writes as 1e+15.
local place = tonumber(call('ZSCORE', queue, token) or nil) or 0

-- Wherever a ticket was given, there was a number. If it is gone, Redis has lost its data, and a client may still hold
-- the lock: the lock is quarantined for one ttl. No number is below one that a client knows.
local lost = ticket > 0 and last == 0
if ticket > math.max(now, last) + 35184372088832 then error('the ticket is too far ahead') end -- 2^45 µs: 407 days
raise_number(ticket)
if lost and not holder() then grant('nobody:quarantined', ttl, free()) end
local before = last

local function join(with_ticket)
  record_want(token)
  write_number(waiter_ttl)
  call('ZADD', alive, now + waiter_ttl * 1000, member(token))
  call('ZADD', queue, with_ticket, token)
  keep_queue(waiter_ttl)
end

-- A waiter that returns is in its old place before others are admitted.
if ticket > 0 and waiter_ttl > 0 and place == 0 and free() > 0 then
  place = ticket
  join(place)
end

local state, given = admit(token)
if not given and state == 'empty' then
  if weight_of(token) <= free() then
    given = grant(token, ttl, weight_of(token))
  elseif expired_remain() then
    state = 'more'
  end
end
if given then return { 'granted', given, state } end
if waiter_ttl == 0 then return { 'busy', state, holder() or '' } end

if place == 0 then
  -- Expired waiters are not dropped here, only not counted.
  if max_waiters > 0 and ticket == 0 and call('ZCARD', queue) >= max_waiters then
    local waiters = call('ZCOUNT', alive, now, '+inf')
    if waiters >= max_waiters then return { 'full', waiters } end
  end
  place = ticket > 0 and ticket or next_number()
end
join(place)

-- Only the first two are told when to retry. Others are notified, or told by a heartbeat; unless the head has missed
-- its heartbeats: then all waiters ahead of this one may have expired.
local ahead = call('ZRANK', queue, token)
local after = -1
if state == 'more' then
  after = 0
elseif ahead <= 1 or ms_left(call('ZRANGE', queue, 0, 0)[1]) < waiter_ttl / 2 then
  after = retry_after(ahead)
end
return { 'queued', place, ahead + 1, before, after, holder() or '' }
