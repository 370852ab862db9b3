-- acquire: asks for the lock, and joins the queue or only tries.
-- KEYS  queue alive fence lock
-- ARGV  wake token ttl patience bound ticket mode
--       ttl, patience in ms; bound: the most waiters, 0 for any number; ticket: the one it had, or empty;
--       mode: wait or try
-- reply granted fence
--     | queued ticket position fence helps     fence: the last one; helps: ms after which asking can help, -1 unknown
--     | busy
--     | full waiters
local token, ttl, patience, bound, ticket, mode = select(2, unpack(ARGV))
ttl, patience, bound = tonumber(ttl), tonumber(patience), tonumber(bound)

-- A reply got lost, or a hand-over was not heard of.
if holds(token) then
  extend(token, ttl)
  if not last() then record(now()) end
  return { 'granted', digits(fenceof(token)) }
end

-- Who has a ticket has seen a fence, or at least a holder who left one. If there is none, Redis has lost its data,
-- and somebody may still believe that the lock is his: it rests for one ttl.
if ticket ~= '' and not last() and vacant() then
  take(NOBODY, ttl)
  record(math.max(now(), tonumber(ticket)))
end

local grants, state = admit(ttl, token)
local mine
for _, g in ipairs(grants) do
  if g[1] == token then mine = g[2] else tell(g) end
end
if not mine and state == 'empty' and fits(token) then mine = grant(token, ttl) end
if mine then return { 'granted', mine } end
if mode == 'try' then return { 'busy' } end

local place = call('ZSCORE', queue, token)
if not place then
  -- The dead are not judged here, only not counted.
  if bound > 0 and call('ZCARD', queue) >= bound then
    local living = call('ZCOUNT', alive, digits(now()), '+inf')
    if living >= bound then return { 'full', living } end
  end
  if ticket ~= '' then
    place = ticket
  else
    local tail = call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    place = math.max(now(), tonumber(tail[2] or 0) + 1, (last() or 0) + 1)
  end
end
place = digits(tonumber(place))
call('ZADD', alive, digits(now() + patience * 1000), token)
call('ZADD', queue, place, token)
keep(patience)

-- Only the first two are told when to ask, the others are woken, or told at their next beat; unless the head has
-- missed its beats: then the queue may be dead down to this waiter.
local ahead = call('ZRANK', queue, token)
local after = -1
if ahead <= 1 or state == 'more' or patienceleft(call('ZRANGE', queue, 0, 0)[1]) < patience / 2 then
  after = helps(ahead)
end
return { 'queued', place, ahead + 1, digits(last() or 0), after }
