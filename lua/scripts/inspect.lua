-- inspect: who holds, who waits. Changes nothing.
-- KEYS  queue alive fence
-- ARGV  limit
--       limit: the most holders and the most waiters to list
-- reply now fence used capacity holders waiting waiters   now: µs of server time; used: the holders' weights, of
--       capacity, 0 if none is set; holders: {token fence ms-left weight} each; waiting: how many in all; waiters:
--       {token ticket alive weight} each, in order, alive in µs of server time
local limit = ARGV[1]
limit = tonumber(limit)

local waiters = {}
if limit > 0 then
  local found = call('ZRANGE', queue, 0, limit - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local lasts = call('ZSCORE', alive, string.sub(found[i], -14)) -- as in admit.lua
    waiters[#waiters + 1] = { found[i], digits(tonumber(found[i + 1])), digits(tonumber(lasts or 0)),
      weightof(found[i]) }
  end
end
local used, capacity = count()
return { digits(now), digits(last() or 0), used, capacity, list(limit), call('ZCARD', queue), waiters }
