-- resume: takes over a lease for a process that knows its token. The token gets the flag 4, and the lease a new fence, so that no
-- request of the process that had the lease renews or releases it from then on.
-- ARGV  fence_ttl token ttl seen
--       ttl: ms; seen: the last number before; a resumed lease with a higher fence was resumed by this request
-- reply resumed fence
--     | lost
local token, ttl, seen = ARGV[2], ARGV[3], ARGV[4]
local resumed = flagged(token, RESUMED)
ttl = math.min(tonumber(ttl), ttl_of(token))
read_number(0)
open()
local fence = fence_of(resumed)
if fence and tonumber(fence) > tonumber(seen) then
  extend(resumed, ttl)
  return 'resumed ' .. fence
end
if not end_lease(fence and resumed or token, nil, 0) then return 'lost' end
count()
return 'resumed ' .. grant(resumed, ttl, call('EXISTS', queue) * KEPT)
