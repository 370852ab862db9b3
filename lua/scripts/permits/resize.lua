-- resize: sets the number of permits for all callers, whatever number their tokens have, or removes it; hands off.
-- ARGV  fence_ttl size
--       size      the number of permits; 0: the number in each token counts again
-- reply released state grants...
--       released  0; the others as in the reply of release
local size = ARGV[2]
read_number(0)
read_resized() -- it fails before the first write if the key is not ours
if size == '0' then call('DEL', resized) else call('SET', resized, size) end
resized_to = size ~= '0' and tonumber(size) or nil
if not missing then write_number(0) end -- whatever becomes of the hand-off
return hand_off(false)
