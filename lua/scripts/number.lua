-- The lock's one series of numbers, tickets and fences, and the queue's clock.
--
-- number  string  "<layout> <last> <clock> <at>": the layout of all keys, the last number that was given or brought, the
--                 queue's clock, and the server's time when that clock was set, in µs. After a resize " <permits>"
--                 follows: while a slot moves, a release cannot declare the key resized, which seldom exists
--
-- The next number is the time in µs, or the last number + 1 if that is higher. So numbers rise if the clock stands
-- still or steps back, and after a loss of data. The queue's clock advances with the server's, by at most a second at
-- each update. So one step or stall of the server does not expire waiters that send heartbeats.

local last, clock
local missing = false -- whether there was no number when the script began
local queue_ms -- how long the queue lasts, if the script knows it

-- read_number reads the number, and brings the queue's clock forward, once. Without a number, last is the highest
-- number of the holders and the queue. A ticket that the request brings (0: none) raises last. It writes nothing.
local function read_number(ticket)
  if last then return end
  read_time()
  local stored = call('GET', number)
  missing = not stored
  if stored then
    local recorded, was, at, size = string.match(stored, '^2 (%d+) (%d+) (%d+) ?(%d*)$')
    if not recorded or tonumber(recorded) > 9006099743113216 then -- 2^53 - 2^40
      local layout = string.match(stored, '^(%d+) ')
      error(layout and layout ~= '2' and 'the number has layout ' .. layout or 'the number is damaged')
    end
    last, clock = tonumber(recorded), was + math.min(math.max(now - at, 0), 1000000)
    resized_to = tonumber(size)
  else
    local tail = call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    last, clock = math.max(tonumber(tail or 0), highest_fence()), 0
  end
  if ticket > last and ticket > now + 35184372088832 then error('the number is too far ahead') end -- 2^45
  last = math.max(last, ticket)
end

-- next_number returns the next number, which write_number records.
local function next_number()
  last = math.max(now, last + 1)
  return last
end

-- write_number records the last number and the queue's clock. They last for FenceTTL longer than ms and than the queue.
-- They also last until the server's clock has reached the number, because a clock that has stepped back would give
-- lower ones. They never last for a shorter time than before, because an operator's request does not know the clients'
-- FenceTTL.
local function write_number(ms)
  last = math.max(last, now)
  ms = math.max(ms + fence_ttl, (queue_ms or call('PTTL', queue)) + fence_ttl, math.ceil((last - now) / 1000),
    call('PTTL', number))
  local size = resized_to and ' ' .. text_of(resized_to) or ''
  call('SET', number, '2 ' .. text_of(last) .. ' ' .. text_of(clock) .. ' ' .. now_text .. size, 'PX', ms)
end
