-- inspect: reads the holders and the waiters. It writes nothing.
-- KEYS  number store queue heartbeats
-- ARGV  fence_ttl limit
--       limit: the most holders and the most waiters to list
-- reply now last used capacity holders waiting waiters quarantine   now: µs of server time; last: the last number, 0 if none is
--       known; used: the holders' weights; capacity: 0 if none is set; holders: {token fence ms-left weight} each;
--       waiting: number of all waiters; waiters: {token ticket expiry weight} each, in order, expiry in µs of server time;
--       quarantine: ms that are left of it, 0 if the lock is not quarantined
local limit = ARGV[2]
limit = tonumber(limit)
find_number()
read_clock_of_queue()
local left = math.max(math.ceil((quarantine - clock) / 1000), 0)
clock = clock + math.max(since - 1000000, 0) -- if nobody has asked for long, no heartbeat has come either

local waiters = {}
if limit > 0 then
  local found = call('ZRANGE', queue, 0, limit - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local ends, weight = heartbeat_of(call('HGET', heartbeats, member(found[i])))
    waiters[#waiters + 1] = { found[i], tonumber(found[i + 1]), now + ends - clock, weight }
  end
end
local used, capacity, holders = usage(limit)
return { now, last, used, capacity, holders, call('ZCARD', queue), waiters, left }
