-- The queue, under every kind of lock. The line decides which waiter is next, and the store whether the lock can be granted.
--
-- queue       zset  token -> ticket
-- heartbeats  zset  token -> when the waiter expires without a heartbeat, by the queue's clock (number.lua)
-- tombstones  zset  token -> until when it is refused, by the server's clock. The token has left, or its lease was taken
--                   over
--
-- A script may run twice for one request, and Redis rolls nothing back when a later command fails. So each script is
-- idempotent for its token, and bounded, and reads all keys that can have a wrong type before it writes. A full server
-- refuses only the first write of a script: after that, Redis lets the script finish.

local waiting -- the number of waiters, once open() was called
local too_heavy = 0 -- heads that this script has dropped because they request more permits than a resize has set
local handed = '' -- ' <token> <fence> <ms>' of each waiter that this script has handed the lock
local changed = false -- whether another waiter may be the head, or a lease may end sooner, than before

-- open prepares admission, after read_number. If a key of the queue was lost, it removes the queue, and its waiters
-- come back with their tickets.
local function open()
  waiting = call('ZCARD', queue)
  local whole = call('ZCARD', heartbeats) == waiting and not (missing and waiting > 0)
  if not broken(waiting, count()) and whole then return end
  call('UNLINK', queue, heartbeats)
  forget()
  waiting = 0
  write_number(0)
end

-- keep_queue makes all keys of waiters last for ms from now, less a minute at most.
local function keep_queue(ms)
  queue_ms = call('PTTL', queue)
  if queue_ms >= ms - 60000 then return end
  queue_ms = ms
  call('PEXPIRE', queue, ms)
  call('PEXPIRE', heartbeats, ms)
  lines_last(ms)
end

local function dequeue(...)
  left(...)
  waiting = waiting - call('ZREM', queue, ...)
  call('ZREM', heartbeats, ...)
  changed = true
end

-- drop_expired drops expired waiters, whatever their positions.
local function drop_expired()
  if waiting == 0 then return end
  local expired = call('ZRANGEBYSCORE', heartbeats, '-inf', text_of(clock + 999), 'LIMIT', 0, DROPS)
  if #expired > 0 then dequeue(unpack(expired)) end
end

-- notify sends a notification to the client of a waiter. A user without rights to the channel must not see an error for
-- a lock that was released.
local function notify(token, text)
  local client = string.match(token, '^(.*):')
  redis.pcall('PUBLISH', string.match(queue, '^(.-):{') .. ':notify:' .. client, token .. ' ' .. text)
end

-- tell_head notifies the head when another request can help, if a lease ends soon, because it may not be released. The
-- requester learns of it from its reply, and of later ends from heartbeats.
local function tell_head(requester)
  local ms = changed and waiting > 0 and next_end() or -1
  if ms < 0 or ms > 1500 then return end
  local head = call('ZRANGE', queue, 0, 0)[1]
  if head ~= requester then notify(head, '0 ' .. ms) end
end

local function grant(token, ms)
  local fence = text_of(next_number())
  write_number(ms)
  put(token, fence, ms)
  return fence
end

-- take_over passes the lease to another token, for ms. Returns the fence of the new lease. If it fails half-way, the
-- lock stays taken.
local function take_over(token, by, ms)
  extend(token, ms) -- after it, a full server accepts the other writes
  local fence = grant(by, ms)
  remove(token)
  return fence
end

-- release ends the token's lease, if it has that fence; nil: any fence. If kept is above 0, the token by holds the lock
-- for that many ms. Returns whether it ended the lease, or by holds the lock already.
local function release(token, given, kept, by)
  local has = fence_of(token)
  if not has or given and given ~= has then return by ~= '' and fence_of(by) ~= nil end
  if kept <= 0 then return remove(token) end
  read_number(0) -- if it fails, nothing is written
  return take_over(token, by, kept) ~= nil
end

-- next_head returns the next waiter, or nil and why. Before, it drops heads that request more permits than a resize has
-- set: they would block all waiters behind them.
local function next_head()
  while true do
    local head, state = first()
    if not head or not too_large(head) or too_heavy == DROPS then return head, state end
    dequeue(head)
    too_heavy = too_heavy + 1
  end
end

-- admit is the only rule of admission. While the next waiter fits, it grants the lock to it, until the waiter expires,
-- at most for its TTL. The requester is the waiter that sends this request, which has not expired. Others are notified.
-- Returns the state of the queue, and the fence if the requester was granted the lock. The state is empty; blocked: the
-- next waiter does not fit; or more: a bound was reached, and another request goes on.
local function admit(requester)
  local admitted, own = 0, nil
  while not full() do
    local head, why = next_head()
    if why == 'blocked' then break end
    if not head then return why, own end
    local ms = ttl_of(head)
    if head ~= requester then
      ms = math.min(ms, math.floor((call('ZSCORE', heartbeats, head) - clock) / 1000))
    end
    if ms < 1 or admitted == GRANTS then return 'more', own end
    if not fits(head) then break end
    local fence = grant(head, ms) -- it fails while a cluster moves the lock's slot: then the head keeps its position
    dequeue(head)
    admitted = admitted + 1
    if head == requester then
      own = fence
    else
      local text = fence .. ' ' .. ms
      notify(head, text)
      handed = handed .. ' ' .. head .. ' ' .. text
    end
  end
  return (more_expired or too_heavy == DROPS) and 'more' or 'blocked', own
end

-- set_tombstones sets a tombstone for each of these tokens: from then on, acquire refuses the token.
local function set_tombstones(tokens)
  local untils, over = {}, call('ZRANGEBYSCORE', tombstones, '-inf', now_text, 'LIMIT', 0, 500)
  if #over > 0 then call('ZREM', tombstones, unpack(over)) end
  for i, token in ipairs(tokens) do untils[2 * i - 1], untils[2 * i] = text_of(now + KEPT * 1000), token end
  call('ZADD', tombstones, unpack(untils))
  call('PEXPIRE', tombstones, KEPT)
end

-- has_tombstone reports whether the token is refused.
local function has_tombstone(token) return tonumber(call('ZSCORE', tombstones, token) or 0) > now end

-- hand_off(released) admits waiters after a release, and returns the reply. A broken queue does not undo the release.
local function hand_off(released)
  local ok, state = pcall(function()
    read_number(0)
    open()
    changed = true
    drop_expired()
    local state = admit()
    if handed == '' and (waiting > 0 or missing and last > 0) then write_number(0) end
    if state == 'empty' then clear() else tell_head() end
    return state
  end)
  return (released and '1 ' or '0 ') .. (ok and state or 'blocked') .. handed
end
