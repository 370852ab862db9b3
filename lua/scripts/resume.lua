-- resume: passes a lease to another token, with another fence, unless that was done already.
-- ARGV  fence_ttl token fence ttl by
--       fence  of the lease
--       ttl    ms
--       by     the other token, of the same weight and key
-- reply resumed fence
--     | lost     no such lease, or the other token has left
local token, fence, ttl, by = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
read_number(0)
if has_tombstone(by) then return 'lost' end
open()
local resumed = fence_of(by)
if resumed then
  extend(by, tonumber(ttl))
elseif fence_of(token) == fence and weight_of(token) == weight_of(by) and key_of(token) == key_of(by) then
  resumed = take_over(token, by, tonumber(ttl))
  set_tombstones({ token })
end
return resumed and 'resumed ' .. resumed or 'lost'
