-- ping: deletes a key that does not exist. Redis refuses that where it would refuse to change a lock. It is no verb of a lock,
-- and built alone.
-- KEYS  absent
-- ARGV
-- reply deleted
return redis.call('DEL', KEYS[1])
