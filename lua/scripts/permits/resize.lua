-- resize: sets the number of permits for all callers, whatever number their tokens say, or removes it; hands off.
-- ARGV  fence_ttl size
--       size: the number of permits; 0: again as many as tokens say
-- reply released state grants...   as release; released is 0
local size = ARGV[2]
read_number(0)
read_resized() -- it fails if the key is not ours, before anything is written
if size == '0' then call('DEL', resized) else call('SET', resized, size) end
resized_to = size ~= '0' and tonumber(size) or nil
if not missing then write_number(0) end -- whatever becomes of the hand-off
return hand_off(false)
