-- ping: calls what a lock needs, with a key that does not exist, and leaves none. Redis refuses it where it would refuse a lock, as
-- some managed services refuse TIME. It is not a verb of a lock, and is built alone.
-- KEYS  absent
-- ARGV
-- reply deleted
redis.call('TIME')
redis.call('SET', KEYS[1], 1, 'XX') -- the first write, which a full server refuses; it writes nothing
redis.call('DEL', KEYS[1]) -- before what creates the key, which would stay without that right
redis.call('GET', KEYS[1])
redis.call('EXISTS', KEYS[1])
redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], 1)
redis.call('ZADD', KEYS[1], 'XX', 0, 1)
redis.call('ZREM', KEYS[1], 1)
redis.call('ZRANGE', KEYS[1], 0, 0)
redis.call('ZSCORE', KEYS[1], 1)
redis.call('ZMSCORE', KEYS[1], 1)
redis.call('ZCARD', KEYS[1])
redis.call('ZRANK', KEYS[1], 1)
redis.call('ZRANGEBYSCORE', KEYS[1], 0, 0)
redis.call('HGET', KEYS[1], 1)
redis.call('HDEL', KEYS[1], 1)
redis.call('HLEN', KEYS[1])
redis.call('HSET', KEYS[1], 1, 1)
redis.call('HINCRBY', KEYS[1], 1, 1)
redis.call('UNLINK', KEYS[1])
return redis.call('DEL', KEYS[1])
