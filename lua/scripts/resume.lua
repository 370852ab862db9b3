-- resume: takes over a lease for a process that knows its token. The token gets the flag 4, and the lease a new fence, so that no
-- request of the process that had the lease renews or releases it from then on, or acquires anything.
-- ARGV  fence_ttl token ttl seen copy
--       ttl: ms; seen: the last number before; copy: below 2^16, the rest of the new fence by 2^16: by that a copy of the request
--       knows what another copy has done
-- reply resumed fence waiting    waiting: 1 if somebody waits, else 0
--     | lost     the token does not hold the lock, or somebody else has resumed the lease since
local token, ttl, seen, copy = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local resumed, RANGE = flagged(token, RESUMED), 65536
ttl, seen, copy = math.min(tonumber(ttl), ttl_of(token)), tonumber(seen), tonumber(copy)
if has_flag(token, RELEASED) then return 'lost' end
read_number(0)
call('ZCARD', tombstones) -- it fails if the key is not ours, before anything is written
open()
local waiting, fence = call('EXISTS', queue), fence_of(resumed)
if fence and tonumber(fence) > seen then
  if tonumber(fence) % RANGE ~= copy then return 'lost' end
  extend(resumed, ttl)
  return 'resumed ' .. fence .. ' ' .. waiting
end
if not end_lease(fence and resumed or token, nil, 0) then return 'lost' end
count()
last = math.max(now, last + 1)
last = last + (copy - last) % RANGE - 1
fence = grant(resumed, ttl, waiting * KEPT)
refuse({ without(token, RESUMED) })
return 'resumed ' .. fence .. ' ' .. waiting
