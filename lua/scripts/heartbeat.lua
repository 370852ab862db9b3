-- heartbeat: keeps the tickets of one client's waiters, and tells what became of each.
-- ARGV  fence_ttl waiter_ttl capacity client token...
--       waiter_ttl: ms; capacity: of permits, 0 for a mutex, or if the caller has no waiter; client: whose channel gets a
--       message, by which it checks its subscription, or nothing; token: of waiters, in the order of their tickets
-- reply last retry_after states
--       last: the last number, after everything in this script; retry_after: 0 if a bound was reached; ms until another
--       request can help if one of the tokens is the head, else -1; states: a letter for each token: q queued, h holds the
--       lock, n neither (request again, with the ticket)
local waiter_ttl, capacity, client = ARGV[2], ARGV[3], ARGV[4]
waiter_ttl, capacity = tonumber(waiter_ttl), tonumber(capacity)
local FIRST, tokens, states, beats = 5, #ARGV - 4, {}, {}

read_number(0)
local waiting = call('ZCARD', queue)
call('ZCARD', heartbeats) -- it fails if the key is not ours, before anything is written
-- A first write that takes no memory: a full server lets the rest pass.
if waiting > 0 and tokens > 0 then call('PEXPIRE', queue, waiter_ttl + KEPT) else call('ZREM', queue, '') end
open(capacity > 0 and capacity or nil)

local ends = text_of(clock + waiter_ttl * 1000)
for i = 1, tokens do
  states[i] = waiting > 0 and 'q' or 'n'
  beats[2 * i - 1], beats[2 * i] = ends, ARGV[FIRST + i - 1]
end
if waiting > 0 and tokens > 0 then
  if call('ZADD', heartbeats, 'XX', 'CH', unpack(beats)) < tokens then
    for i, ticket in ipairs(call('ZMSCORE', queue, unpack(ARGV, FIRST))) do
      if ticket then call('ZADD', heartbeats, ends, ARGV[FIRST + i - 1]) else states[i] = 'n' end
    end
  end
  call('PEXPIRE', heartbeats, waiter_ttl + KEPT)
  if capacity > 0 then
    record_capacity()
    keep(waiter_ttl + KEPT)
  end
end

drop_expired()
local state = admit()

-- The time of the head was lost, so perhaps of others: those that are alive send heartbeats, the others expire together.
local head = call('ZRANGE', queue, 0, 0)[1]
if tokens > 0 and head and not call('ZSCORE', heartbeats, head) then
  local untimed = {}
  for i, token in ipairs(call('ZRANGE', queue, 0, 749)) do untimed[2 * i - 1], untimed[2 * i] = ends, token end
  call('ZADD', heartbeats, 'NX', unpack(untimed))
  call('PEXPIRE', heartbeats, waiter_ttl + KEPT)
end

if client ~= '' then publish(client, 'check') end
if waiting > 0 then write_number(waiter_ttl + KEPT) end
local first
for i = 1, tokens do
  local token = ARGV[FIRST + i - 1]
  if (handed ~= '' or states[i] == 'n') and fence_of(token) then states[i] = 'h' end
  if too_heavy > 0 and weight_of(token) > total and not call('ZSCORE', queue, token) then states[i] = 'n' end
  if states[i] == 'q' and not first then first = token end
end
local after = state == 'more' and 0 or first and first == head and next_end() or -1
return text_of(last) .. ' ' .. after .. ' ' .. table.concat(states)
