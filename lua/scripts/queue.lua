-- The queue, under every kind of lock: it decides which waiter is next, and the store whether the lock can be granted.
--
-- queue       zset  token -> ticket: the waiter's number
-- heartbeats  hash  the token's last 14 characters -> "<end>" or "<end> <weight>": when the waiter expires without a heartbeat,
--                   by the queue's clock; how many permits it asks for, if not one. The field clock is
--                   "<clock> <at> <pass> <cursor> <quarantine>", 16 digits each, and what a later version adds: the queue's
--                   clock; the server's when that was updated; the queue's when the last pass of sweeps began; the ticket
--                   behind which the pass goes on, 0 if it has ended; until when the lock is quarantined, by the queue's clock. So
--                   long a value keeps Redis from storing a small hash as a list, which it would search
-- tombstones  zset  the last 14 characters of a token that has left -> until when it is refused, by the server's clock
--
-- The queue's clock (µs) advances with the server's, but by at most a second at each update: so a single step or stall
-- of the server does not expire waiters that send heartbeats. The waiters of queue and heartbeats are the same.
--
-- A script may run twice for one request, and Redis rolls nothing back when a later command fails. So each script is
-- idempotent for its token, is bounded, and reads everything that can have a wrong type before it writes. The first
-- write of a script is the one that a server without memory refuses: Redis lets a script finish that has written.
--
-- Redis builds every function anew in every call, which costs as much as a small command. So common_acquire.lua and
-- common_release.lua return before the functions of the store and the queue are built. They repeat what they need of these
-- rules: a change here may be one there.
--
-- A waiter that is not expired is never dropped: it leaves the queue by a grant or by its own leave. The only exception
-- is the loss of a key (drop_all): then all waiters have to request again, and keep their tickets.

local clock, at, pass, cursor, quarantine, more_of_clock -- what the field clock says, brought forward to now
local since                                  -- µs since it was recorded
local waiting                                -- the number of waiters, when update_clock returned
local MAX_SWEPT = 10                         -- waiters in one script

-- A number in full, for a text.
local function text_of(n) return string.format('%.0f', n) end

local function raise_number(to)
  if to > last then last, last_text = to, string.format('%016.0f', to) end
end

-- A waiter that leaves the queue by a grant, or is dropped, may come back with its ticket: that is no sign of a loss.
local function raise_served(to)
  if to > served then served, served_text = to, string.format('%016.0f', to) end
end

-- keep_number has the number, if it is known, outlast a key that lasts for another ms, as write_number does.
local function keep_number(ms)
  read_number()
  if last > 0 and (not others or ends < math.floor(now / 1000) + ms + fence_ttl) then write_number(ms) end
end

-- find_number reads the number, or makes it of what is there, if it was lost: none is given again. A script calls it
-- before it uses last. It needs the key queue and the store.
local function find_number()
  if last then return end
  read_number()
  if last > 0 then return end
  local tail = tonumber(call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0)
  if tail > 0 or holder() then raise_number(math.max(now, tail, highest_fence())) end
end

-- A token's member in heartbeats and tombstones. Its 80 random bits tell the waiters of a lock apart.
local function member(token) return string.sub(token, -14) end

-- heartbeat_of returns what a field of heartbeats says of a waiter: when it expires, and its weight.
local function heartbeat_of(record)
  local ends = tonumber(record or 0)
  if ends then return ends, 1 end
  local weight
  ends, weight = string.match(record, '^(%d+) (%d+)$')
  return tonumber(ends or 0), tonumber(weight or 1)
end

-- read_clock_of_queue reads the field clock, or parses it if it is given, and brings it forward to now. Without one, the
-- clock begins at 0.
local function read_clock_of_queue(text)
  if clock then return end
  text = text or call('HGET', heartbeats, 'clock') or ''
  clock, at = tonumber(string.sub(text, 1, 16)) or 0, tonumber(string.sub(text, 18, 33))
  pass, cursor = tonumber(string.sub(text, 35, 50)) or 0, tonumber(string.sub(text, 52, 67)) or 0
  quarantine, more_of_clock = tonumber(string.sub(text, 69, 84)) or 0, string.sub(text, 85)
  since = now - (at or now)
  clock, at = clock + math.min(math.max(since, 0), 1000000), now
end

local function clock_text()
  return string.format('%016.0f %016.0f %016.0f %016.0f %016.0f', clock, at, pass, cursor, quarantine) .. more_of_clock
end

local function quarantined() return quarantine > clock end

-- Keeps the keys of the queue for ten minutes longer than so many ms and a quarantine, and never for less than before;
-- not at every call, only once a minute. The number is kept for longer.
local KEPT, KEPT_AT_MOST = 600000, 660000 -- ms
local function keep_queue(ms)
  ms = math.max(ms, math.floor((quarantine - clock) / 1000))
  keep_number(ms + KEPT_AT_MOST)
  local left = call('PTTL', queue)
  if left < ms + KEPT then
    left = ms + KEPT_AT_MOST
    for _, key in ipairs({ queue, heartbeats }) do call('PEXPIRE', key, left) end
  end
  keep_records(left)
end

-- A ticket was lost with Redis's data if it is not queued, and neither was granted the lock nor dropped, or was given before
-- the number was made.
local function was_lost(ticket) return ticket > served or ticket < tonumber(first_text or 0) end

-- begin_quarantine notes that data were lost: the lock is granted to nobody for ms. Until then its waiters come back
-- with their tickets, and its old holders learn of it. Tickets up to the last number are no sign of a loss from now on.
local function begin_quarantine(ms)
  ms = math.max(ms, 3000)
  read_clock_of_queue()
  raise_served(next_number()) -- above every number that a caller knows
  first_text = '0000000000000000'
  write_number(ms + KEPT_AT_MOST)
  quarantine = math.max(quarantine, clock + ms * 1000)
  call('HSET', heartbeats, 'clock', clock_text())
  if call('PTTL', heartbeats) < 0 then call('PEXPIRE', heartbeats, ms + KEPT_AT_MOST) end
  keep_queue(0)
end

-- lengthen_quarantine has a quarantine last for ms since it began, which is when served was given.
local function lengthen_quarantine(ms)
  if not quarantined() then return end
  local ends = clock - math.max(now - served, 0) + ms * 1000
  if ends <= quarantine then return end
  quarantine = ends
  call('HSET', heartbeats, 'clock', clock_text())
  keep_queue(0)
end

-- drop_all removes all waiters, who come back with their tickets.
local function drop_all()
  call('UNLINK', queue, heartbeats)
  call('HSET', heartbeats, 'clock', clock_text())
  keep_queue(0)
end

-- update_clock records the queue's clock, if anybody is queued or the lock is quarantined. If queue and heartbeats do
-- not have the same waiters, one of the keys was lost.
local function update_clock()
  local WRITTEN_AGAIN = 20000 -- µs: without an update that is closer, the next one gives the same sum
  waiting = call('ZCARD', queue)
  local entries = call('HLEN', heartbeats)
  read_clock_of_queue()
  if entries + waiting > 0 and entries ~= waiting + 1 then
    drop_all()
    waiting = 0
  end
  if waiting == 0 then pass, cursor = clock, 0 end
  if (waiting > 0 or quarantined()) and (since < 0 or since > WRITTEN_AGAIN) then
    call('HSET', heartbeats, 'clock', clock_text())
  end
end

local function remove_waiter(token)
  call('ZREM', queue, token)
  call('HDEL', heartbeats, member(token))
end

local function drop(token, ticket)
  raise_served(tonumber(ticket))
  write_number(KEPT_AT_MOST)
  remove_waiter(token)
end

-- sweep removes the expired of ten waiters, in passes through the queue: one each minute of the queue's clock, or at
-- once if the last one began every_us before.
local function sweep(every_us)
  if cursor == 0 then
    if waiting == 0 or clock - pass < (every_us or 60000000) then return end
    pass = clock
  end
  local found = call('ZRANGEBYSCORE', queue, '(' .. text_of(cursor), '+inf', 'WITHSCORES', 'LIMIT', 0, MAX_SWEPT)
  cursor = tonumber(found[2 * MAX_SWEPT] or 0)
  for i = 1, #found, 2 do
    if heartbeat_of(call('HGET', heartbeats, member(found[i]))) <= clock then drop(found[i], found[i + 1]) end
  end
  call('HSET', heartbeats, 'clock', clock_text())
end

-- admit(requester, grants) is the only rule of admission. While permits are free and the lock is not quarantined, it drops
-- the head if it has expired; else it grants the head the lock, if enough is free for it, for what is left until it
-- expires, at most its own TTL; else it stops. The requester is the waiter whose request this is: it is not expired. Others
-- are notified, and token, fence and ms of each are appended to grants, if the caller wants them. A caller without
-- rights to the channel must not see an error for a lock that it has in fact released: then the waiter learns of the
-- grant from its heartbeat. Returns what is left of the queue (empty; blocked: no permits are free, or too few for the
-- head; more: a bound was reached, call again), and the fence if the requester was granted the lock.
local function admit(requester, grants)
  local MAX_DROPPED, MAX_ADMITTED = 1000, 128
  local own, dropped, admitted = nil, 0, 0
  find_number()
  free()
  local lost = lost_ttl()
  if lost then begin_quarantine(lost) end
  while free() > 0 do
    local head, ticket = unpack(call('ZRANGE', queue, 0, 0, 'WITHSCORES'))
    if not head then return 'empty', own end
    if dropped == MAX_DROPPED or admitted == MAX_ADMITTED then return 'more', own end
    local found = call('HMGET', heartbeats, 'clock', member(head))
    read_clock_of_queue(found[1])
    if quarantined() then break end
    if not found[2] then
      drop_all()
      return 'empty', own
    end
    local ends, weight = heartbeat_of(found[2])
    local ms = ttl_of(head)
    if head ~= requester then ms = math.min(ms, math.floor((ends - clock) / 1000)) end
    if ms <= 0 then
      dropped = dropped + 1
      drop(head, ticket)
    elseif weight <= free() then
      raise_served(tonumber(ticket))
      local given, text = grant(head, ms, weight)
      admitted = admitted + 1
      remove_waiter(head)
      if head == requester then
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

-- release_holders(remove, ...) calls remove, which takes the lock from holders. The number is read before, because the
-- fences of the removed ones count if it was lost; if that fails, the lock is released all the same.
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

-- extend_lease(token, ttl) has a holder's lease last for ttl from now, and the number longer. It begins with a command
-- that takes no memory: a full server lets a script finish that has written.
local function extend_lease(token, ttl)
  extend(token, ttl)
  keep_number(ttl)
end

-- After how many ms another request can help a waiter with so many ahead: when all of them have expired, a quarantine is
-- over and, if nothing is free or the waiter is the head and needs more, a lease ends by itself. -1: none will, or too
-- many are ahead: then a heartbeat grants the lock to the next.
local function retry_after(ahead)
  local MAX_READ = 16
  if ahead > MAX_READ then return -1 end
  local ms = free() > 0 and (ahead > 0 or quarantined()) and 0 or next_expiry()
  if ms < 0 then return -1 end
  ms = math.max(ms, math.floor((quarantine - clock) / 1000))
  if ahead > 0 then
    local members = call('ZRANGE', queue, 0, ahead - 1)
    for i, token in ipairs(members) do members[i] = member(token) end
    for _, record in ipairs(call('HMGET', heartbeats, unpack(members))) do
      ms = math.max(ms, math.floor((heartbeat_of(record) - clock) / 1000))
    end
  end
  return ms + 1
end
