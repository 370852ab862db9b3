-- heartbeat: keeps the tickets of one client's waiters, and tells what became of each.
-- KEYS  number store queue heartbeats
-- ARGV  fence_ttl waiter_ttl token...
--       waiter_ttl: ms; token: of waiters, in the order of their tickets
-- reply retry_after states   retry_after: ms until a request of the first waiter that is queued can help, -1 unknown;
--       states: one for each token: queued, holding (granted before this heartbeat), granted (by this heartbeat) or
--       not_queued (request again, with the ticket)
local waiter_ttl = ARGV[2]
waiter_ttl = tonumber(waiter_ttl)
find_number()
free() -- it reads what can have a wrong type
call('ZREM', queue, '') -- it takes no memory, so a full server lets the script go on
update_clock()
local states = {}
if #ARGV > 2 then
  local members, beats = {}, {}
  for i = 3, #ARGV do members[i - 2] = member(ARGV[i]) end
  local ends = text_of(clock + waiter_ttl * 1000)
  for i, record in ipairs(call('HMGET', heartbeats, unpack(members))) do
    if record then
      states[i] = 'queued'
      beats[#beats + 1] = members[i]
      local weight = string.find(record, ' ', 1, true)
      beats[#beats + 1] = weight and ends .. string.sub(record, weight) or ends
    else
      states[i] = fence_of(ARGV[i + 2]) and 'holding' or 'not_queued'
    end
  end
  if #beats > 0 then
    keep_queue(waiter_ttl)
    call('HSET', heartbeats, unpack(beats))
  end
end

local grants = {}
local state, after = admit(nil, grants), -1
for g = 1, #grants, 3 do
  for i = 3, #ARGV do
    if ARGV[i] == grants[g] then states[i - 2] = 'granted' end
  end
end
sweep()
if state == 'more' then
  after = 0
else
  for i, found in ipairs(states) do
    if found == 'queued' then
      after = retry_after(call('ZRANK', queue, ARGV[i + 2]))
      break
    end
  end
end
return { after, states }
