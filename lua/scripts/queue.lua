-- The queue, under every kind of lock: it decides which waiter is next, and the store whether the lock can be granted.
--
-- queue       zset  token -> ticket
-- heartbeats  zset  token -> when the waiter expires without a heartbeat, by the queue's clock (number.lua)
-- tombstones  zset  token that has left -> until when it is refused, by the server's clock; '<id> <fence>' of what a request to
--                   resume a lease has done -> until when that is known
--
-- A script may run twice for one request, and Redis rolls nothing back when a later command fails. So each script is
-- idempotent for its token, and bounded, and reads all keys that can have a wrong type before it writes. The first
-- write of a script is the one that a full server refuses: Redis lets a script finish that has written.

local too_heavy = 0 -- heads that this script has dropped because they want more permits than there are
local handed = '' -- ' <token> <fence> <ms>' of each waiter that this script has handed the lock
local changed = false -- whether another waiter may be the head, or the head may be blocked by something else, than before

-- open prepares what admission needs, after read_number. capacity: that a request brings
local function open(capacity)
  count(capacity)
  if lost and call('ZCARD', heartbeats) > 0 then call('UNLINK', heartbeats) end -- ZCARD fails if the key is not ours
end

-- drop_expired drops waiters that have expired, wherever they stand, at most a hundred.
local function drop_expired()
  local expired = call('ZRANGEBYSCORE', heartbeats, '-inf', text_of(clock + 999), 'LIMIT', 0, 100)
  if #expired == 0 then return end
  call('ZREM', queue, unpack(expired))
  call('ZREM', heartbeats, unpack(expired))
  changed = true
end

-- publish sends a client a message. A user without rights to the channel must not see an error for a lock that was released.
local function publish(client, text)
  redis.pcall('PUBLISH', string.match(queue, '^(.-):{') .. ':notify:' .. client, text)
end

-- notify sends the client of a waiter a message.
local function notify(token, text) publish(string.sub(token, 1, -51), text) end

-- tell_head tells the head, if nobody will release what it waits for, after how long another request can help.
local function tell_head(requester)
  local head = changed and any_released() and call('ZRANGE', queue, 0, 0)[1]
  if head and head ~= requester then notify(head, head .. ' 0 ' .. next_end()) end
end

local function grant(token, ms, kept)
  local fence = text_of(next_number())
  write_number(ms + kept)
  put(token, fence, ms)
  return fence
end

-- heads returns the first two waiters. Before that it drops heads that want more permits than there are, at most a hundred:
-- they would block all behind them.
local function heads()
  while true do
    local head, second = unpack(call('ZRANGE', queue, 0, 1))
    if not head or weight_of(head) <= total or too_heavy == 100 then return head, second end
    call('ZREM', queue, head)
    call('ZREM', heartbeats, head)
    too_heavy, changed = too_heavy + 1, true
  end
end

-- drop_heads lets a head that wants too much learn it though nothing is free: the lock was resized, or that was ended, so that more
-- is held than there is.
local function drop_heads()
  if free < 0 and total > 0 or free == 0 and fixed then heads() end
end

-- admit is the only rule of admission. While permits are free, it grants the head of the queue the lock if enough is free
-- for it, for what is left until it expires, at most for its TTL; else it stops. The requester is the waiter that sends this
-- request: it has not expired. Others are notified. Returns what is left of the queue (empty; blocked: too little is free for
-- the head; more: a bound was reached, and another request goes on), and the fence if the requester was granted the lock.
local function admit(requester)
  local admitted, own = 0, nil
  while free > 0 do
    local head, second = heads()
    if not head then return 'empty', own end
    local ms = ttl_of(head)
    if head ~= requester then
      local ends = call('ZSCORE', heartbeats, head) -- none: the key was lost
      ms = math.min(ms, ends and math.floor((ends - clock) / 1000) or 3000)
    end
    if ms < 1 or admitted == 64 then return 'more', own end
    if weight_of(head) > free then break end
    local fence = grant(head, ms, second and KEPT or 0)
    call('ZREM', queue, head)
    call('ZREM', heartbeats, head)
    admitted, changed = admitted + 1, true
    if head == requester then
      own = fence
    else
      local text = head .. ' ' .. fence .. ' ' .. ms
      notify(head, text)
      handed = handed .. ' ' .. text
    end
  end
  drop_heads()
  tell_head(requester)
  return (more_expired or too_heavy == 100) and 'more' or 'blocked', own
end

-- set_tombstones sets a tombstone for each of these tokens: an acquire that brings one is refused from then on.
local function set_tombstones(tokens)
  local untils, over = {}, call('ZRANGEBYSCORE', tombstones, '-inf', now_text, 'LIMIT', 0, 500)
  if #over > 0 then call('ZREM', tombstones, unpack(over)) end
  for i, token in ipairs(tokens) do untils[2 * i - 1], untils[2 * i] = text_of(now + KEPT * 1000), token end
  call('ZADD', tombstones, unpack(untils))
  call('PEXPIRE', tombstones, KEPT)
end

-- hand_off(released) admits waiters after a release, and returns the reply. Whatever is wrong with the queue, what was
-- released stays released.
local function hand_off(released)
  read_time()
  local ok, state = pcall(function()
    read_number(0)
    open()
    changed = true
    if free <= 0 and not released and not fixed then
      if missing and last > 0 then write_number(KEPT) end
      drop_heads()
      tell_head()
      return (more_expired or too_heavy == 100) and 'more' or 'blocked'
    end
    drop_expired()
    local state = admit()
    if state == 'empty' then
      clear()
      if missing and last > 0 and handed == '' then write_number(0) end
    elseif handed == '' then
      write_number(KEPT)
    end
    return state
  end)
  return (released and '1 ' or '0 ') .. (ok and state or 'blocked') .. handed
end
