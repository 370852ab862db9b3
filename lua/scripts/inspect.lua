-- inspect: reads the holders and the waiters. It writes nothing.
-- KEYS  number queue alive
-- ARGV  fence_ttl limit
--       limit: the most holders and the most waiters to list
-- reply now last used capacity holders waiting waiters   now: µs of server time; last: the last number, 0 if none is
--       known; used: the holders' weights; capacity: 0 if none is set; holders: {token fence ms-left weight} each;
--       waiting: number of all waiters; waiters: {token ticket expiry weight} each, in order, expiry in µs of server time
local limit = ARGV[2]
limit = tonumber(limit)
find_number()

local waiters = {}
if limit > 0 then
  local found = call('ZRANGE', queue, 0, limit - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local expiry = tonumber(call('ZSCORE', alive, member(found[i])) or 0)
    waiters[#waiters + 1] = { found[i], tonumber(found[i + 1]), expiry, weight_of(found[i]) }
  end
end
local used, capacity, holders = usage(limit)
return { now, last, used, capacity, holders, call('ZCARD', queue), waiters }
