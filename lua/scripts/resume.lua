-- resume: takes over a lease for a process that knows its token. The token gets the flag 4, and the lease a new fence, so that no
-- request of the process that had the lease renews or releases it from then on, or acquires anything.
-- ARGV  fence_ttl token ttl seen id
--       ttl: ms; seen: the last number before; id: random text of the request. With the fence that it gets, it is kept with the
--       tombstones: so a copy of the request finds what another copy has done
-- reply resumed fence
--     | lost    the token does not hold the lock, or somebody else has resumed the lease since
local token, ttl, seen, id = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local resumed = flagged(token, RESUMED)
ttl = math.min(tonumber(ttl), ttl_of(token))
if has_flag(token, RELEASED) then return 'lost' end
read_number(0)
call('ZCARD', tombstones) -- it fails if the key is not ours, before anything is written
open()
local fence = fence_of(resumed)
if fence and tonumber(fence) > tonumber(seen) then
  if not call('ZSCORE', tombstones, id .. ' ' .. fence) then return 'lost' end
  extend(resumed, ttl)
  return 'resumed ' .. fence
end
if not end_lease(fence and resumed or token, nil, 0) then return 'lost' end
count()
fence = grant(resumed, ttl, call('EXISTS', queue) * KEPT)
set_tombstones({ without(token, RESUMED), id .. ' ' .. fence })
return 'resumed ' .. fence
