-- types: the type of each key, to name the one that is not ours.
-- KEYS  queue alive fence
-- ARGV
-- reply type...   one for each key, none where there is nothing
local types = {}
for i, key in ipairs(KEYS) do types[i] = redis.call('TYPE', key).ok end
return types
