-- The queue, under every kind of lock: it decides which waiter is next, and the store whether the lock can be granted.
--
-- KEYS[2] queue  zset  token -> ticket: the waiter's number
-- KEYS[3] alive  zset  the token's last 14 characters -> when the waiter expires (µs of server time); a negative time is a
--                      tombstone: until then a token that has left is refused
--
-- A script may run twice for one request, and Redis rolls nothing back when a later command fails. So each script is
-- idempotent for its token, is bounded, and reads everything that can have a wrong type before it writes. The first
-- write of a script is the one that a server without memory refuses: Redis lets a script finish that has written.
--
-- Redis builds every function anew in every call, which costs as much as a small command. So idle_acquire.lua and
-- idle_release.lua return before the functions of the store and the queue are built.
--
-- A waiter that is not expired is never dropped: it leaves the queue by a grant or by its own leave. An expired waiter
-- is dropped only at the head, where it is in the way. The only exception is a loss of data (capacity_conflict of
-- permits): then all waiters have to request again, and keep their tickets.

local function raise_number(to)
  if to > last then last, last_text = to, string.format('%.0f', to) end
end

-- keep_number has the number outlast a key that lasts for another ms, as write_number does.
local function keep_number(ms)
  if call('PTTL', number) < ms + fence_ttl then call('PEXPIRE', number, ms + fence_ttl) end
end

-- find_number reads the number, or makes it of what is there, if it was lost: none is given again. A script calls it before
-- it uses last.
local function find_number()
  if last then return end
  read_number()
  if last > 0 then return end
  local tail = tonumber(call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0)
  if tail > 0 or holder() then raise_number(math.max(now, tail, highest_fence())) end
end

-- A token's member in alive. Its 84 random bits tell the waiters of a lock apart.
local function member(token) return string.sub(token, -14) end

-- ms until the waiter expires; 0 or less if it has.
local function ms_left(token)
  return math.floor((tonumber(call('ZSCORE', alive, member(token)) or 0) - now) / 1000)
end

-- Keeps the keys of the queue for one waiter TTL and a little more, never for less than before. Not at every call: only
-- once most of that little is used up. What is recorded of waiters and holders is kept for longer than any waiter.
local function keep_queue(waiter_ttl)
  keep_number(waiter_ttl)
  for _, key in ipairs({ queue, alive }) do
    if call('PTTL', key) < waiter_ttl + 200 then call('PEXPIRE', key, waiter_ttl + 500) end
  end
  keep_records(waiter_ttl)
end

local function remove_waiter(token)
  call('ZREM', queue, token)
  call('ZREM', alive, member(token))
  forget_want(token)
end

-- admit(asker, grants) is the only rule of admission. While permits are free, it drops the head if it has expired; else
-- it grants the head the lock, if enough is free for it, for what is left until it expires, at most its own TTL; else it
-- stops. The asker is the waiter whose request this is: it is not expired. Others are notified, and
-- token, fence and ms of each are appended to grants, if the caller wants them. A caller without rights to the channel
-- must not see an error for a lock that it has in fact released: then the waiter learns of the grant from its heartbeat.
-- Returns what is left of the queue (empty; blocked: no permits are free, or too few for the head; more: a bound was
-- reached, call again), and the fence if the asker was granted the lock.
local function admit(asker, grants)
  local MAX_DROPPED, MAX_ADMITTED = 1000, 128
  local own, dropped, admitted = nil, 0, 0
  find_number()
  while free() > 0 do
    local head = call('ZRANGE', queue, 0, 0)[1]
    if not head then return 'empty', own end
    if dropped == MAX_DROPPED or admitted == MAX_ADMITTED then return 'more', own end
    local ms = ttl_of(head)
    if head ~= asker then ms = math.min(ms, ms_left(head)) end
    local weight = ms > 0 and weight_of(head)
    if not weight then
      dropped = dropped + 1
      remove_waiter(head)
    elseif weight <= free() then
      local given, text = grant(head, ms, weight)
      admitted = admitted + 1
      remove_waiter(head)
      if head == asker then
        own = given
      else
        if grants then
          local n = #grants
          grants[n + 1], grants[n + 2], grants[n + 3] = head, given, ms
        end
        local channel = string.match(queue, '^(.-):{') .. ':notify:' .. string.sub(head, 1, -38)
        redis.pcall('PUBLISH', channel, head .. ' ' .. text .. ' ' .. ms)
      end
    else
      break
    end
  end
  return expired_remain() and call('EXISTS', queue) == 1 and 'more' or 'blocked', own
end

-- release_holders(remove, ...) calls remove, which takes the lock from holders. The number is read before, because the fences
-- of the removed ones count if it was lost; if that fails, the lock is released all the same.
local function release_holders(remove, ...)
  pcall(find_number)
  return remove(...)
end

-- hand_off(released) admits waiters after a release, and returns the reply. Whatever is wrong with the queue, what
-- was released stays released.
local function hand_off(released)
  local reply = { released, 'blocked' }
  local ok, state = pcall(admit, nil, reply)
  if ok then reply[2] = state end
  if ok and state == 'empty' then remove_records() end
  return reply
end

-- extend_lease(token, ttl) has a holder's lease last for ttl from now, and the number longer.
local function extend_lease(token, ttl)
  keep_number(ttl)
  extend(token, ttl)
end

-- After how many ms another request can help a waiter with so many ahead: when all of them have expired and, if
-- nothing is free or the waiter is the head and needs more, a lease ends by itself. -1: none will.
local function retry_after(ahead)
  local MAX_READ = 128
  local ms = ahead > 0 and free() > 0 and 0 or next_expiry()
  if ms < 0 then return -1 end
  if ahead > 0 then
    for _, token in ipairs(call('ZRANGE', queue, 0, math.min(ahead, MAX_READ) - 1)) do
      ms = math.max(ms, ms_left(token))
    end
  end
  return ms + 1
end
