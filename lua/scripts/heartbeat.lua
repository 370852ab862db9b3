-- heartbeat: keeps the tickets of one client's waiters, and returns the state of each.
-- ARGV  fence_ttl waiter_ttl token...
--       waiter_ttl   ms
--       token        of waiters, in the order of their tickets
-- reply last retry_after states
--       last         the last number, after everything in this script
--       retry_after  0 if a bound was reached; ms until another request can help if one of the tokens is the head; else -1
--       states       a letter for each token. q: queued; h: holds the lock; n: neither (request again, with the ticket)
local waiter_ttl = ARGV[2]
waiter_ttl = tonumber(waiter_ttl)
local FIRST, tokens, states, beats = 3, #ARGV - 2, {}, {}

read_number(0)
open()
call('ZREM', queue, '') -- a first write that takes no memory: after it, a full server accepts the other writes

local ends = text_of(clock + waiter_ttl * 1000)
for i = 1, tokens do
  states[i] = waiting > 0 and 'q' or 'n'
  beats[2 * i - 1], beats[2 * i] = ends, ARGV[FIRST + i - 1]
end
if waiting > 0 and tokens > 0 then
  if call('ZADD', heartbeats, 'XX', 'CH', unpack(beats)) < tokens then
    for i, ticket in ipairs(call('ZMSCORE', queue, unpack(ARGV, FIRST))) do
      if not ticket then states[i] = 'n' end
    end
  end
  keep_queue(waiter_ttl + KEPT)
end

drop_expired()
local state = admit()
if waiting > 0 then write_number(0) end

-- After a loss of data, a client may list its waiters in an order that is not that of the queue.
local head, mine = call('ZRANGE', queue, 0, 0)[1], nil
for i = 1, tokens do
  local token = ARGV[FIRST + i - 1]
  if (handed ~= '' or states[i] == 'n') and fence_of(token) then states[i] = 'h' end
  if too_heavy > 0 and too_large(token) and not call('ZSCORE', queue, token) then states[i] = 'n' end
  if token == head then mine = head end
end
tell_head(mine)
local after = state == 'more' and 0 or mine and next_end() or -1
return text_of(last) .. ' ' .. after .. ' ' .. table.concat(states)
