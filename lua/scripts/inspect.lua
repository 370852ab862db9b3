-- inspect: who holds, who waits. Changes nothing.
-- KEYS  queue alive fence lock
-- ARGV  limit
--       limit: the most waiters to list
-- reply now fence holders waiting waiters   now: µs of server time; holders: {token fence ms-left} each; waiting: how
--       many in all; waiters: {token ticket alive} each, in order, alive in µs of server time
local limit = ARGV[1]
limit = tonumber(limit)

local waiters = {}
if limit > 0 then
  local list = call('ZRANGE', queue, 0, limit - 1, 'WITHSCORES')
  for i = 1, #list, 2 do
    local lasts = call('ZSCORE', alive, string.sub(list[i], -22)) -- as in admit.lua
    waiters[#waiters + 1] = { list[i], digits(tonumber(list[i + 1])), digits(tonumber(lasts or 0)) }
  end
end
return { digits(now), digits(last() or 0), holders(), call('ZCARD', queue), waiters }
