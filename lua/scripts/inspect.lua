-- inspect: reads the holders and the waiters. It writes nothing.
-- ARGV  fence_ttl most_holders most_waiters
--       most_holders  the most holders to list
--       most_waiters  the most waiters to list, and the most keys
-- reply now last used resized holders waiting alive waiters keys
--       now           µs of server time
--       last          the last number; 0 if none is known
--       used          the sum of the holders' weights
--       resized       the number of permits that a resize has set; 0 if none has
--       holders       {token fence ms-left} of each
--       waiting       the number of all waiters
--       alive         the number of waiters that have not expired
--       waiters       {token ticket expiry} of each, in order; expiry in µs of server time
--       keys          {key held waiting limit share ticket at-limit} of each key with waiters. They are in the order of
--                     their turns, those at their limits last. A key is written as in tokens. limit, share and ticket
--                     are those of the first waiter of its line
local most_holders, most_waiters = ARGV[2], ARGV[3]
most_holders, most_waiters = tonumber(most_holders), tonumber(most_waiters)
read_number(0)
local at = tonumber(string.match(call('GET', number) or '', '^2 %d+ %d+ (%d+)') or now)
local silent = math.max(now - at - 1000000, 0) -- without requests for that long, there were no heartbeats

local waiters, found = {}, most_waiters > 0 and call('ZRANGE', queue, 0, most_waiters - 1, 'WITHSCORES') or {}
for i = 1, #found, 2 do
  local ends = call('ZSCORE', heartbeats, found[i]) or clock -- lost: the next request forgets the queue
  waiters[#waiters + 1] = { found[i], tonumber(found[i + 1]), now + ends - clock - silent }
end
local alive = call('ZCOUNT', heartbeats, '(' .. text_of(clock + silent), '+inf')
local used, size, holders = usage(most_holders)
return { now, last, used, size, holders, call('ZCARD', queue), alive, waiters, list_keys(most_waiters) }
