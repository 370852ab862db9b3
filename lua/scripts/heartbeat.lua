-- heartbeat: keeps the tickets of one client's waiters, and tells what became of each.
-- KEYS  number queue alive
-- ARGV  fence_ttl waiter_ttl token...
--       waiter_ttl: ms
-- reply last first retry_after states   last: the last number before; first: index of the first of
--       these waiters in the queue, from 1, 0 if none is queued; retry_after: ms until a request of that waiter can
--       help, -1 unknown; states: one for each token: queued, holding (granted before this heartbeat), granted (by
--       this heartbeat) or not_queued (request again, with the ticket)
local waiter_ttl = ARGV[2]
waiter_ttl = tonumber(waiter_ttl)
find_number()
local before = last

local expires = now + waiter_ttl * 1000
local states, ranks, index, any = {}, {}, {}, false
for i = 3, #ARGV do
  local token, state = ARGV[i], 'not_queued'
  if fence_of(token) then
    state = 'holding'
  else
    local rank = call('ZRANK', queue, token)
    if rank then
      call('ZADD', alive, expires, member(token))
      state = 'queued'
      ranks[i - 2], any = rank, true
    end
  end
  states[i - 2], index[token] = state, i - 2
end
if any then keep_queue(waiter_ttl) end

local grants = {}
local state = admit(nil, grants)
for i = 1, #grants, 3 do
  local at = index[grants[i]]
  if at then states[at] = 'granted' end
end
local first = 0
for i, rank in pairs(ranks) do
  if states[i] == 'queued' and (first == 0 or rank < ranks[first]) then first = i end
end

local after = -1
if state == 'more' then
  after = 0
elseif first > 0 then
  after = retry_after(call('ZRANK', queue, ARGV[first + 2]))
end
return { before, first, after, states }
