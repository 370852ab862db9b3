-- types: the type of each key, to name the one that is not ours. It is no verb of a lock, and built alone.
-- KEYS  all of a lock
-- ARGV
-- reply type...   one for each key, none if there is no such key
local types = {}
for i, key in ipairs(KEYS) do types[i] = redis.call('TYPE', key).ok end
return types
