-- beat: one client keeps the places of its waiters of one lock, and learns what it may have missed.
-- KEYS  queue alive fence
-- ARGV  ttl patience token...
--       ttl: ms, the most a waiter is given; patience in ms
-- reply fence best helps states   fence: the last one; best: index of the caller's foremost waiter, from 1, 0 if none
--       waits; helps: ms after which asking can help that one, -1 unknown; states: one for each token:
--       queued, granted (it held the lock before), admitted (it does now) or gone (ask again, with the ticket)
local ttl, patience = ARGV[1], ARGV[2]
ttl, patience = tonumber(ttl), tonumber(patience)

local states, ranks, index, any = {}, {}, {}, false
for i = 3, #ARGV do
  local token, state = ARGV[i], 'gone'
  if holds(token) then
    state = 'granted'
  else
    local rank = call('ZRANK', queue, token)
    if rank then
      heard(token, patience)
      state = 'queued'
      ranks[i - 2], any = rank, true
    end
  end
  states[i - 2], index[token] = state, i - 2
end
if any then keep(patience) end

local before = last() or 0
local grants, state = admit(ttl)
for _, g in ipairs(grants) do
  local i = index[g[1]]
  if i then states[i] = 'admitted' end
  tell(g)
end
local best = 0
for i, rank in pairs(ranks) do
  if states[i] == 'queued' and (best == 0 or rank < ranks[best]) then best = i end
end

local after = -1
if state == 'more' then
  after = 0
elseif best > 0 then
  after = helps(call('ZRANK', queue, ARGV[best + 2]))
end
return { digits(before), best, after, states }
