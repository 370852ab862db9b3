-- acquire, continued: somebody holds the lock, or waits for it, or did.
ttl, patience, bound, ticket = tonumber(ttl), tonumber(patience), tonumber(bound), tonumber(ticket)

-- A reply got lost, or a hand-over was not heard of.
if holds(token) then
  keepfence(ttl)
  extend(token, ttl)
  return { 'granted', digits(fenceof(token)), 'blocked' }
end

-- Whoever is there, or was, agreed on another capacity? It ends with the last of them.
local have = meet(token, weight, capacity)
if have then
  for _, g in ipairs((admit(ttl))) do tell(g) end
  if held() or call('EXISTS', queue) == 1 then return { 'capacity', digits(have) } end
  adopt(capacity)
end

-- Sent before this token left, and arrived after: nobody would hear of the grant.
if lasts(token) < 0 then return { 'busy', 'blocked' } end
local place = tonumber(call('ZSCORE', queue, token) or nil)

-- Who has a ticket has seen a fence, or at least a holder who left one. If there is none, Redis has lost its data,
-- and somebody may still believe that the lock is his: it rests for one ttl, held by nobody.
if ticket > 0 and not held() and not last() then
  grant('nobody:resting', ttl)
  if last() < ticket then call('SET', fence, digits(ticket), 'PX', DAY) end
end

-- Who returns stands in his old place before anybody is admitted.
if ticket > 0 and patience > 0 and not place and vacant() then
  place = ticket
  stand(token)
  heard(token, patience)
  call('ZADD', queue, digits(place), token)
  keep(patience)
end

local grants, state = admit(ttl, token)
local mine
for _, g in ipairs(grants) do
  if g[1] == token then mine = g[2] else tell(g) end
end
if not mine and state == 'empty' then
  if fits(token) then mine = grant(token, ttl) elseif unswept() then state = 'more' end
end
if mine then return { 'granted', mine, state } end
if patience == 0 then return { 'busy', state } end

local f = last() or 0
if not place then
  -- The dead are not judged here, only not counted.
  if bound > 0 and ticket == 0 and call('ZCARD', queue) >= bound then
    local living = call('ZCOUNT', alive, digits(now), '+inf')
    if living >= bound then return { 'full', living } end
  end
  place = ticket
  if place == 0 then
    local tail = call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    place = math.max(now, tonumber(tail or 0) + 1, f + 1)
  end
end
place = digits(place)
stand(token)
heard(token, patience)
call('ZADD', queue, place, token)
keep(patience)

-- Only the first two are told when to ask, the others are woken, or told at their next beat; unless the head has
-- missed its beats: then the queue may be dead down to this waiter.
local ahead = call('ZRANK', queue, token)
local after = -1
if state == 'more' then
  after = 0
elseif ahead <= 1 or patienceleft(call('ZRANGE', queue, 0, 0)[1]) < patience / 2 then
  after = helps(ahead)
end
return { 'queued', place, ahead + 1, digits(f), after }
